"""Captioned images: one caption is drawn, the image is learnt, broken rows and row groups are counted."""

import json
import random
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from automodel_data.errors import DataError
from automodel_data.multimodal.t2i import T2IIterableDataset
from automodel_data.multimodal.transforms import ImageTransform
from automodel_data.randomness import Randomness

Make = Callable[..., T2IIterableDataset]


@pytest.fixture
def make(tmp_path: Path, workshop: Any, letters: Any) -> Make:
    """Return a maker of sources over files, each a list of row groups, each a list of ``(image, captions)``."""

    def make(*files: list[list[tuple[Any, Any]]], scheme: str = "", **options: Any) -> T2IIterableDataset:
        for number, groups in enumerate(files):
            rows = [row for group in groups for row in group]
            columns = {"image": [image for image, _ in rows], "captions": [captions for _, captions in rows]}
            workshop.parquet(tmp_path / "t2i" / f"{number}.parquet", columns, max(map(len, groups)))
        return T2IIterableDataset(
            dataset_name="t2i",
            transform=ImageTransform(64, 16, 16),
            tokenizer=letters,
            data_dir_list=[f"{scheme}{tmp_path}/t2i"],
            **({"num_used_data": [len(files)], "num_workers": 0} | options),
        )

    return make


@pytest.fixture
def image(workshop: Any) -> bytes:
    return workshop.image(48, 32)


def captions(*texts: Any) -> str:
    return json.dumps({f"caption {number}": text for number, text in enumerate(texts)})


def texts(source: T2IIterableDataset, count: int) -> list[str]:
    return ["".join(map(chr, sample["text_ids_list"][0])) for sample in islice(iter(source), count)]


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_row_is_a_condition_text_and_an_image_to_learn(scheme: str, make: Make, image: bytes) -> None:
    sample = next(iter(make([[(image, captions("a cat"))]], scheme=scheme)))
    plain = {"special_token_loss": 0, "special_token_label": None}
    assert sample["sequence_plan"] == [
        {"type": "text", "enable_cfg": 1, "loss": 0} | plain,
        {"type": "vae_image", "enable_cfg": 0, "loss": 1} | plain,
    ]
    assert [tuple(picture.shape) for picture in sample["image_tensor_list"]] == [(3, 32, 48)]
    assert (sample["num_tokens"], sample.length) == (5 + 2 * 3, 5 + 2 * 3 + 4)


def test_one_caption_is_drawn_uniformly(make: Make, image: bytes) -> None:
    source = make([[(image, captions("a", "b", "c"))]])
    source.rng = Randomness(7)
    python = random.Random(7)
    assert texts(source, 20) == [python.choice("abc") for _ in range(20)]


