"""The floor: what it takes to decode and resize the images of some packs, and to do nothing else."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from automodel_data.images import EncodedImage, ImageBackend, ImageSource, image_backend
from automodel_data.multimodal.config import BagelDatasetConfig
from automodel_data.multimodal.pack_builder import OpenPack
from automodel_data.multimodal.plan import PlannedImage
from recipes.bench.seconds import Seconds, Stopwatch

Job = dict[ImageSource, set[tuple[int, int]]]
"""Images that are decoded one after another, each with the sizes (height, width) that it is needed at."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Floor:
    """Seconds for the images alone, and how many files they are: each once, however many towers see it."""

    seconds: Seconds
    images: int


def measure_floor(config: BagelDatasetConfig, runtime: Mapping[str, Any], skip: int, packs: int) -> Floor:
    """Plan the packs behind the first ``skip``, then decode and resize their images with the config's threads."""
    planned = islice(config.build(**runtime).planned_packs(), skip, skip + packs)
    jobs_by_pack = [_jobs(pack) for pack in planned]
    decode = partial(_decode_and_resize, backend=image_backend(config.image_backend))
    with ThreadPoolExecutor(config.decode_threads) as pool, Stopwatch() as stopwatch:
        for jobs in jobs_by_pack:
            list(pool.map(decode, jobs))
    sources = [source for jobs in jobs_by_pack for job in jobs for source in job]
    return Floor(seconds=stopwatch.seconds, images=sum(isinstance(source, EncodedImage) for source in sources))


def _jobs(pack: OpenPack) -> list[Job]:
    jobs: dict[object, Job] = {}
    for placed in (image for layout in pack.layouts for image in layout.images):
        picture = placed.picture
        if isinstance(picture, PlannedImage):
            sizes = jobs.setdefault(picture.source.group, {}).setdefault(picture.source, set())
            sizes.add((picture.height, picture.width))
    return list(jobs.values())


def _decode_and_resize(job: Job, backend: ImageBackend) -> None:
    for source, sizes in job.items():
        pixels = source.decode(backend)
        for height, width in sizes:
            backend.resize(pixels, height, width)
