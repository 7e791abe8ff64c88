"""The held-out counterpart of a run's data: the same, but for the keys that ``validation.data`` gives."""

import logging
from collections.abc import Mapping
from typing import Any

from recipes.nodes import overlaid

log = logging.getLogger(__name__)


def heldout(data: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return ``data`` with ``overlay`` over it; None where there are no held-out rows.

    Of a packed mixture, groups that are not trained on or have no held-out rows are left out.
    """
    merged = overlaid(data, overlay)
    if "cache_dir" in merged and merged["cache_dir"] is None:
        return None
    trained, rows = _of(data, "grouped_datasets"), _of(overlay, "dataset_info")
    if trained is None or rows is None:  # a latent cache, or files that the dataset itself reads
        return merged
    trained = [name for name, entry in trained.items() if entry is not None]
    groups = _of(merged, "grouped_datasets")
    kept = {name: groups[name] for name in trained if groups[name] is not None and rows.get(name)}
    if missing := [name for name in trained if name not in kept]:
        log.info("no held-out rows of %s: not validated", ", ".join(missing))
    packed = merged["dataset_config"] | {"grouped_datasets": kept, "dataset_info": rows}  # not merged with trained ones
    return merged | {"dataset_config": packed} if kept else None


def _of(data: Mapping[str, Any], key: str) -> Any:
    return data.get("dataset_config", {}).get(key)
