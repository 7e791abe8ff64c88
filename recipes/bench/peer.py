"""What another implementation of the documented interface needs in order to read the same rows."""

import inspect
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra.utils import get_object

from automodel_data.multimodal.datasets import DATASET_REGISTRY
from automodel_data.multimodal.interleave import ParquetStandardIterableDataset
from automodel_data.multimodal.parquet_utils import read_footers
from automodel_data.storage import list_files
from recipes.mistakes import ConfigError

log = logging.getLogger(__name__)


def known_by_peer(ours: Mapping[str, Any], peer: Mapping[str, Any]) -> dict[str, Any]:
    """Return our dataset node for the peer's class: the same values, without fields that it lacks, under its own.

    Raises:
        ConfigError: The class is not installed.
    """
    target = peer["_target_"]
    try:
        parameters = inspect.signature(get_object(target)).parameters
    except ImportError as error:
        raise ConfigError(f"peer._target_ ({target}) cannot be imported: {error}") from error
    unknown = ours.keys() - parameters.keys() - {"_target_"}
    if unknown:
        log.info("the peer runs without %s: %s does not know them", ", ".join(sorted(unknown)), target)
    return {name: value for name, value in ours.items() if name not in unknown} | dict(peer)


def with_row_groups(dataset_info: Mapping[str, Mapping[str, Any]], directory: Path) -> dict[str, Any]:
    """Return ``dataset_info`` with a written list of row groups for every dataset that is shared out by row group.

    The published implementation asks for ``parquet_info_path``; ours reads the files' footers.
    """
    return {
        group: {name: _listed(entry, directory / f"{group}.{name}.json") for name, entry in entries.items()}
        if issubclass(DATASET_REGISTRY[group], ParquetStandardIterableDataset)
        else entries
        for group, entries in dataset_info.items()
    }


def _listed(entry: Mapping[str, Any], target: Path) -> Mapping[str, Any]:
    if "parquet_info_path" in entry:
        return entry
    row_groups = read_footers(list_files(entry["data_dir"], ".parquet")).row_groups
    info = {path: {"num_row_groups": count} for path, count in row_groups.items()}
    target.write_text(json.dumps(info), encoding="utf-8")
    return {**entry, "parquet_info_path": str(target)}
