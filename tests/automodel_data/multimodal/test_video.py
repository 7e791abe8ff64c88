"""Frames are chosen as published, without decoding, from folders and from real video files."""

import itertools
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from automodel_data.errors import SkipSample
from automodel_data.images import ImagePolicy, PillowBackend, TorchvisionBackend
from automodel_data.multimodal import video
from automodel_data.multimodal.video import FrameSampler, get_frame_indices
from automodel_data.randomness import Randomness

# which frames ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "frames", "fps", "indices"),
    [
        (1, 30, 10, [5, 15, 25]),
        (2, 30, 10, [2, 8, 12, 18, 22, 28]),
        (0.5, 100, 10, [10, 30, 50, 70, 90]),
        (3, 25, 24, [4, 12, 20]),
        (3, 25, 29.97, [5, 15]),
        (1, 3, 10, []),
    ],
)
def test_a_rate_walks_the_clip_by_the_published_steps(rate: float, frames: int, fps: float, indices: list[int]) -> None:
    assert get_frame_indices(8, frames, sample=f"fps{rate}", input_fps=fps) == indices


def test_a_rate_stops_at_the_most_frames() -> None:
    assert get_frame_indices(8, 30, sample="fps1", input_fps=10, max_num_frames=2) == [5, 15]


@pytest.mark.parametrize(
    ("count", "frames", "indices"),
    [(5, 33, [2, 9, 15, 22, 29]), (7, 10, [0, 1, 2, 4, 5, 7, 8]), (3, 2, [0, 1, 1]), (1, 1, [0])],
)
def test_the_middle_is_each_intervals_centre(count: int, frames: int, indices: list[int]) -> None:
    assert get_frame_indices(count, frames, sample="middle") == indices


@pytest.mark.parametrize(("start", "indices"), [(0, [0, 6, 13, 19, 26]), (1, [1, 7, 14, 20, 27])])
def test_a_fixed_start_is_an_offset_into_each_interval(start: int, indices: list[int]) -> None:
    assert get_frame_indices(5, 33, sample="middle", fix_start=start) == indices


def test_one_frame_is_drawn_from_each_interval_without_its_end() -> None:
    python = random.Random(3)
    edges = np.linspace(0, 33, 6).astype(int)
    wanted = [python.choice(range(a, b - 1)) for a, b in itertools.pairwise(edges)]
    assert get_frame_indices(5, 33, rng=Randomness(3)) == wanted


def test_where_an_interval_is_empty_frames_are_drawn_from_the_whole_clip() -> None:
    wanted = sorted(np.random.RandomState(3).permutation(10)[:7].tolist())
    assert get_frame_indices(7, 10, rng=Randomness(3)) == wanted


def test_a_clip_that_is_too_short_repeats_its_last_frame() -> None:
    assert get_frame_indices(12, 10, rng=Randomness(3)) == [*range(10), 9, 9]


