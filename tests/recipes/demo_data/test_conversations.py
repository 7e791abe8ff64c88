import json
from pathlib import Path

import pytest
from PIL import Image

from recipes.demo_data.config import DEMO
from recipes.demo_data.flaws import Source, broken_rows
from recipes.demo_data.questions import ABOUT_NONE


def sound_rows(demo_root: Path, split: str) -> list[dict]:
    broken = broken_rows(Source.VLM, DEMO.vlm_rows) if split == "train" else {}
    rows = [json.loads(line) for line in (demo_root / split / "vlm" / "rows.jsonl").read_text().splitlines()]
    return [row for row in rows if row["id"] not in broken]


def images_of(row: dict) -> list[str]:
    return [row["image"]] if isinstance(row.get("image"), str) else row.get("image", [])


def turns_of(row: dict) -> list[tuple[str, str]]:
    talk = [turn["value"] for turn in row["conversations"] if turn["from"] != "system"]
    return list(zip(talk[::2], talk[1::2], strict=True))


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_tags_and_media_match(demo_root, split):
    for row in sound_rows(demo_root, split):
        text = " ".join(question for question, _ in turns_of(row))
        assert text.count("<image>") == len(images_of(row))
        assert text.count("<video>") == ("video" in row)


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_speakers_take_turns_after_an_optional_system_line(demo_root, split):
    rows = sound_rows(demo_root, split)
    speakers = [[turn["from"] for turn in row["conversations"]] for row in rows]
    for row in speakers:
        rest = row[1:] if row[0] == "system" else row
        assert rest == ["human", "gpt"] * (len(rest) // 2)
    assert any(row[0] == "system" for row in speakers) == (split == "train")


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_answers_about_one_picture_are_true_of_the_file(demo_root, split, look, answer):
    rows = [row for row in sound_rows(demo_root, split) if len(images_of(row)) == 1]
    assert len(rows) > len(sound_rows(demo_root, split)) // 2
    for row in rows:
        view = look((demo_root / split / "vlm/images" / row["image"]).read_bytes())
        for question, said in turns_of(row):
            assert answer(view, question.removeprefix("<image>\n")) == said, row["id"]


def test_there_are_rows_about_two_pictures_about_clips_and_about_none(demo_root):
    rows = sound_rows(demo_root, "train")
    assert sum(len(images_of(row)) == 2 for row in rows) >= 20
    texts_only = [row for row in rows if not images_of(row) and "video" not in row]
    assert len(texts_only) >= 5
    known = {(turn.question, turn.answer) for turn in ABOUT_NONE}
    assert all(turn in known for row in texts_only for turn in turns_of(row))


@pytest.mark.parametrize(("split", "folders"), [("train", 6), ("heldout", 1)])
def test_there_are_a_few_folders_of_frames_and_one_real_video(demo_root, split, folders):
    media = demo_root / split / "vlm" / "images"
    videos = [row["video"] for row in sound_rows(demo_root, split) if "video" in row]
    assert sum(name.endswith("/") and (media / name / "frame_0.jpg").is_file() for name in videos) == folders
    assert sum(name.endswith(".mp4") and (media / name).is_file() for name in videos) == 1
    assert len(videos) == folders + 1


def test_every_named_picture_can_be_opened(demo_root):
    for row in sound_rows(demo_root, "train"):
        for name in images_of(row):
            Image.open(demo_root / "train/vlm/images" / name).load()
