"""One dataset of a group, looked at alone: does it open, are its columns right, can its rows be used, do they fit."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from automodel_data.errors import DataError
from automodel_data.images import ImagePolicy
from automodel_data.multimodal.checks import read_groups
from automodel_data.multimodal.config import BagelDatasetConfig
from automodel_data.multimodal.datasets import SftJSONLIterableDataset, T2IIterableDataset
from automodel_data.multimodal.distributed_iterable import DistributedIterableDataset
from automodel_data.multimodal.groups import GroupConfig
from automodel_data.multimodal.interleave import ParquetStandardIterableDataset
from automodel_data.multimodal.parquet_utils import get_parquet_data_paths
from automodel_data.placement import Placement
from automodel_data.randomness import Randomness
from recipes.validate.columns import Footer, Unreadable, expected_columns, read_footers, wrong_columns
from recipes.validate.dialect import OURS
from recipes.validate.findings import Check, Finding, problem, warning
from recipes.validate.rows import Rows, look_at_rows


@dataclass(frozen=True, kw_only=True, slots=True)
class Dataset:
    """One entry of ``dataset_info``: ``group`` is its group's config with this dataset alone."""

    split: str
    group: GroupConfig
    config: BagelDatasetConfig

    @property
    def name(self) -> str:
        return f"{self.split}/{self.group.name}/{self.group.dataset_names[0]}"

    @property
    def longest(self) -> int:
        """The most tokens of a sample that is packed; one of a mandatory group must be below the limit."""
        return self.config.max_num_tokens_per_sample - self.group.is_mandatory

    @property
    def used(self) -> int | None:
        """The entry of ``num_used_data``."""
        return None if self.group.num_used_data is None else self.group.num_used_data[0]

    def build(self, tokenizer: Any) -> DistributedIterableDataset:
        """Open the source, for one reader that has all paths."""
        source = self.group.build(self.config.resolved_dataset_info, tokenizer, Placement(), None).source
        policy = ImagePolicy(exif_orientation=self.config.exif_orientation, max_pixels=self.config.max_image_pixels)
        source.adopt(Randomness(self.config.data_seed), policy)
        return source

    def files(self) -> list[str]:
        """List the parquet files, as often as they are used."""
        entry = self.config.resolved_dataset_info[self.group.name][self.group.dataset_names[0]]
        return get_parquet_data_paths([entry["data_dir"]], [self.used])


@dataclass(kw_only=True, slots=True)
class SourceReport:
    """What is in a dataset; ``rows`` is None where nobody can tell without reading them all."""

    name: str
    group: str
    opened: bool = False
    paths: int = 0
    rows: int | None = None
    sample: Rows = field(default_factory=Rows)
    too_long: int = 0
    findings: list[Finding] = field(default_factory=list)


def datasets(split: str, config: BagelDatasetConfig) -> Iterator[Dataset]:
    """Yield every dataset of every group."""
    for group in read_groups(config):
        for number, name in enumerate(group.dataset_names):
            used = None if group.num_used_data is None else [group.num_used_data[number]]
            yield Dataset(split=split, group=replace(group, dataset_names=[name], num_used_data=used), config=config)


def look_at(dataset: Dataset, tokenizer: Any, limit: int | None, max_lost: float) -> SourceReport:
    """Open a dataset and look at ``limit`` of its rows (None: all)."""
    report = SourceReport(name=dataset.name, group=dataset.group.name)
    try:
        source = dataset.build(tokenizer)
        report.opened, report.paths = True, len(source.data_paths)
        row_groups = _look_at_files(report, dataset, source)
        if not any(found.check in (Check.COLUMNS, Check.ROW_GROUPS) for found in report.findings):
            report.sample = look_at_rows(source, row_groups, limit)
            report.findings += _judge_rows(report, dataset, source, max_lost)
    except DataError as error:
        report.findings.append(problem(Check.ROWS if report.opened else Check.OPEN, dataset.name, str(error)))
    return report