@pytest.mark.parametrize("sample", ["first", "fps", "fps0", "fps-1", "fpsx", ""])
def test_an_unknown_sampling_is_refused_with_the_known_ones(sample: str) -> None:
    with pytest.raises(ValueError, match=f"sample is '{sample}'; it must be 'rand', 'middle' or 'fps<rate>'"):
        FrameSampler(max_num_frames=4, min_num_frames=2, sample=sample)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [((4, 6), r"max_num_frames \(4\) must not be below min_num_frames \(6\)"), ((4, 0), r"min_num_frames \(0\)")],
)
def test_bounds_that_contradict_each_other_are_refused(bounds: tuple[int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FrameSampler(*bounds)


# folders -----------------------------------------------------------------------------------------------------------


def frame(number: int) -> Image.Image:
    return Image.new("RGB", (64, 48), (number * 8,) * 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of 20 frames, whose names do not sort as their numbers do, beside other files."""
    folder = tmp_path_factory.mktemp("clip")
    for number in range(20):
        frame(number).save(folder / f"frame_{number}.{'jpeg' if number == 7 else 'jpg'}", quality=95)
    (folder / "notes.txt").write_text("no frame")
    (folder / "cover.jpg").write_bytes(b"")
    return folder


def levels(frames: list[Image.Image]) -> list[int]:
    """Return the frames' numbers by their grey."""
    return [round(float(np.asarray(one).mean()) / 8) for one in frames]


def sampler(least: int, most: int, sample: str = "rand", seed: int = 3) -> FrameSampler:
    made = FrameSampler(max_num_frames=most, min_num_frames=least, sample=sample)
    made.rng = Randomness(seed)
    return made


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_folder_gives_frames_by_their_number(scheme: str, folder: Path) -> None:
    assert levels(sampler(6, 6, "middle")(f"{scheme}{folder}/")) == [1, 4, 7, 11, 14, 17]


def test_a_folder_with_no_more_frames_than_drawn_is_used_whole(folder: Path) -> None:
    assert levels(sampler(25, 30)(f"{folder}/")) == list(range(20))


def test_the_number_of_frames_is_drawn_first_then_the_frames(folder: Path) -> None:
    numpy, python = np.random.RandomState(5), random.Random(5)
    count = int(numpy.randint(4, 9))
    edges = np.linspace(0, 20, count + 1).astype(int)
    wanted = [python.choice(range(a, b - 1)) for a, b in itertools.pairwise(edges)]
    sources, indices = sampler(4, 8, seed=5).plan(f"{folder}/")
    assert (indices, len(sources)) == (wanted, count)


def test_frames_of_a_folder_are_opened_by_the_policy(folder: Path) -> None:
    made = sampler(4, 4)
    made.images = ImagePolicy(max_pixels=100)
    with pytest.raises(SkipSample, match="image too large"):
        made.plan(f"{folder}/")


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_a_folder_without_frames_is_skipped(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SkipSample, match=f"missing video: .*{name}"):
        sampler(2, 4).plan(f"{tmp_path}/{name}/")


# files -------------------------------------------------------------------------------------------------------------


def encode_video(path: Path, pictures: Sequence[Image.Image]) -> Path:
    """Encode pictures at 10 a second, with the index of the file in front."""
    with av.open(str(path), "w", options={"movflags": "faststart"}) as container:
        stream: Any = container.add_stream("mpeg4", rate=10, options={"g": "5"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for picture in pictures:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.asarray(picture), format="rgb24")))
        container.mux(stream.encode())
    return path


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return encode_video(tmp_path_factory.mktemp("video") / "clip.mp4", [frame(number) for number in range(30)])


@pytest.fixture(params=["decord", "pyav"])
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Decode with decord where it is installed, then as if it were not."""
    if request.param == "decord":
        pytest.importorskip("decord")
    else:
        monkeypatch.setattr(video.importlib.util, "find_spec", lambda name: None)
    return request.param


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_video_gives_the_frames_that_were_chosen(scheme: str, clip: Path, decoder: str) -> None:
    made = sampler(6, 6, "middle")
    sources, indices = made.plan(f"{scheme}{clip}")
    assert indices == [2, 7, 12, 17, 22, 27]
    assert {(source.width, source.height) for source in sources} == {(64, 48)}
    assert levels(made(f"{scheme}{clip}")) == indices


def test_names_inside_a_video_may_be_in_any_encoding(clip: Path, tmp_path: Path, decoder: str) -> None:
    path = tmp_path / "latin.mp4"
    path.write_bytes(clip.read_bytes().replace(b"isom", b"is\xa9m", 1).replace(b"VideoHandler", b"Vid\xe9oHandler"))
    assert sampler(3, 3, "middle").plan(str(path))[1] == [4, 14, 24]
    assert len(sampler(3, 3)(str(path))) == 3


def test_a_video_walked_by_a_rate_counts_its_own_frame_rate(clip: Path) -> None:
    assert sampler(2, 9, "fps2").plan(str(clip))[1] == [2, 8, 12, 18, 22, 28]


def test_a_video_shorter_than_the_draw_repeats_its_last_frame(tmp_path: Path, decoder: str) -> None:
    path = encode_video(tmp_path / "short.mp4", [frame(number) for number in range(3)])
    assert levels(sampler(6, 6)(str(path))) == [0, 1, 2, 2, 2, 2]


def test_a_video_too_short_for_its_rate_is_skipped(tmp_path: Path) -> None:
    path = encode_video(tmp_path / "short.mp4", [frame(number) for number in range(3)])
    with pytest.raises(SkipSample, match=r"video too short: .*short.mp4 gives no frame by 'fps1'"):
        sampler(2, 4, "fps1").plan(str(path))


def test_frames_of_a_video_suit_either_backend(clip: Path) -> None:
    (source, *_), _ = sampler(4, 4, "middle").plan(str(clip))
    by_pillow, by_torchvision = PillowBackend(), TorchvisionBackend()
    wanted = by_pillow.resize(source.decode(by_pillow), 28, 42).astype(int)
    got = by_torchvision.resize(source.decode(by_torchvision), 28, 42).astype(int)
    assert np.abs(wanted - got).max() <= 3


@pytest.mark.parametrize("content", [b"", b"<html>404</html>", b"\0\0\0\x18ftypmp42" + bytes(100)])
def test_a_file_that_is_no_video_is_skipped(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "broken.mp4").write_bytes(content)
    with pytest.raises(SkipSample, match=r"unreadable video: .*broken.mp4"):
        sampler(2, 4).plan(str(tmp_path / "broken.mp4"))


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_missing_video_is_skipped(scheme: str, tmp_path: Path) -> None:
    with pytest.raises(SkipSample, match=r"missing video: .*none.mp4"):
        sampler(2, 4).plan(f"{scheme}{tmp_path}/none.mp4")


def test_a_video_that_breaks_off_is_skipped_when_it_is_decoded(
    tmp_path: Path, decoder: str, photo: Callable[..., Image.Image]
) -> None:
    path = encode_video(tmp_path / "clip.mp4", [photo(64, 48, number) for number in range(20)])
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    sources, _ = sampler(8, 8, "middle").plan(str(path))
    with pytest.raises(SkipSample, match="undecodable video"):
        [source.decode(PillowBackend()) for source in sources]