def test_without_captions_the_text_is_a_blank_and_nothing_is_drawn(make: Make, image: bytes) -> None:
    source = make([[(image, "{}")]])
    before = source.rng.state_dict()
    assert texts(source, 2) == [" ", " "]
    assert source.rng.state_dict() == before


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ((None, captions("x")), "missing image"),
        ((b"", captions("x")), "unreadable image"),
        ((b"<html>", captions("x")), "unreadable image"),
        ((b"fine", None), "broken captions"),
        ((b"fine", "no JSON"), "broken captions"),
        ((b"fine", '["a list"]'), "broken captions"),
        ((b"fine", '{"a": 3}'), "broken captions"),
        ((b"fine", '{"a": null}'), "broken captions"),
    ],
)
def test_a_broken_row_is_lost_under_its_reason(
    broken: tuple[bytes | None, str | None], reason: str, make: Make, image: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    picture, text = broken
    source = make([[(image, captions("good")), (image if picture == b"fine" else picture, text)]])
    assert texts(source, 2) == ["good", "good"]
    assert source.ledger.counts == {"t2i": {reason: 1}}
    assert "t2i/0.parquet, row group 0, row 1" in caplog.text


FILES = [["ab", "c"], ["d"], ["ef", "gh", "i"]]


def make_letters(make: Make, image: bytes, **options: Any) -> T2IIterableDataset:
    """Return a source over three files of row groups of captions, one letter each."""
    return make(*[[[(image, captions(letter)) for letter in group] for group in file] for file in FILES], **options)


def test_rows_come_file_by_file_and_group_by_group_with_their_positions(make: Make, image: bytes) -> None:
    source = make_letters(make, image)
    order = [int(Path(path).stem) for path in source.data_paths]
    wanted = [
        (letter, [number, group, row])
        for number, file in enumerate(order)
        for group, rows in enumerate(FILES[file])
        for row, letter in enumerate(rows)
    ]
    read = [
        (chr(sample["text_ids_list"][0][0]), sample["data_indexes"]["data_indexes"])
        for sample in islice(iter(source), len(wanted))
    ]
    assert read == wanted


@pytest.mark.parametrize("stop", range(10))
def test_reading_goes_on_behind_any_row_twice(stop: int, make: Make, image: bytes) -> None:
    whole = texts(make_letters(make, image), 16)
    source = make_letters(make, image)
    read = texts(source, stop)
    for step in (1, 15 - stop):
        state = json.loads(json.dumps(source.state_dict()))
        source = make_letters(make, image)
        source.load_state_dict(state)
        read += texts(source, step)
    assert read == whole


def test_reading_starts_behind_a_given_row_in_the_first_pass(make: Make, image: bytes) -> None:
    whole = texts(make_letters(make, image), 9)
    source = make_letters(make, image)
    sixth = [sample["data_indexes"]["data_indexes"] for sample in islice(iter(source), 6)][5]
    assert texts(make_letters(make, image, data_status=[sixth]), 12) == whole[6:] + whole


def test_a_buffered_row_is_read_again_with_the_caption_that_was_drawn(make: Make, image: bytes) -> None:
    source = make([[(image, captions("a", "b", "c"))] * 5])
    for sample in islice(iter(source), 5):
        assert source.restore(sample.index, sample.draws)["text_ids_list"] == sample["text_ids_list"]


def test_a_broken_row_group_in_the_middle_is_counted_and_the_next_one_starts_at_its_first_row(
    make: Make, image: bytes
) -> None:
    source = make([[(image, captions(letter)) for letter in group] for group in ("abcde", "fghij", "klmno")])
    (path,) = source.data_paths
    content = Path(path).read_bytes()
    metadata = pq.read_metadata(path).row_group(1)
    for column in (metadata.column(0), metadata.column(1)):
        start = column.dictionary_page_offset or column.data_page_offset
        content = (
            content[:start] + b"\xa5" * column.total_compressed_size + content[start + column.total_compressed_size :]
        )
    Path(path).write_bytes(content)
    assert texts(source, 10) == list("abcdeklmno")
    assert source.ledger.counts == {"t2i": {"unreadable row group": 5}}


def test_an_unreadable_file_is_counted_and_the_others_are_read(make: Make, image: bytes) -> None:
    source = make_letters(make, image)
    Path(source.data_paths[0]).write_bytes(b"PAR1 no more")
    assert len(set(texts(source, 5))) >= 4
    assert source.ledger.counts["t2i"]["unreadable parquet file"] >= 1


def test_files_that_are_all_unreadable_are_an_error_that_names_them(make: Make, image: bytes) -> None:
    source = make_letters(make, image)
    for path in source.data_paths:
        Path(path).write_bytes(b"PAR1 no more")
    with pytest.raises(DataError, match=r"a whole pass over t2i .*3 x unreadable parquet file \(first: .*.parquet"):
        texts(source, 1)


def test_files_are_repeated_when_more_are_wanted(make: Make, image: bytes) -> None:
    source = make_letters(make, image, num_used_data=[4])
    assert sorted(Path(path).stem for path in source.data_paths) == ["0", "0", "1", "2"]
