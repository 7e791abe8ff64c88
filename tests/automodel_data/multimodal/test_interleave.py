"""Chains of edits, clips, and a user's own dataset in one ``parse_row``."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from automodel_data.errors import DataError
from automodel_data.multimodal.interleave import (
    InterleavedBaseIterableDataset,
    ParquetStandardIterableDataset,
    UnifiedEditIterableDataset,
)
from automodel_data.multimodal.plan import Sample
from automodel_data.multimodal.transforms import ImageTransform
from automodel_data.randomness import Randomness

Make = Callable[..., UnifiedEditIterableDataset]


@pytest.fixture
def make(tmp_path: Path, workshop: Any, letters: Any) -> Make:
    """Return a maker of sources over rows of a file in row groups of two."""

    def make(
        rows: Sequence[tuple[Any, Any]], kind: type = UnifiedEditIterableDataset, scheme: str = "", **options: Any
    ) -> UnifiedEditIterableDataset:
        workshop.add_edit("edits", rows, rows_per_group=2)
        arguments: dict[str, Any] = {"num_used_data": [1], "parquet_info": None, "num_workers": 0}
        return kind(
            dataset_name="edits",
            transform=ImageTransform(128, 16, 16),
            tokenizer=letters,
            vit_transform=ImageTransform(128, 16, 16),
            data_dir_list=[f"{scheme}{tmp_path}/edits"],
            **(arguments | options),
        )

    return make


@pytest.fixture
def chain(workshop: Any) -> Callable[[int], tuple[list[bytes], list[list[str]]]]:
    """Return a maker of chains; image n is n + 1 patches wide, its instruction says so in two phrasings."""

    def chain(length: int) -> tuple[list[bytes], list[list[str]]]:
        images = [workshop.image(16 * (number + 1), 16) for number in range(length)]
        return images, [[f"to {number}", f"make it {number}"] for number in range(1, length)]

    return chain


def plan(sample: Mapping[str, Any]) -> list[Any]:
    """Return texts, and images as ``(number in the chain, what for)``."""
    texts, images = iter(sample["text_ids_list"]), iter(sample["image_tensor_list"])
    found: list[Any] = []
    for item in sample["sequence_plan"]:
        assert item["enable_cfg"] == 1 - item["loss"]
        if item["type"] == "text":
            found.append("".join(map(chr, next(texts))))
        else:
            found.append((next(images).shape[2] // 16 - 1, item["type"][:3] + "+" * item["loss"]))
    return found


def by_the_book(length: int, rng: random.Random) -> list[Any]:
    """Write a chain's plan as the contract words it, drawing as it says."""
    start = rng.choice(range(length - 1))
    end = rng.choice(range(start + 1, min(start + 3, length)))
    wanted: list[Any] = [(start, "vae"), (start, "vit")]
    if end - start > 1 and rng.random() < 0.5:
        if end == length - 1:
            end -= 1
        steps = [rng.choice([f"to {step + 1}", f"make it {step + 1}"]) for step in range(start, end)]
        return [*wanted, "".join(step + ". " for step in steps).rstrip(), (end, "vae+")]
    for step in range(start + 1, end + 1):
        wanted += [rng.choice([f"to {step}", f"make it {step}"]), (step, "vae+")]
        if step < end:
            wanted += [(step, "vae"), (step, "vit")]
    return wanted


@pytest.mark.parametrize("length", [2, 3, 4, 6])
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_stretch_of_the_chain_is_drawn_and_laid_out_as_the_contract_says(
    length: int, scheme: str, make: Make, chain: Any
) -> None:
    source = make([chain(length)], scheme=scheme)
    source.rng = Randomness(11)
    rng = random.Random(11)
    for sample in islice(iter(source), 40):
        assert plan(sample) == by_the_book(length, rng)


def test_merged_instructions_are_one_text_and_the_end_image_is_only_learnt(make: Make, chain: Any) -> None:
    source = make([chain(6)])
    merged = next(found for found in map(plan, iter(source)) if ". " in str(found[2]))
    assert len(merged) == 4
    assert merged[2].count(".") == 2
    assert merged[3][1] == "vae+"


def test_an_image_for_both_towers_is_one_file(make: Make, chain: Any) -> None:
    sample = next(iter(make([chain(2)])))
    first, second = sample.plan[:2]
    assert first.picture.source is second.picture.source  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda images, instructions: (images[:1], instructions[:0]), "broken edit chain"),
        (lambda images, instructions: (images, instructions[:1]), "broken edit chain"),
        (lambda images, instructions: (None, instructions), "broken edit chain"),
        (lambda images, instructions: (images, None), "broken edit chain"),
        (lambda images, instructions: (images, [None, None]), "broken instruction"),
        (lambda images, instructions: (images, [[], []]), "broken instruction"),
        (lambda images, instructions: (images, [[None], [None]]), "broken instruction"),
        (lambda images, instructions: ([None] * 3, instructions), "missing image"),
        (lambda images, instructions: ([b"<html>"] * 3, instructions), "unreadable image"),
    ],
)
def test_a_broken_chain_is_lost_under_its_reason(
    spoil: Any, reason: str, make: Make, chain: Any, caplog: pytest.LogCaptureFixture
) -> None:
    source = make([spoil(*chain(3)), chain(3), chain(3)])
    list(islice(iter(source), 8))
    assert list(source.ledger.counts["edits"]) == [reason]
    assert "edits/a.parquet, row group 0, row 0" in caplog.text


def test_instructions_without_phrasings_are_not_cut_into_letters(make: Make, chain: Any, workshop: Any) -> None:
    images, _ = chain(3)
    source = make([chain(3)])
    workshop.parquet(Path(source.data_paths[0][0]), {"image_list": [images], "instruction_list": [["to 1", "to 2"]]})
    with pytest.raises(DataError, match=r"broken instruction .* a step has 'to \d', not a list of phrasings"):
        next(iter(source))


