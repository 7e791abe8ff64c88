"""Frames of a clip: a folder of images, or a video file decoded with decord or PyAV."""

import importlib.util
import io
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from PIL import Image

from automodel_data.errors import DataError, SkipSample
from automodel_data.images import ImageBackend, ImagePolicy, ImageSource, PillowBackend, Pixels
from automodel_data.randomness import Randomness
from automodel_data.storage import is_uri, list_files, read_bytes

_FRAME_NUMBER = re.compile(r"_(\d+)\.jpe?g$", re.IGNORECASE)
_SAMPLED_BY_RATE = re.compile(r"fps(\d+\.?\d*|\.\d+)")


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
        num_frames: Frames wanted (``rand`` and ``middle``); a shorter clip's last frame is repeated.
        vlen: Frames in the clip.
        sample: ``rand``: one drawn from each equal interval; ``middle``: the interval's centre; ``fps<r>``: r a second.
        fix_start: Offset into each interval, instead of a draw or the centre.
        input_fps: Frame rate of the clip (``fps<r>``).
        max_num_frames: Most frames for ``fps<r>``, -1 for any number.
        rng: Where draws come from; a fresh one where omitted.

    Raises:
        ValueError: there is no such sampling.
    """
    if rate := _rate(sample):
        seconds = np.arange(0.5 / rate, vlen / input_fps + 0.5 / rate, 1 / rate)
        indices = [index for index in np.around(seconds * input_fps).astype(int).tolist() if index < vlen]
        return indices[:max_num_frames] if max_num_frames > 0 else indices
    count = min(num_frames, vlen)
    edges = np.linspace(0, vlen, count + 1).astype(int).tolist()
    intervals = [(first, end - 1) for first, end in itertools.pairwise(edges)]
    if fix_start is not None:
        indices = [first + fix_start for first, _ in intervals]
    elif sample == "middle":
        indices = [(first + last) // 2 for first, last in intervals]
    else:
        rng = rng or Randomness(int(np.random.SeedSequence().entropy) % 2**32)  # type: ignore[arg-type]
        if any(first >= last for first, last in intervals):
            indices = rng.subset(vlen, count)
        else:
            indices = [first + rng.choose(last - first) for first, last in intervals]
    return indices + indices[-1:] * (num_frames - count)


def _rate(sample: str) -> float | None:
    """Return the frames a second of ``fps<rate>``, None for ``rand`` and ``middle``."""
    if sample in ("rand", "middle"):
        return None
    match = _SAMPLED_BY_RATE.fullmatch(sample)
    if match is None or float(match[1]) == 0:
        raise ValueError(f"sample is {sample!r}; it must be 'rand', 'middle' or 'fps<rate>' with a rate above 0")
    return float(match[1])


@dataclass(eq=False)
class VideoClip:
    """The chosen frames of one video file; decoded together, once, when the first of them is needed.

    ``content`` is the file's bytes, or the path of a local file.
    """

    content: bytes | str = field(repr=False)
    origin: str
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
        return [Image.fromarray(frame) for frame in decode(_openable(self.content), self.origin, self.indices)]


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


def _openable(content: bytes | str) -> io.BytesIO | str:
    return io.BytesIO(content) if isinstance(content, bytes) else content


def _decode_with_decord(file: io.BytesIO | str, origin: str, indices: Sequence[int]) -> list[np.ndarray]:
    import decord  # no wheel on every platform

    try:
        reader = decord.VideoReader(file, num_threads=1)
        return list(reader.get_batch(list(indices)).asnumpy())
    except (decord.DECORDError, RuntimeError, IndexError) as error:
        raise SkipSample("undecodable video", f"{origin}: {str(error).splitlines()[-1]}") from error


def _decode_with_pyav(file: io.BytesIO | str, origin: str, indices: Sequence[int]) -> list[np.ndarray]:
    import av  # slow to import, and only videos need it

    wanted = set(indices)
    found: dict[int, np.ndarray] = {}
    try:
        with av.open(file, "r", metadata_errors="replace") as container:
            for number, frame in enumerate(container.decode(video=0)):
                if number in wanted:
                    found[number] = frame.to_ndarray(format="rgb24")
                if len(found) == len(wanted):
                    break
    except (av.FFmpegError, IndexError) as error:
        raise SkipSample("undecodable video", f"{origin}: {error}") from error
    if len(found) < len(wanted):
        raise SkipSample("undecodable video", f"{origin}: frames {sorted(wanted - found.keys())} are missing")
    return [found[index] for index in indices]


@dataclass(frozen=True, slots=True)
class _VideoHeader:
    frames: int
    fps: float
    width: int
    height: int


def _read_header(content: bytes | str, origin: str) -> _VideoHeader:
    import av

    try:
        with av.open(_openable(content), "r", metadata_errors="replace") as container:
            stream = container.streams.video[0]
            if stream.codec_context is None:
                raise SkipSample("unreadable video", f"{origin}: its codec is unknown")
            frames = stream.frames or sum(packet.size > 0 for packet in container.demux(stream))
            header = _VideoHeader(frames, float(stream.average_rate or 1), stream.width, stream.height)
    except FileNotFoundError as error:
        raise SkipSample("missing video", origin) from error
    except (av.FFmpegError, IndexError) as error:
        raise SkipSample("unreadable video", f"{origin}: {error}") from error
    if header.frames == 0 or header.width == 0 or header.height == 0:
        raise SkipSample("unreadable video", f"{origin}: it has no picture")
    return header


def _fetch(path: str) -> bytes:
    try:
        return read_bytes(path)
    except OSError as error:
        raise SkipSample("missing video", f"{path}: {error}") from error


@dataclass(slots=True)
class FrameSampler:
    """Choose the frames of a clip; draws the number of frames, then the frames.

    Args:
        max_num_frames: Most frames; -1 for as many as ``min_num_frames``.
        min_num_frames: Fewest frames.
        sample: ``rand``, ``middle`` or ``fps<rate>``.

    Raises:
        ValueError: the bounds contradict each other, or there is no such sampling.
    """

    max_num_frames: int = -1
    min_num_frames: int = 8
    sample: str = "rand"
    rng: Randomness = field(default_factory=lambda: Randomness(0), init=False, repr=False, compare=False)
    images: ImagePolicy = field(default_factory=ImagePolicy, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.min_num_frames < 1:
            raise ValueError(f"min_num_frames ({self.min_num_frames}) must be at least 1")
        if 0 <= self.max_num_frames < self.min_num_frames:
            raise ValueError(
                f"max_num_frames ({self.max_num_frames}) must not be below min_num_frames ({self.min_num_frames})"
            )
        _rate(self.sample)

    def __call__(self, file_name: str) -> list[Image.Image]:
        """Return the chosen frames, RGB (``plan`` also tells which they are)."""
        backend = PillowBackend()
        return [source.decode(backend) for source in self.plan(file_name)[0]]  # type: ignore[misc]  # Pillow's images

    def plan(self, file_name: str) -> tuple[list[ImageSource], list[int]]:
        """Choose frames, and their indices, without decoding; a name ending in ``/`` is a folder of ``..._<n>.jpg``.

        Raises:
            SkipSample: the clip is missing, unreadable, or too short to give a frame.
        """
        sources, indices = self._plan_folder(file_name) if file_name.endswith("/") else self._plan_file(file_name)
        if not indices:
            raise SkipSample("video too short", f"{file_name} gives no frame by {self.sample!r}")
        return sources, indices

    def _plan_file(self, path: str) -> tuple[list[ImageSource], list[int]]:
        content = _fetch(path) if is_uri(path) else path
        header = _read_header(content, path)
        indices = self._choose(self._draw_count(), header.frames, header.fps)
        clip = VideoClip(content, path, indices, header.width, header.height)
        return [ClipFrame(clip, number) for number in range(len(indices))], indices

    def _plan_folder(self, folder: str) -> tuple[list[ImageSource], list[int]]:
        try:
            files = list_files(folder)
        except DataError as error:
            raise SkipSample("missing video", str(error)) from error
        numbered = [(int(match[1]), path) for path in files if (match := _FRAME_NUMBER.search(path))]
        if not numbered:
            raise SkipSample("missing video", f"{folder} holds no ..._<n>.jpg")
        paths = [path for _, path in sorted(numbered)]
        count = self._draw_count()
        indices = list(range(len(paths))) if len(paths) <= count else self._choose(count, len(paths), fps=1)
        return [self.images.open(paths[index], paths[index]) for index in indices], indices

    def _draw_count(self) -> int:
        return self.rng.integer(self.min_num_frames, max(self.min_num_frames, self.max_num_frames))

    def _choose(self, count: int, vlen: int, fps: float) -> list[int]:
        return get_frame_indices(count, vlen, self.sample, None, fps, self.max_num_frames, self.rng)
