from random import Random

import av
import numpy as np
import pytest
from PIL import Image

from recipes.demo_data.scenes import GROUND_RGB, Split
from recipes.demo_data.video import FRAMES, Clip, Direction, draw_clip, write_frames, write_mp4


def first_and_last_place(frames: list[Image.Image], clip: Clip) -> tuple[np.ndarray, np.ndarray]:
    """Return the (x, y) middle of whatever differs from the ground."""
    places = []
    for frame in (frames[0], frames[-1]):
        distance = np.abs(np.asarray(frame, dtype=int) - GROUND_RGB[clip.scene.ground]).sum(axis=2)
        rows, columns = np.nonzero(distance > 120)
        places.append(np.array([columns.mean() / clip.width, rows.mean() / clip.height]))
    return places[0], places[1]


def moves(frames: list[Image.Image], clip: Clip) -> str:
    first, last = first_and_last_place(frames, clip)
    step = last - first
    if abs(step[0]) > abs(step[1]):
        return "to the right" if step[0] > 0 else "to the left"
    return "down" if step[1] > 0 else "up"


def clip_that_moves(direction: Direction) -> Clip:
    return next(
        clip for number in range(99) if (clip := draw_clip(Random(number), Split.TRAIN, 128)).direction is direction
    )


@pytest.mark.parametrize("direction", Direction)
def test_a_folder_of_frames_moves_as_the_answer_says(direction, tmp_path):
    clip = clip_that_moves(direction)
    write_frames(clip, tmp_path / "clip")
    frames = [Image.open(tmp_path / "clip" / f"frame_{number}.jpg").convert("RGB") for number in range(FRAMES)]
    assert clip.turns[1].answer == f"It moves {moves(frames, clip)}."


@pytest.mark.parametrize("direction", Direction)
def test_a_video_moves_as_the_answer_says(direction, tmp_path):
    clip = clip_that_moves(direction)
    write_mp4(clip, tmp_path / "clip.mp4")
    with av.open(tmp_path / "clip.mp4") as container:
        frames = [frame.to_image() for frame in container.decode(video=0)]
    assert len(frames) == FRAMES
    assert frames[0].size == (clip.width, clip.height)
    assert clip.turns[1].answer == f"It moves {moves(frames, clip)}."


def test_a_video_is_the_same_bytes_every_time(tmp_path):
    clip = clip_that_moves(Direction.UP)
    write_mp4(clip, tmp_path / "one.mp4")
    write_mp4(clip, tmp_path / "two.mp4")
    assert (tmp_path / "one.mp4").read_bytes() == (tmp_path / "two.mp4").read_bytes()


@pytest.mark.parametrize("split", Split)
def test_a_clip_belongs_to_its_split(split):
    assert all(draw_clip(Random(number), split, 128).scene.split is split for number in range(20))