def test_a_missing_column_is_refused_with_its_name(make: Make, chain: Any, workshop: Any) -> None:
    source = make([chain(3)])
    workshop.parquet(Path(source.data_paths[0][0]), {"images": [[b""]]})
    with pytest.raises(DataError, match=r"has no column 'image_list'; its columns are \['images'\]"):
        next(iter(source))


# row groups -------------------------------------------------------------------------------------------------------


def starts(source: UnifiedEditIterableDataset, count: int) -> list[Any]:
    return [sample["data_indexes"]["data_indexes"] for sample in islice(iter(source), count)]


def test_a_row_group_is_a_path_from_the_footers_or_from_parquet_info(make: Make, chain: Any, tmp_path: Path) -> None:
    file = f"{tmp_path}/edits/a.parquet"
    assert sorted(make([chain(2)] * 5).data_paths) == [(file, 0), (file, 1), (file, 2)]
    known = {file: {"num_row_groups": 2}, "/elsewhere.parquet": {"num_row_groups": 9}}
    assert sorted(make([chain(2)] * 5, parquet_info=known).data_paths) == [(file, 0), (file, 1)]


def test_parquet_info_that_knows_no_file_is_refused_with_both_names(make: Make, chain: Any) -> None:
    with pytest.raises(
        DataError, match=r"e.g. .*edits/a.parquet, .*: parquet_info knows others, such as /elsewhere.parquet"
    ):
        make([chain(2)], parquet_info={"/elsewhere.parquet": {"num_row_groups": 9}})


def test_files_that_parquet_info_does_not_know_are_left_out_and_told(
    make: Make, chain: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make([chain(2)])
    (tmp_path / "edits" / "b.parquet").write_bytes((tmp_path / "edits" / "a.parquet").read_bytes())
    known = {f"{tmp_path}/edits/a.parquet": {"num_row_groups": 1}}
    assert len(make([chain(2)], num_used_data=[2], parquet_info=known).data_paths) == 1
    assert f"edits: 1 of 2 parquet files are left out, e.g. {tmp_path}/edits/b.parquet: parquet_info" in caplog.text


@pytest.mark.parametrize("stop", range(6))
def test_reading_goes_on_behind_any_row_twice(stop: int, make: Make, chain: Any) -> None:
    rows = [chain(2 + number % 3) for number in range(5)]
    whole = [dict(sample) for sample in islice(iter(make(rows)), 11)]
    source = make(rows)
    read = [dict(sample) for sample in islice(iter(source), stop)]
    for step in (1, 10 - stop):
        state, draws = json.loads(json.dumps(source.state_dict())), source.rng.state_dict()
        source = make(rows)
        source.load_state_dict(state)
        source.rng.load_state_dict(draws)
        read += [dict(sample) for sample in islice(iter(source), step)]
    assert [sample["text_ids_list"] for sample in read] == [sample["text_ids_list"] for sample in whole]
    assert [sample["data_indexes"] for sample in read] == [sample["data_indexes"] for sample in whole]


def test_reading_starts_behind_a_given_row_in_the_first_pass(make: Make, chain: Any) -> None:
    rows = [chain(2)] * 5
    whole = starts(make(rows), 5)
    assert starts(make(rows, data_status=[whole[1]]), 8) == whole[2:] + whole


def test_a_buffered_chain_is_read_again_with_the_stretch_and_the_words_that_were_drawn(make: Make, chain: Any) -> None:
    source = make([chain(5), chain(4)])
    for sample in islice(iter(source), 10):
        assert plan(source.restore(sample.index, sample.draws)) == plan(sample)


# building blocks --------------------------------------------------------------------------------------------------


class Blocks(InterleavedBaseIterableDataset, ParquetStandardIterableDataset):
    """Only here for its building blocks."""

    def parse_row(self, row: Mapping[str, Any]) -> Sample:
        raise NotImplementedError


@pytest.fixture
def blocks(make: Make, chain: Any) -> Blocks:
    return make([chain(2)], Blocks)  # type: ignore[return-value]


def test_an_image_is_added_to_be_learnt_then_clean_then_for_the_other_tower(blocks: Blocks) -> None:
    data = blocks._add_image(blocks._init_data(), Image.new("RGB", (32, 16)), True, True, True)
    assert plan(data) == [(1, "vae+"), (1, "vae"), (1, "vit")]
    assert data["num_tokens"] == 2 + 2 + 2


def test_conditions_can_be_kept_from_dropout(blocks: Blocks) -> None:
    data = blocks._add_text(blocks._init_data(), "a", need_loss=True, enable_cfg=False)
    data = blocks._add_image(data, Image.new("RGB", (32, 16)), False, True, True, enable_cfg=False)
    assert [(item["loss"], item["enable_cfg"]) for item in data["sequence_plan"]] == [(1, 0), (0, 0), (0, 0)]


def test_a_clip_is_one_split_with_the_steps_between_its_frames(blocks: Blocks) -> None:
    frames = [Image.new("RGB", (16, 16))] * 3
    data = blocks._add_video(blocks._init_data(), frames, [0, 2, 7], need_loss=True, need_vae=True)
    clips = [
        (item["loss"], item["enable_cfg"], item["split_start"], item["split_end"], item.get("frame_delta"))
        for item in data["sequence_plan"]
    ]
    assert clips == [
        (1, 0, True, False, 2),
        (1, 0, False, False, 5),
        (1, 0, False, True, None),
        (0, 1, True, False, 2),
        (0, 1, False, False, 5),
        (0, 1, False, True, None),
    ]
