"""The floor: what it takes to decode and resize the images of some packs, and to do nothing else."""

from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from automodel_data.images import EncodedImage, image_backend
from automodel_data.multimodal.config import BagelDatasetConfig
from automodel_data.multimodal.decode import DecodeJob, plan_jobs
from recipes.bench.seconds import Seconds, Stopwatch


@dataclass(frozen=True, kw_only=True, slots=True)
class Floor:
    """Seconds for the images alone, and how many files they are: each once, however many towers see it."""

    seconds: Seconds
    images: int


def measure_floor(config: BagelDatasetConfig, runtime: Mapping[str, Any], skip: int, packs: int) -> Floor:
    """Plan the packs behind the first ``skip``, then decode and resize their images with the config's threads."""
    planned = islice(config.build(**runtime).planned_packs(), skip, skip + packs)
    jobs_by_pack = [plan_jobs(pack.layouts) for pack in planned]
    run = partial(DecodeJob.run, backend=image_backend(config.image_backend))
    with ThreadPoolExecutor(config.decode_threads) as pool, Stopwatch() as stopwatch:
        for jobs in jobs_by_pack:
            deque(pool.map(run, jobs), maxlen=0)
    sources = {picture.source for jobs in jobs_by_pack for job in jobs for picture in job.pictures}
    return Floor(seconds=stopwatch.seconds, images=sum(isinstance(source, EncodedImage) for source in sources))
