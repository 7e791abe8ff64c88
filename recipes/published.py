"""A published ``dataset:`` block as it stands: BAGEL's mapping of groups, or NeMo AutoModel's, with a ``_target_``."""

from collections.abc import Mapping
from typing import Any

from recipes.mistakes import ConfigError

_THEIRS, _OURS = "nemo_automodel.components.datasets.", "automodel_data."


def taken(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the run's plain values with what ``dataset`` says in ``data.dataset_config``; ``plain`` is not changed.

    Of ``validation.data``, groups that the block does not have go: they would be read without a transform.

    Raises:
        ConfigError: ``data`` is no packed mixture.
    """
    if "dataset_config" not in plain["data"]:
        raise ConfigError("dataset needs a packed mixture to stand in for: choose data=bagel")
    block = _values(plain["dataset"])
    data = plain["data"] | {"dataset_config": plain["data"]["dataset_config"] | block}
    validation = plain["validation"]
    if validation.get("data") is not None:
        heldout = _heldout(validation["data"].get("dataset_config", {}), block)
        validation = validation | {"data": validation["data"] | {"dataset_config": heldout}}
    return {**plain, "dataset": None, "data": data, "validation": validation}


def _values(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of ``BagelDatasetConfig`` that the block sets; one given as a file is not given inline too."""
    if "_target_" not in block:
        return {"grouped_datasets": dict(block)}
    inline = {key.removesuffix("_path"): None for key, value in block.items() if key.endswith("_path") and value}
    target = str(block["_target_"])
    ours = _OURS + target.removeprefix(_THEIRS) if target.startswith(_THEIRS) else target
    return {**inline, **block, "_target_": ours}


def _heldout(overlay: Mapping[str, Any], block: Mapping[str, Any]) -> dict[str, Any]:
    """Return the overlay for the block's own groups; its inline ``dataset_info`` wins over the block's file."""
    groups = block.get("grouped_datasets") or {}
    kept = {name: entry for name, entry in overlay.get("grouped_datasets", {}).items() if name in groups}
    rest = {key: value for key, value in overlay.items() if key != "grouped_datasets"}
    return (
        rest
        | ({"grouped_datasets": kept} if kept else {})
        | ({"dataset_info_path": None} if "dataset_info" in rest else {})
    )
