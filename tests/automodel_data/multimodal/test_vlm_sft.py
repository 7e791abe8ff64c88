"""Conversations become texts and images in reading order; rows that do not add up are lost under their own reason."""

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from automodel_data.errors import DataError
from automodel_data.images import ImagePolicy
from automodel_data.multimodal.plan import Sample
from automodel_data.multimodal.transforms import ImageTransform
from automodel_data.multimodal.video import FrameSampler
from automodel_data.multimodal.vlm_sft import SftJSONLIterableDataset
from automodel_data.randomness import Randomness

Row = Mapping[str, Any]
Make = Callable[..., SftJSONLIterableDataset]
GOOD = {"id": "~", "conversations": [{"from": "gpt", "value": "good"}]}  # sorts last


@pytest.fixture
def make(tmp_path: Path, letters: Any, encode: Callable[..., bytes]) -> Make:
    """Return a maker of sources over these rows, beside pictures a, b (28x28, 56x28) and a clip of 10 frames."""
    (tmp_path / "a.png").write_bytes(encode(Image.new("RGB", (28, 28))))
    (tmp_path / "b.png").write_bytes(encode(Image.new("RGB", (56, 28))))
    (tmp_path / "half.jpg").write_bytes(encode(Image.new("RGB", (64, 64)), "JPEG")[:650])
    (tmp_path / "page.jpg").write_text("<html>404</html>")
    (tmp_path / "clip").mkdir()
    for number in range(10):
        Image.new("RGB", (28, 28)).save(tmp_path / "clip" / f"frame_{number}.jpg")

    def make(
        rows: Sequence[Row | str],
        frames: int | None = None,
        folder: str = str(tmp_path),
        file: str = str(tmp_path / "rows.jsonl"),
        **options: Any,
    ) -> SftJSONLIterableDataset:
        text = "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows)
        (tmp_path / "rows.jsonl").write_text(text)
        return SftJSONLIterableDataset(
            dataset_name="vlm",
            transform=ImageTransform(56, 28, 14),
            tokenizer=letters,
            frame_sampler=None if frames is None else FrameSampler(frames, frames, "middle"),
            jsonl_path_list=[file],
            data_dir_list=[folder],
            **({"num_used_data": [len(rows)], "num_workers": 0} | options),
        )

    return make


def turns(*texts: str) -> list[dict[str, str]]:
    """Return alternating turns of human and gpt."""
    return [{"from": ("human", "gpt")[number % 2], "value": text} for number, text in enumerate(texts)]


def first(source: SftJSONLIterableDataset) -> Sample:
    return next(iter(source))


