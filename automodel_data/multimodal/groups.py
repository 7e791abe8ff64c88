"""Groups as the mixture's YAML describes them: their typed config, its checks, and the source each builds."""

import difflib
import importlib
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from automodel_data.errors import DataError
from automodel_data.multimodal.datasets import DATASET_REGISTRY
from automodel_data.multimodal.distributed_iterable import DistributedIterableDataset
from automodel_data.multimodal.mixture import Group
from automodel_data.multimodal.transforms import ImageTransform
from automodel_data.multimodal.video import FrameSampler
from automodel_data.placement import Placement


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupConfig:
    """One group of ``grouped_datasets``.

    Args:
        name: Key in ``grouped_datasets`` and in ``dataset_info``; it also names the dataset class in the registry.
        dataset_names: Keys below the group in ``dataset_info``.
        dataset_class: Another class, by registry name or dotted path.
        weight: Share of the mixture.
        is_mandatory: Every pack starts with a sample of this group.
        num_used_data: For each dataset how many files (JSONL: lines) to use; all where omitted.
        image_transform_args: Arguments of ``ImageTransform`` for the group's images.
        vit_image_transform_args: The same for the understanding tower, in groups that have both.
        frame_sampler_args: Arguments of ``FrameSampler``.
        options: All other keys, handed to the dataset class.
    """

    name: str
    dataset_names: Sequence[str]
    dataset_class: str | None = None
    weight: float = 1.0
    is_mandatory: bool = False
    num_used_data: Sequence[int] | None = None
    image_transform_args: Mapping[str, Any] | None = None
    vit_image_transform_args: Mapping[str, Any] | None = None
    frame_sampler_args: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_mapping(cls, name: str, mapping: Mapping[str, Any]) -> "GroupConfig":
        """Read one entry of ``grouped_datasets``.

        Raises:
            DataError: ``dataset_names`` is missing or the weight is not positive.
        """
        if "dataset_names" not in mapping:
            raise DataError(
                f"grouped_datasets.{name} has no dataset_names; list the keys of dataset_info.{name} to use"
            )
        known = {entry.name for entry in fields(cls)} - {"name", "options"}
        options = {key: value for key, value in mapping.items() if key not in known}
        config = cls(name=name, options=options, **{key: mapping[key] for key in known & mapping.keys()})
        if config.weight <= 0:
            raise DataError(
                f"grouped_datasets.{name}.weight is {config.weight}; it must be above 0, or leave the group out"
            )
        return config

    @property
    def dataset_type(self) -> type[DistributedIterableDataset]:
        """The dataset class.

        Raises:
            DataError: there is none of that name.
        """
        wanted = self.dataset_class or self.name
        if wanted in DATASET_REGISTRY:
            return DATASET_REGISTRY[wanted]
        module, _, attribute = wanted.rpartition(".")
        if module:
            try:
                return getattr(importlib.import_module(module), attribute)
            except (ImportError, AttributeError) as error:
                raise DataError(
                    f"grouped_datasets.{self.name}.dataset_class: cannot import {wanted!r}: {error}"
                ) from error
        raise DataError(
            f"grouped_datasets.{self.name}: no dataset class of that name; the registry has "
            f"{sorted(DATASET_REGISTRY)}, or name yours by dataset_class: package.module.Class"
        )

    def transform(self, key: str) -> ImageTransform | None:
        """Build one of the group's image transforms; None where its arguments are omitted."""
        arguments = getattr(self, key)
        return None if arguments is None else _build(ImageTransform, arguments, f"grouped_datasets.{self.name}.{key}")


def build_group(
    config: GroupConfig,
    dataset_info: Mapping[str, Mapping[str, Mapping[str, Any]]],
    tokenizer: Any,
    placement: Placement,
    data_status: Any,
) -> Group:
    """Build a group's source.

    Raises:
        DataError: ``dataset_info`` does not know its datasets, or an argument of its class is missing or unknown.
    """
    info = _dataset_info(config, dataset_info)
    offered = {
        "dataset_name": config.name,
        "tokenizer": tokenizer,
        "transform": config.transform("image_transform_args"),
        "vit_transform": config.transform("vit_image_transform_args"),
        "frame_sampler": _frame_sampler(config),
        "data_dir_list": [entry["data_dir"] for entry in info],
        "jsonl_path_list": [entry["jsonl_path"] for entry in info if "jsonl_path" in entry],
        "num_used_data": _counts(config),
        "parquet_info": _parquet_info(info),
        "local_rank": placement.rank,
        "world_size": placement.world_size,
        "num_workers": placement.num_workers,
        "data_status": data_status,
    }
    kind = config.dataset_type
    accepted = inspect.signature(kind).parameters
    for key in config.options:
        if key not in accepted:
            raise DataError(f"grouped_datasets.{config.name}.{key}: unknown key{_nearest(key, accepted)}")
    if "vit_transform" in accepted and offered["vit_transform"] is None:
        raise DataError(f"grouped_datasets.{config.name}.vit_image_transform_args is missing; {kind.__name__} needs it")
    arguments = {key: value for key, value in offered.items() if key in accepted} | dict(config.options)
    return Group(config.name, kind(**arguments), config.weight, config.is_mandatory)


def _dataset_info(
    config: GroupConfig, dataset_info: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> list[Mapping[str, Any]]:
    if config.name not in dataset_info:
        raise DataError(f"dataset_info has no group {config.name!r}; it has {sorted(dataset_info)}")
    known = dataset_info[config.name]
    for name in config.dataset_names:
        if name not in known:
            raise DataError(f"dataset_info.{config.name} has no dataset {name!r}{_nearest(name, known)}")
        if "data_dir" not in known[name]:
            raise DataError(f"dataset_info.{config.name}.{name} has no data_dir")
    return [known[name] for name in config.dataset_names]


def _counts(config: GroupConfig) -> Sequence[int | None]:
    if config.num_used_data is None:
        return [None] * len(config.dataset_names)
    if len(config.num_used_data) != len(config.dataset_names):
        raise DataError(
            f"grouped_datasets.{config.name}: num_used_data has {len(config.num_used_data)} entries for "
            f"{len(config.dataset_names)} dataset_names; it needs one each"
        )
    return config.num_used_data


def _frame_sampler(config: GroupConfig) -> FrameSampler | None:
    if config.frame_sampler_args is None:
        return None
    return _build(FrameSampler, config.frame_sampler_args, f"grouped_datasets.{config.name}.frame_sampler_args")


def _parquet_info(info: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for entry in info:
        if "parquet_info_path" in entry:
            merged |= json.loads(Path(entry["parquet_info_path"]).read_text(encoding="utf-8"))
    return merged


def _build(kind: type, arguments: Mapping[str, Any], where: str) -> Any:
    accepted = inspect.signature(kind).parameters
    for key in arguments:
        if key not in accepted:
            raise DataError(f"{where}.{key}: unknown key{_nearest(key, accepted)}")
    missing = [name for name, p in accepted.items() if p.default is inspect.Parameter.empty and name not in arguments]
    if missing:
        raise DataError(f"{where} lacks {', '.join(missing)}")
    return kind(**arguments)


def _nearest(key: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {sorted(known)}"
