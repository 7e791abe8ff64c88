"""Frames of a clip: a folder of images, or a video file decoded with decord or PyAV."""

import importlib.util
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from PIL import Image

from automodel_data.errors import SkipSample
from automodel_data.images import ImageBackend, ImagePolicy, ImageSource, PillowBackend, Pixels
from automodel_data.randomness import Randomness

_FRAME_NUMBER = re.compile(r"_(\d+)\.jpe?g$", re.IGNORECASE)


def get_frame_indices(
    num_frames: int,
    vlen: int,
    sample: str = "rand",
    fix_start: int | None = None,
    input_fps: float = 1,
    max_num_frames: int = -1,
    rng: Randomness | None = None,
) -> list[int]:
    """Choose frames of a clip of ``vlen`` frames (the scheme of InternVL).

    Args:
        num_frames: Frames wanted (``rand`` and ``middle``).
        vlen: Frames in the clip.
        sample: ``rand``: one drawn from each equal interval; ``middle``: the interval's centre; ``fps<r>``: r a second.
        fix_start: Offset into each interval instead of a draw.
        input_fps: Frame rate of the clip (``fps<r>``).
        max_num_frames: Most frames for ``fps<r>``, -1 for any number.
        rng: Where draws come from; a fresh one where omitted.

    Raises:
        ValueError: there is no such sampling.
    """
    if sample.startswith("fps"):
        step = input_fps / float(sample[3:])
        indices = [int(i) for i in np.arange(step / 2, vlen, step)]
        return indices[:max_num_frames] if max_num_frames > 0 else indices
    count = min(num_frames, vlen)
    edges = np.linspace(0, vlen, count + 1).astype(int)
    intervals = [(int(a), int(b) - 1) for a, b in itertools.pairwise(edges)]
    if sample == "middle":
        return [(first + last) // 2 for first, last in intervals]
    if sample != "rand":
        raise ValueError(f"sample is {sample!r}; it must be 'rand', 'middle' or 'fps<rate>'")
    if fix_start is not None:
        return [first + fix_start for first, _ in intervals]
    rng = rng or Randomness(int(np.random.SeedSequence().entropy) % 2**32)  # type: ignore[arg-type]
    if any(first >= last for first, last in intervals):
        return rng.subset(vlen, count)
    return [first + rng.choose(last - first) for first, last in intervals]


@dataclass(eq=False)
class VideoClip:
    """The chosen frames of one video file; decoded together, once, when the first of them is needed."""

    path: str
    indices: Sequence[int]
    width: int
    height: int

    @cached_property
    def frames(self) -> list[Image.Image]:
        """The frames, RGB.

        Raises:
            SkipSample: the file is truncated or broken.
        """
        decode = _decode_with_decord if importlib.util.find_spec("decord") else _decode_with_pyav
        return [Image.fromarray(frame) for frame in decode(self.path, self.indices)]


@dataclass(frozen=True, eq=False, slots=True)
class ClipFrame:
    """One frame of a clip, undecoded."""

    clip: VideoClip
    number: int

    @property
    def width(self) -> int:
        return self.clip.width

    @property
    def height(self) -> int:
        return self.clip.height

    @property
    def group(self) -> object:
        return self.clip

    def decode(self, backend: ImageBackend) -> Pixels:
        return self.clip.frames[self.number]


def _decode_with_decord(path: str, indices: Sequence[int]) -> list[np.ndarray]:
    import decord  # no wheel on every platform

    try:
        reader = decord.VideoReader(path, num_threads=1)
        return list(reader.get_batch(list(indices)).asnumpy())
    except (decord.DECORDError, RuntimeError, IndexError) as error:
        raise SkipSample("undecodable video", f"{path}: {str(error).splitlines()[-1]}") from error


def _decode_with_pyav(path: str, indices: Sequence[int]) -> list[np.ndarray]:
    import av  # slow to import, and only videos need it

    wanted = set(indices)
    found: dict[int, np.ndarray] = {}
    try:
        with av.open(path) as container:
            for number, frame in enumerate(container.decode(video=0)):
                if number in wanted:
                    found[number] = frame.to_ndarray(format="rgb24")
                if len(found) == len(wanted):
                    break
    except (av.FFmpegError, IndexError) as error:
        raise SkipSample("undecodable video", f"{path}: {error}") from error
    if len(found) < len(wanted):
        raise SkipSample("undecodable video", f"{path}: frames {sorted(wanted - found.keys())} are missing")
    return [found[index] for index in indices]


@dataclass(frozen=True, slots=True)
class _VideoHeader:
    frames: int
    fps: float
    width: int
    height: int


def _read_header(path: str) -> _VideoHeader:
    import av

    try:
        with av.open(path) as container:
            stream = container.streams.video[0]
            frames = stream.frames or sum(packet.size > 0 for packet in container.demux(stream))
            return _VideoHeader(frames, float(stream.average_rate or 1), stream.width, stream.height)
    except FileNotFoundError as error:
        raise SkipSample("missing video", path) from error
    except (av.FFmpegError, IndexError) as error:
        raise SkipSample("unreadable video", f"{path}: {error}") from error


@dataclass(slots=True)
class FrameSampler:
    """Choose the frames of a clip; draws the number of frames, then the frames.

    Args:
        max_num_frames: Most frames.
        min_num_frames: Fewest frames.
        sample: ``rand``, ``middle`` or ``fps<rate>``.
    """

    max_num_frames: int = -1
    min_num_frames: int = 8
    sample: str = "rand"
    rng: Randomness = field(default_factory=lambda: Randomness(0), repr=False, compare=False)
    images: ImagePolicy = field(default_factory=ImagePolicy, repr=False, compare=False)

    def __call__(self, file_name: str) -> tuple[list[Image.Image], list[int]]:
        """Return the chosen frames, RGB, and their indices."""
        sources, indices = self.plan(file_name)
        backend = PillowBackend()
        return [source.decode(backend) for source in sources], indices  # type: ignore[misc]  # Pillow gives images

    def plan(self, file_name: str) -> tuple[list[ImageSource], list[int]]:
        """Choose frames without decoding them; a name ending in ``/`` is a folder of ``..._<n>.jpg``.

        Raises:
            SkipSample: the clip is missing or unreadable.
        """
        if file_name.endswith("/"):
            return self._plan_folder(file_name)
        header = _read_header(file_name)
        indices = self._choose(self._draw_count(), header.frames, header.fps)
        clip = VideoClip(file_name, indices, header.width, header.height)
        return [ClipFrame(clip, number) for number in range(len(indices))], indices

    def _plan_folder(self, folder: str) -> tuple[list[ImageSource], list[int]]:
        numbered = [
            (int(match[1]), path) for path in Path(folder).glob("*") if (match := _FRAME_NUMBER.search(path.name))
        ]
        if not numbered:
            raise SkipSample("missing video", f"{folder} holds no ..._<n>.jpg")
        paths = [str(path) for _, path in sorted(numbered)]
        count = self._draw_count()
        indices = list(range(len(paths))) if len(paths) <= count else self._choose(count, len(paths), fps=1)
        return [self.images.open(paths[index], paths[index]) for index in indices], indices

    def _draw_count(self) -> int:
        return self.rng.integer(self.min_num_frames, max(self.min_num_frames, self.max_num_frames))

    def _choose(self, count: int, vlen: int, fps: float) -> list[int]:
        return get_frame_indices(count, vlen, self.sample, None, fps, self.max_num_frames, self.rng)
