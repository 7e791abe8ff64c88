"""From a run's config to the report on its data, by the kind of data."""

import logging
from collections.abc import Iterator
from typing import Any

from automodel_data.diffusion.image_edit_dataset import ImageEditDataloaderConfig
from automodel_data.diffusion.text_to_image_dataset import TextToImageDataloaderConfig
from automodel_data.errors import DataError
from automodel_data.multimodal.config import BagelDatasetConfig
from automodel_data.multimodal.loader import BagelDataloaderConfig
from recipes.mistakes import ConfigError
from recipes.validate.caches import CacheLook, look_at_cache
from recipes.validate.config import ValidateRun
from recipes.validate.findings import Check, problem, warning
from recipes.validate.packs import draw_packs, estimate_passes, judge_packs
from recipes.validate.report import Report
from recipes.validate.shares import share_out
from recipes.validate.sources import SourceReport, datasets, look_at

log = logging.getLogger(__name__)

TRAIN, HELDOUT = "train", "heldout"


def validate(run: ValidateRun) -> Report:
    """Look at the training data and the held-out data of ``run``.

    Raises:
        ConfigError: There is data of a kind that nobody knows how to look into.
    """
    if run.sources.prepare is not None:
        run.sources.prepare()
    match run.data:
        case BagelDataloaderConfig(dataset_config=BagelDatasetConfig()):
            return _validate_packed(run)
        case ImageEditDataloaderConfig() | TextToImageDataloaderConfig():
            return _validate_caches(run)
    raise ConfigError(f"data ({type(run.data).__name__}): validate.py cannot look into data of this kind")


def _splits(run: ValidateRun) -> Iterator[tuple[str, Any]]:
    yield TRAIN, run.data
    if run.validation.data is not None:
        yield HELDOUT, run.validation.data


def _validate_packed(run: ValidateRun) -> Report:
    report, tokenizer = Report(name=run.name), run.task.load_tokenizer(run.model)
    for split, data in _splits(run):
        looked_at: list[SourceReport] = []
        for dataset in datasets(split, data.dataset_config):
            log.info("looking at %s", dataset.name)
            looked_at.append(look_at(dataset, tokenizer, run.validate.row_limit, run.validate.max_lost))
        report.sources += looked_at
        report.shares += share_out(split, looked_at, run.world_size, data.num_workers)
        if split == TRAIN:
            _draw(report, looked_at, run, tokenizer)
    return report


def _draw(report: Report, sources: list[SourceReport], run: ValidateRun, tokenizer: Any) -> None:
    """Draw packs from the training data, where every dataset of it gives samples."""
    barren = [source.name for source in sources if not source.sample.lengths]
    if barren:
        line = f"no packs were drawn, since {', '.join(barren)} gave no usable row"
        report.packs_findings.append(warning(Check.PACKS, TRAIN, line))
        return
    log.info("drawing %d packs", run.validate.packs)
    try:
        report.packs = draw_packs(run.data, tokenizer, run.train.seed, run.validate.packs)
    except DataError as error:
        report.packs_findings.append(problem(Check.PACKS, TRAIN, str(error)))
        return
    estimate_passes(report.packs, _rows_by_group(sources), run.world_size * run.train.accumulation_steps)
    report.packs_findings += judge_packs(report.packs, TRAIN, run.validate.max_lost)


def _rows_by_group(sources: list[SourceReport]) -> dict[str, int | None]:
    """Add up rows; a group with a dataset of unknown size has an unknown size."""
    rows: dict[str, int | None] = {}
    for source in sources:
        so_far = rows.get(source.group, 0)
        rows[source.group] = None if source.rows is None or so_far is None else so_far + source.rows
    return rows


def _validate_caches(run: ValidateRun) -> Report:
    look = CacheLook(
        batch_size=run.task.batch_size,
        world_size=run.world_size,
        limit=run.validate.row_limit,
        max_lost=run.validate.max_lost,
    )
    return Report(name=run.name, caches=[look_at_cache(split, data, look) for split, data in _splits(run)])