def _look_at_files(report: SourceReport, dataset: Dataset, source: DistributedIterableDataset) -> Mapping[str, int]:
    """Count rows, check files and columns; return the row groups of every parquet file."""
    match source:
        case SftJSONLIterableDataset():
            report.rows = report.paths
            report.findings += _fewer_than_asked(dataset, report.paths, "lines", "all are used")
        case T2IIterableDataset() | ParquetStandardIterableDataset():
            files = dataset.files()
            footers = read_footers(list(dict.fromkeys(files)))
            readable = {footer.path: footer for footer in footers if isinstance(footer, Footer)}
            report.rows = sum(sum(readable[path].row_groups) for path in files if path in readable)
            report.findings += _judge_footers(dataset, source, footers)
            report.findings += _missing_row_groups(dataset, source, readable)
            return {path: len(footer.row_groups) for path, footer in readable.items()}
    return {}


def _judge_footers(
    dataset: Dataset, source: DistributedIterableDataset, footers: Sequence[Footer | Unreadable]
) -> Iterator[Finding]:
    broken = [footer for footer in footers if isinstance(footer, Unreadable)]
    if broken:
        line = f"{len(broken)} of {len(footers)} files cannot be read, first {broken[0].path}: {broken[0].error}"
        yield problem(Check.FILES, dataset.name, line)
    readable = [footer for footer in footers if isinstance(footer, Footer)]
    for line in wrong_columns(readable, expected_columns(source)):
        yield problem(Check.COLUMNS, dataset.name, line)
    yield from _fewer_than_asked(dataset, len(footers), "files", "they are repeated")


def _missing_row_groups(
    dataset: Dataset, source: DistributedIterableDataset, readable: Mapping[str, Footer]
) -> Iterator[Finding]:
    """Find what ``parquet_info`` promises and the files do not have."""
    if not isinstance(source, ParquetStandardIterableDataset):
        return
    counts = {path: len(footer.row_groups) for path, footer in readable.items()}
    missing = [(path, group) for path, group in source.data_paths if path in counts and group >= counts[path]]
    if missing:
        path, group = missing[0]
        line = (
            f"parquet_info names {len(missing)} row groups that are not there, first number {group} of {path}, which "
            f"has {counts[path]}; correct it, or leave parquet_info_path out: then the footers are read"
        )
        yield problem(Check.ROW_GROUPS, dataset.name, line)


def _fewer_than_asked(dataset: Dataset, there: int, what: str, so: str) -> Iterator[Finding]:
    if dataset.used is not None and dataset.used > there:
        yield warning(
            Check.FILES, dataset.name, f"num_used_data asks for {dataset.used} {what}, there are {there}; {so}"
        )


def _judge_rows(
    report: SourceReport, dataset: Dataset, source: DistributedIterableDataset, max_lost: float
) -> Iterator[Finding]:
    rows = report.sample
    for form, those in rows.foreign.items():
        line = f"{those.rows} of {rows.looked_at} rows looked at have {form}; first {those.first}. {OURS}"
        yield problem(Check.DIALECT, dataset.name, line)
    if rows.num_lost:
        tell = problem if rows.num_lost > max_lost * rows.looked_at else warning
        line = f"{rows.num_lost} of {rows.looked_at} rows looked at cannot be used; "
        yield tell(Check.ROWS, dataset.name, line + source.ledger.describe(source.dataset_name))
    report.too_long = rows.longer_than(dataset.longest)
    if report.too_long:
        tell = problem if report.too_long == len(rows.lengths) else warning
        yield tell(Check.BUDGET, dataset.name, _too_long_line(report, dataset))


def _too_long_line(report: SourceReport, dataset: Dataset) -> str:
    rows, limit = report.sample, dataset.config.max_num_tokens_per_sample
    return (
        f"{report.too_long} of {len(rows.lengths)} samples have more than {dataset.longest} tokens and will be "
        f"dropped, the longest has {rows.most_tokens}; raise packing.max_num_tokens_per_sample ({limit}), or make "
        "images smaller"
    )
