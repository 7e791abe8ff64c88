"""Clips of one moving shape: as a folder of frames, and as a real video."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from random import Random

import av
from PIL import Image

from recipes.demo_data.questions import Turn
from recipes.demo_data.scenes import GROUND_RGB, Scene, Shape, Split, draw_scene, stamp

FRAMES = 12
FRAMES_PER_SECOND = 4
OVERSAMPLING = 3


class Direction(StrEnum):
    RIGHT = "to the right"
    LEFT = "to the left"
    UP = "up"
    DOWN = "down"


@dataclass(frozen=True, kw_only=True, slots=True)
class Clip:
    """The only shape of ``scene`` crosses the picture in ``FRAMES`` frames; edges in pixels, even."""

    scene: Scene
    direction: Direction
    width: int
    height: int

    @property
    def shape(self) -> Shape:
        return self.scene.shapes[0]

    @property
    def turns(self) -> list[Turn]:
        """Return true questions and answers about the clip."""
        name = self.shape.name
        return [
            Turn(question="What moves?", answer=f"A {self.shape.size} {name}."),
            Turn(question=f"Which way does the {name} move?", answer=f"It moves {self.direction}."),
        ]

    def paint(self, frame: int) -> Image.Image:
        """Paint one frame."""
        way = 0.18 + 0.64 * frame / (FRAMES - 1)
        match self.direction:
            case Direction.RIGHT:
                middle = (way, 0.5)
            case Direction.LEFT:
                middle = (1 - way, 0.5)
            case Direction.DOWN:
                middle = (0.5, way)
            case Direction.UP:
                middle = (0.5, 1 - way)
        size = (self.width * OVERSAMPLING, self.height * OVERSAMPLING)
        canvas = Image.new("RGB", size, GROUND_RGB[self.scene.ground])
        stamp(canvas, self.shape, middle)
        return canvas.reduce(OVERSAMPLING)


def draw_clip(rng: Random, split: Split, edge: int) -> Clip:
    """Draw a clip whose longer edge is at most ``edge`` pixels."""
    long, short = edge // 2 * 2, edge * 3 // 8 * 2
    width, height = rng.choice([(long, short), (short, long), (short, short)])
    scene = draw_scene(rng, split, max_shapes=1)
    return Clip(scene=scene, direction=rng.choice(list(Direction)), width=width, height=height)


def write_frames(clip: Clip, folder: Path) -> None:
    """Write the clip as ``frame_<n>.jpg`` files."""
    folder.mkdir(parents=True)
    for frame in range(FRAMES):
        clip.paint(frame).save(folder / f"frame_{frame}.jpg", quality=90, subsampling=0)


def write_mp4(clip: Clip, path: Path) -> None:
    """Encode the clip as H.264; one thread and no encoder's name, so that the bytes are always the same."""
    with av.open(path, "w", options={"fflags": "+bitexact"}) as container:
        stream = container.add_stream("h264", rate=FRAMES_PER_SECOND)
        stream.width, stream.height, stream.pix_fmt = clip.width, clip.height, "yuv420p"
        stream.codec_context.thread_count = 1
        stream.codec_context.options = {"crf": "18", "x264-params": "threads=1"}
        for frame in range(FRAMES):
            container.mux(stream.encode(av.VideoFrame.from_image(clip.paint(frame))))
        container.mux(stream.encode())
