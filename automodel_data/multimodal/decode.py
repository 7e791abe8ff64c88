"""The images of a closed pack, decoded and resized in threads: each source once, however many towers see it."""

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from automodel_data.errors import SkipSample
from automodel_data.images import ImageBackend, ImageSource, Pixels
from automodel_data.multimodal.pack_builder import SampleLayout
from automodel_data.multimodal.plan import PlannedImage

Resized = dict[PlannedImage, np.ndarray]
"""uint8 [H, W, 3] of each picture, at its planned size."""


@dataclass(frozen=True, eq=False, slots=True)
class DecodeJob:
    """Pictures of one sample whose sources share their decoding: one thread makes them all."""

    layout: SampleLayout
    pictures: Sequence[PlannedImage]

    def run(self, backend: ImageBackend) -> Resized | SkipSample:
        """Decode every source once and resize it for every use; return why where one is broken."""

        @cache
        def decoded(source: ImageSource) -> Pixels:
            return source.decode(backend)

        @cache
        def resized(source: ImageSource, height: int, width: int) -> np.ndarray:
            return backend.resize(decoded(source), height, width)

        try:
            return {picture: resized(picture.source, picture.height, picture.width) for picture in self.pictures}
        except SkipSample as error:
            return error


@dataclass(eq=False, slots=True)
class DecodedPack:
    """The pixels of a pack's images, and what is wrong with the samples that have a broken one."""

    pixels: Resized = field(default_factory=dict)
    broken: dict[SampleLayout, SkipSample] = field(default_factory=dict)


def plan_jobs(layouts: Sequence[SampleLayout]) -> list[DecodeJob]:
    """Return the jobs that decode the images of ``layouts``, in pack order."""
    jobs: list[DecodeJob] = []
    for layout in layouts:
        groups: dict[object, list[PlannedImage]] = {}
        for placed in layout.images:
            if isinstance(placed.picture, PlannedImage):
                groups.setdefault(placed.picture.source.group, []).append(placed.picture)
        jobs += [DecodeJob(layout, pictures) for pictures in groups.values()]
    return jobs


def decode_pack(layouts: Sequence[SampleLayout], backend: ImageBackend, pool: Executor) -> DecodedPack:
    """Run all jobs of a pack; of a sample with several broken images the first one counts."""
    pack = DecodedPack()
    jobs = plan_jobs(layouts)
    for job, result in zip(jobs, pool.map(lambda job: job.run(backend), jobs), strict=True):
        if isinstance(result, SkipSample):
            pack.broken.setdefault(job.layout, result)
        else:
            pack.pixels |= result
    return pack
