"""Broken data costs rows, never a pack or the run; a source of nothing but broken rows is one clean error."""

import json
import time
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from automodel_data.errors import DataError, merge_counts
from automodel_data.multimodal.checks import read_groups
from automodel_data.multimodal.interleave import InterleavedBaseIterableDataset, ParquetStandardIterableDataset
from automodel_data.multimodal.pack_builder import OpenPack


def talk(image: str | None = None, answer: str = "ok") -> dict[str, Any]:
    turns = [{"from": "human", "value": "<image>" if image else "hi"}, {"from": "gpt", "value": answer}]
    return {"image": image, "conversations": turns} if image else {"conversations": turns}


def truncated(workshop: Any) -> bytes:
    """Return a JPEG whose header is whole and whose pixels are not."""
    content = workshop.image(64, 64, 90, "JPEG")
    return content[: len(content) - 40]


KINDS = {
    "all rows broken": ("{", "broken JSON"),
    "all samples too long": (talk(answer="x" * 99), "too long"),
    "all images truncated": (talk("half.jpg"), "undecodable image"),
    "all files missing": (talk("none.jpg"), "missing image"),
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("mandatory", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beside", ["alone", "beside a good group"])
def test_a_source_that_gives_nothing_is_one_clean_error_within_seconds(
    kind: str, mandatory: bool, workers: int, beside: str, workshop: Any
) -> None:
    row, reason = KINDS[kind]
    workshop.add_vlm("bad", [row] * 6, {"half.jpg": truncated(workshop)}, is_mandatory=mandatory)
    if beside != "alone":
        workshop.add_vlm("good", [talk()] * 6, weight=3.0)
    started = time.monotonic()
    with pytest.raises(DataError) as error:
        list(islice(workshop.build(workers, max_num_tokens_per_sample=35).dataloader, 500))
    assert time.monotonic() - started < 10
    message = str(error.value)
    assert message.startswith("a whole pass over bad gave no usable sample; lost: ")
    assert f"x {reason} (first: " in message
    assert "rows.jsonl:" in message
    assert "Traceback" not in message
    assert "worker process" not in message


def test_captioned_images_that_are_all_truncated_are_an_error(workshop: Any) -> None:
    workshop.add_t2i("t2i", [(truncated(workshop), {"a": "x"})] * 7)
    with pytest.raises(DataError, match=r"a whole pass over t2i .*undecodable image \(first: .*row 0.*truncated"):
        next(iter(workshop.build(max_num_tokens_per_sample=35).dataloader))


def test_broken_files_cost_one_row_each_however_often_a_pack_goes_round_the_source(workshop: Any) -> None:
    files = {
        "half.jpg": truncated(workshop),
        "empty.jpg": b"",
        "page.jpg": b"<html>",
        "bomb.png": workshop.image(100, 100),
        "fine.png": workshop.image(14, 14),
    }
    workshop.add_vlm("talk", [talk(name) for name in [*files, "none.jpg"]], files)
    budget = {"max_num_tokens": 400, "expected_num_tokens": 390, "max_num_tokens_per_sample": 50}
    loader = workshop.build(max_image_pixels=9_999, **budget).dataloader
    for batch in islice(loader, 3):
        assert len(batch.vit_token_seqlens) == len(batch.batch_data_indexes) > 5
    lost = loader.drops()["talk"].keys() - {"pack and buffer full"}
    assert lost == {"missing image", "undecodable image", "unreadable image", "image too large"}


@pytest.mark.parametrize(("exif_orientation", "shape"), [(True, (48, 32)), (False, (32, 48))])
def test_pictures_are_turned_upright_unless_the_config_says_no(
    exif_orientation: bool, shape: tuple[int, int], workshop: Any, photo: Any, encode: Any
) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    workshop.add_t2i("t2i", [(encode(photo(48, 32), "JPEG", exif=exif), {"a": "x"})])
    batch = next(iter(workshop.build(exif_orientation=exif_orientation).dataloader))
    assert batch.padded_images.shape[2:] == shape


def test_a_documented_mapping_is_packed_as_the_sample_that_it_describes(workshop: Any, photo: Any, encode: Any) -> None:
    workshop.add_vlm("talk", [talk("a.png")], {"a.png": encode(photo(40, 30))})
    workshop.add_t2i("t2i", [(encode(photo(40, 30)), {"a": "x"})])
    batches = []
    for take in (lambda sample: sample, dict):
        dataset = workshop.build(max_num_tokens=90).dataset
        pack = dataset.set_sequence_status()
        for group in dataset.build_datasets(read_groups(dataset.data_config), None):
            pack = dataset.pack_sequence(take(next(iter(group.source))), pack)
        batches.append(dataset.to_tensor(pack))
    typed, plain = batches
    assert typed.keys() == plain.keys()
    assert {"packed_vit_tokens", "padded_images", "ce_loss_weights"} < typed.keys()
    for key, value in typed.items():
        assert torch.equal(value, plain[key]) if isinstance(value, torch.Tensor) else value == plain[key]


def samples_of(dataset: Any, count: int) -> list[Any]:
    """Return the first samples of the first group, as its own reader yields them."""
    group, *_ = dataset.build_datasets(read_groups(dataset.data_config), None)
    return list(islice(iter(group.source), count))


@pytest.mark.parametrize("use_flex", [False, True])
@pytest.mark.parametrize("backend", ["pillow", "torchvision"])
def test_a_pack_from_which_a_broken_sample_is_taken_equals_one_that_never_had_it(
    use_flex: bool, backend: str, workshop: Any, photo: Any, encode: Any
) -> None:
    jpegs = [encode(photo(48, 32, number), "JPEG") for number in range(3)]
    rows = [(jpegs[0], {"a": "one"}), (truncated(workshop), {"a": "two"}), (jpegs[2], {"a": "three"})]
    workshop.add_t2i("t2i", rows)
    dataset = workshop.build(use_flex=use_flex, image_backend=backend, max_num_tokens=120).dataset
    pack = dataset.set_sequence_status()
    for sample in samples_of(dataset, 3):
        pack = dataset.pack_sequence(sample, pack)
    without = OpenPack()
    for layout in (pack.layouts[0], pack.layouts[2]):
        without.add(layout)
    got, wanted = dataset.to_tensor(pack), dataset.to_tensor(without)
    assert got.keys() == wanted.keys()
    for key, value in wanted.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(got[key], value), key
        elif key == "nested_attention_masks":
            assert all(torch.equal(ours, theirs) for ours, theirs in zip(got[key], value, strict=True))
        else:
            assert got[key] == value, key
    assert dataset.drops() == {"t2i": {"undecodable image": 1}}


def test_a_pack_of_nothing_but_broken_samples_is_refused(workshop: Any) -> None:
    workshop.add_t2i("t2i", [(truncated(workshop), {"a": "x"}), (workshop.image(16, 16), {"a": "x"})])
    dataset = workshop.build().dataset
    (bad, _) = samples_of(dataset, 2)
    pack = dataset.pack_sequence(bad, dataset.set_sequence_status())
    with pytest.raises(DataError, match="no sample of the pack could be decoded"):
        dataset.to_tensor(pack)


# files ------------------------------------------------------------------------------------------------------------


def add_files(workshop: Any, kind: str) -> Path:
    """Add a group of that kind with the files a to d of two row groups each; c is broken: return its path."""
    image = workshop.image(16, 16)
    match kind:
        case "t2i":
            first = workshop.add_t2i("files", [(image, {"a": "x"})] * 4, rows_per_group=2)
        case "own":
            first = add_only_conditions(workshop, "files", rows_per_group=10)
        case _:
            first = workshop.add_edit("files", [([image, image], [["a"]])] * 4, rows_per_group=2)
    for name in "bcd":
        first.with_stem(name).write_bytes(first.read_bytes())
    if kind == "parquet_info":
        known = {str(first.with_stem(name)): {"num_row_groups": 2} for name in "abcd"}
        (workshop.root / "info.json").write_text(json.dumps(known))
        workshop.info["files"]["rows"]["parquet_info_path"] = str(workshop.root / "info.json")
    first.with_stem("c").write_bytes(b"PAR1 no more")
    return first.with_stem("c")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("t2i", "unreadable parquet file"),
        ("edit", "unreadable parquet file"),
        ("own", "unreadable parquet file"),
        ("parquet_info", "unreadable row group"),
    ],
)
def test_an_unreadable_file_is_counted_and_named(
    kind: str, reason: str, workshop: Any, caplog: pytest.LogCaptureFixture
) -> None:
    broken = add_files(workshop, kind)
    loader = workshop.build().dataloader
    list(islice(loader, 15))
    assert loader.drops()["files"].keys() - {"pack and buffer full"} == {reason}
    told = [line for line in caplog.text.splitlines() if f"files: lost a sample, {reason} [1 so far]" in line]
    assert len(told) == 1
    assert str(broken) in told[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_file_that_all_readers_leave_out_is_counted_once_however_often_they_stop(workers: int, workshop: Any) -> None:
    add_files(workshop, "edit")
    loaders = [workshop.build(workers, rank, 2).dataloader for rank in range(2)]
    for loader in loaders:
        for _ in range(3):
            list(islice(loader, 3))
            loader.load_state_dict(loader.state_dict())
    counts = merge_counts(*(loader.drops() for loader in loaders))
    assert counts["files"]["unreadable parquet file"] == 1


def test_files_that_are_all_unreadable_are_refused_with_what_is_wrong_with_one(workshop: Any) -> None:
    broken = add_files(workshop, "edit")
    for name in "abd":
        broken.with_stem(name).write_bytes(b"PAR1 no more")
    named = r"files: none of 4 parquet files, e\.g\. .*a\.parquet, has a readable row group: unreadable parquet file: "
    with pytest.raises(DataError, match=named):
        workshop.build()


class OnlyConditions(InterleavedBaseIterableDataset, ParquetStandardIterableDataset):
    """A condition and nothing to learn from it."""

    def parse_row(self, row: Mapping[str, Any]) -> Any:
        return self._add_text(self._init_data(), row["text"], need_loss=False)


def add_only_conditions(workshop: Any, name: str = "conditions", rows_per_group: int = 1000) -> Path:
    columns = {"text": list("abcdefghijklmnopqrst")}
    path = workshop.parquet(workshop.root / name / "a.parquet", columns, rows_per_group)
    workshop.info[name] = {"rows": {"data_dir": str(path.parent)}}
    sizes = {"max_image_size": 64, "min_image_size": 16}
    workshop.groups[name] = {
        "dataset_names": ["rows"],
        "dataset_class": f"{__name__}.OnlyConditions",
        "image_transform_args": {"image_stride": 16} | sizes,
        "vit_image_transform_args": {"image_stride": 14} | sizes,
    }
    return path


def test_a_sample_of_which_dropout_leaves_nothing_is_counted_and_never_packed(workshop: Any) -> None:
    add_only_conditions(workshop)
    loader = workshop.build(text_cond_dropout_prob=0.5, expected_num_tokens=9).dataloader
    for batch in islice(loader, 10):
        assert batch.sequence_length == 9
        assert batch.sample_lens[:-1] == [3, 3, 3]
    assert list(loader.drops()["conditions"]) == ["nothing left"]


def test_a_source_of_which_dropout_leaves_nothing_at_all_is_an_error(workshop: Any) -> None:
    add_only_conditions(workshop)
    with pytest.raises(DataError, match=r"a whole pass over conditions .*20 x nothing left"):
        next(iter(workshop.build(text_cond_dropout_prob=1.0).dataloader))