def plan(sample: Sample) -> list[Any]:
    """Return the plan as texts, those with loss in a list, and image sizes."""
    texts, images = iter(sample["text_ids_list"]), iter(sample["image_tensor_list"])
    found: list[Any] = []
    for item in sample["sequence_plan"]:
        assert item["enable_cfg"] == 0
        if item["type"] == "text":
            text = "".join(map(chr, next(texts)))
            found.append([text] if item["loss"] else text)
        else:
            found.append(tuple(next(images).shape[1:]))
    return found


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ({"conversations": turns(" hi ", " ho ")}, [" hi ", [" ho "]]),
        ({"image": "a.png", "conversations": turns("<image>\nwhat? ", "a cat")}, [(28, 28), "what?", ["a cat"]]),
        (
            {"image": ["a.png", "b.png"], "conversations": turns("one <image> two <image>", "y", "three", "z")},
            ["one", (28, 28), "two", (28, 56), ["y"], "three", ["z"]],
        ),
        (
            {"image": ["b.png", "a.png"], "conversations": turns("<image>", "y", "<image>", "z")},
            [(28, 56), ["y"], (28, 28), ["z"]],
        ),
        ({"conversations": turns("", "a", "b", "", "c", "d")}, [["a"], "b", "c", ["d"]]),
        ({"conversations": [{"from": "system", "value": "Be brief."}, *turns("a", "b")]}, ["Be brief.", "a", ["b"]]),
        (
            {"video": "clip/", "conversations": turns("see <video> now", "ok")},
            ["see", (28, 28), (28, 28), (28, 28), "now", ["ok"]],
        ),
        (
            {"video": "clip/", "conversations": turns("hi", "ho", "<video>", "ok")},
            ["hi", ["ho"], (28, 28), (28, 28), (28, 28), ["ok"]],
        ),
        ({"image": [], "conversations": turns("no image", "y")}, ["no image", ["y"]]),
    ],
)
def test_a_row_becomes_texts_and_images_in_reading_order(row: Row, wanted: list[Any], make: Make) -> None:
    sample = first(make([row], frames=3))
    assert plan(sample) == wanted
    tokens = sum(len("".join(text)) if isinstance(text, str | list) else text[0] * text[1] // 196 for text in wanted)
    assert sample["num_tokens"] == tokens


def test_an_absolute_path_or_uri_of_an_image_stands_for_itself(make: Make, tmp_path: Path) -> None:
    images = [f"{tmp_path}/a.png", f"file://{tmp_path}/b.png"]
    row = {"image": images, "conversations": turns("<image><image>", "y")}
    assert plan(first(make([row], folder="/elsewhere"))) == [(28, 28), (28, 56), ["y"]]


def test_the_folder_and_the_file_of_rows_may_be_uris(make: Make, tmp_path: Path) -> None:
    row = {"image": "a.png", "conversations": turns("<image>", "y")}
    source = make([row], folder=f"file://{tmp_path}", file=f"file://{tmp_path}/rows.jsonl")
    assert plan(first(source)) == [(28, 28), ["y"]]


def test_the_images_of_a_row_share_its_pixels(make: Make) -> None:
    source = make([{"image": ["b.png"] * 4, "conversations": turns("<image>" * 4, "y")}])
    source.transform = ImageTransform(56, 14, 14, max_pixels=56 * 28)
    assert plan(first(source))[:4] == [(14, 14)] * 4


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("{broken", "broken JSON"),
        ("", "broken JSON"),
        ("[1, 2]", "broken JSON"),
        ("3", "broken JSON"),
        ({"id": 3}, "no conversation"),
        ({"conversations": [{"from": "human"}]}, "malformed turn"),
        ({"conversations": [{"from": "user", "value": "hi"}]}, "unknown role"),
        ({"conversations": turns("no answer")}, "nothing to learn"),
        ({"conversations": turns("an empty answer", "")}, "nothing to learn"),
        ({"image": "a.png", "conversations": turns("no tag", "y")}, "tags do not match images"),
        ({"image": "a.png", "conversations": turns("<image><image>", "y")}, "tags do not match images"),
        ({"conversations": turns("<image>", "y")}, "tags do not match images"),
        ({"image": "a.png", "conversations": turns("hi", "<image>")}, "tags do not match images"),
        ({"video": "clip/", "conversations": turns("no tag", "y")}, "tags do not match images"),
        ({"video": "clip/", "conversations": turns("<video> <image>", "y")}, "tags do not match images"),
        ({"image": "none.png", "conversations": turns("<image>", "y")}, "missing image"),
        ({"image": None, "conversations": turns("<image>", "y")}, "missing image"),
        ({"image": "http://host/a.png", "conversations": turns("<image>", "y")}, "unreadable image"),
        ({"image": "", "conversations": turns("<image>", "y")}, "unreadable image"),
        ({"image": "page.jpg", "conversations": turns("<image>", "y")}, "unreadable image"),
        ({"video": "none/", "conversations": turns("<video>", "y")}, "missing video"),
        ({"video": "none.mp4", "conversations": turns("<video>", "y")}, "missing video"),
        ({"video": "page.jpg", "conversations": turns("<video>", "y")}, "unreadable video"),
    ],
)
def test_a_row_that_does_not_add_up_is_lost_under_its_own_reason(row: Row | str, reason: str, make: Make) -> None:
    source = make([row, GOOD], frames=3)
    assert [plan(sample) for sample in islice(iter(source), 2)] == [[["good"]]] * 2
    counts = source.ledger.counts["vlm"]
    assert list(counts) == [reason]


