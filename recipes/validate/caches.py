"""A cache of latents: its metadata, its buckets against the ranks, and a sample of its payloads."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from automodel_data.diffusion.base_dataset import BaseMultiresolutionDataset
from automodel_data.diffusion.bucket_plan import BucketPlan
from automodel_data.diffusion.image_edit_dataset import ImageEditDataloaderConfig
from automodel_data.diffusion.payload import PayloadError
from automodel_data.diffusion.text_to_image_dataset import TextToImageDataloaderConfig
from automodel_data.errors import DataError
from recipes.validate.findings import Check, Finding, problem, warning
from recipes.validate.rows import spread

CacheConfig = ImageEditDataloaderConfig | TextToImageDataloaderConfig


@dataclass(kw_only=True, slots=True)
class CacheReport:
    """A cache as all ranks share it; ``buckets`` by name, ``lost`` the payloads that cannot be used, by reason."""

    name: str
    cache_dir: str
    items: int = 0
    buckets: list[BucketPlan] = field(default_factory=list)
    batches_per_pass: int = 0
    looked_at: int = 0
    lost: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheLook:
    """How to look at a cache: for how many ranks and which batches, at how many payloads (None: all)."""

    batch_size: int
    world_size: int
    limit: int | None
    max_lost: float


def look_at_cache(split: str, data: CacheConfig, look: CacheLook) -> CacheReport:
    """Read a cache's metadata, deal out its buckets and read a sample of its payloads."""
    report = CacheReport(name=split, cache_dir=data.cache_dir)
    try:
        alone = replace(data, num_workers=0)
        build = alone.build(dp_rank=0, dp_world_size=look.world_size, batch_size=look.batch_size)
    except DataError as error:
        report.findings.append(problem(Check.OPEN, split, str(error)))
        return report
    dataset = build.sampler.dataset
    report.items, report.buckets, report.batches_per_pass = len(dataset), build.sampler.plans, len(build.sampler)
    report.findings += [*_judge_buckets(report), *_look_at_payloads(report, dataset, look)]
    return report


def _judge_buckets(report: CacheReport) -> Iterator[Finding]:
    unseen = sum(bucket.lost for bucket in report.buckets)
    if unseen:
        line = f"{unseen} of {report.items} samples are seen by no rank in a pass; data.bucket_policy=pad uses them all"
        yield warning(Check.SHARES, report.name, line)


def _look_at_payloads(report: CacheReport, dataset: BaseMultiresolutionDataset, look: CacheLook) -> Iterator[Finding]:
    everything = range(len(dataset))
    indices = everything if look.limit is None else spread(everything, look.limit)
    lost: Counter[str] = Counter()
    first = ""
    for index in indices:
        try:
            dataset[index]
        except PayloadError as error:
            first = first or str(error)
            lost[error.reason] += 1
    report.looked_at, report.lost = len(indices), dict(lost)
    if lost:
        tell = problem if lost.total() > look.max_lost * len(indices) else warning
        line = f"{lost.total()} of {len(indices)} payloads looked at cannot be used; first {first}"
        yield tell(Check.ROWS, report.name, line)