def test_a_video_without_a_frame_sampler_is_lost_under_its_own_reason(make: Make) -> None:
    source = make([{"video": "clip/", "conversations": turns("<video>", "y")}, GOOD])
    list(islice(iter(source), 2))
    assert list(source.ledger.counts["vlm"]) == ["video without frame sampler"]


def test_a_lost_row_is_named_by_its_file_and_line(make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = make([GOOD, "{broken", GOOD])
    list(islice(iter(source), 3))
    assert f"vlm: lost a sample, broken JSON [1 so far] {tmp_path}/rows.jsonl:2" in caplog.text


def test_images_are_not_decoded_before_they_are_needed(make: Make) -> None:
    sample = first(make([{"image": "half.jpg", "conversations": turns("<image>", "y")}]))
    assert sample["num_tokens"] == 4 * 4 + 1


def test_the_packer_hands_over_its_policy_and_its_generator(make: Make) -> None:
    source = make([{"image": "a.png", "conversations": turns("<image>", "y")}, GOOD], frames=3)
    rng = Randomness(5)
    source.adopt(rng, ImagePolicy(max_pixels=100))
    list(islice(iter(source), 2))
    assert list(source.ledger.counts["vlm"]) == ["image too large"]
    assert source.frame_sampler is not None
    assert source.frame_sampler.rng is rng


def numbered(count: int) -> list[Row]:
    return [{"id": number, "conversations": turns("", chr(65 + number))} for number in range(count)]


def answers(source: SftJSONLIterableDataset, count: int) -> str:
    return "".join(chr(sample["text_ids_list"][0][0]) for sample in islice(iter(source), count))


def test_a_line_is_a_path_and_its_number_the_position(make: Make) -> None:
    source = make(numbered(6))
    order = answers(source, 6)
    assert sorted(order) == list("ABCDEF")
    positions = [sample["data_indexes"]["data_indexes"] for sample in islice(iter(make(numbered(6))), 7)]
    assert positions == [0, 1, 2, 3, 4, 5, 0]


@pytest.mark.parametrize("stop", range(6))
def test_reading_goes_on_behind_any_line_twice(stop: int, make: Make) -> None:
    whole = answers(make(numbered(5)), 12)
    source = make(numbered(5))
    read = answers(source, stop)
    for step in (1, 11 - stop):
        state = json.loads(json.dumps(source.state_dict()))
        source = make(numbered(5))
        source.load_state_dict(state)
        read += answers(source, step)
    assert read == whole


def test_reading_starts_behind_a_given_line_in_the_first_pass(make: Make) -> None:
    whole = answers(make(numbered(5)), 5)
    assert answers(make(numbered(5), data_status=[2]), 7) == whole[3:] + whole


def test_only_the_first_lines_are_used(make: Make) -> None:
    assert sorted(answers(make(numbered(6), num_used_data=[3]), 3)) == ["A", "B", "C"]
    assert len(make(numbered(6), num_used_data=[3]).data_paths) == 3


def test_a_source_whose_rows_are_all_broken_is_an_error_with_reasons_and_lines(make: Make, tmp_path: Path) -> None:
    source = make(["{", "[", {"image": "none.png", "conversations": turns("<image>", "y")}])
    with pytest.raises(DataError) as error:
        first(source)
    assert "a whole pass over vlm gave no usable sample; lost: 2 x broken JSON (first: " in str(error.value)
    assert f"{tmp_path}/rows.jsonl:1" in str(error.value)
    assert f"1 x missing image (first: {tmp_path}/rows.jsonl:3 {tmp_path}/none.png)" in str(error.value)
