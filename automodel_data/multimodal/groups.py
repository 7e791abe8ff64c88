"""Groups as the mixture's YAML describes them: their typed config, its checks, and the source each builds."""

import difflib
import importlib
import inspect
import json
import math
from collections.abc import Iterable, Mapping, Sequence
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

_SET_BY_THE_RUN = {
    "dataset_name": "the group's key",
    "tokenizer": "task.tokenizer",
    "transform": "image_transform_args",
    "vit_transform": "vit_image_transform_args",
    "frame_sampler": "frame_sampler_args",
    "data_dir_list": "dataset_info",
    "jsonl_path_list": "dataset_info",
    "parquet_info": "dataset_info",
    "local_rank": "the launch",
    "world_size": "the launch",
    "num_workers": "the loader's num_workers",
    "data_status": "the resume state",
}
"""Arguments of dataset classes that a group cannot give, and what gives them."""


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
    num_used_data: Sequence[int | None] | None = None
    image_transform_args: Mapping[str, Any] | None = None
    vit_image_transform_args: Mapping[str, Any] | None = None
    frame_sampler_args: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_mapping(cls, name: str, mapping: Mapping[str, Any]) -> "GroupConfig":
        """Read one entry of ``grouped_datasets``.

        Raises:
            DataError: ``dataset_names`` is missing, or a value is none that its key can have.
        """
        if not isinstance(mapping, Mapping) or "dataset_names" not in mapping:
            raise DataError(
                f"grouped_datasets.{name} has no dataset_names; list the keys of dataset_info.{name} to use"
            )
        known = cls.keys()
        options = {key: value for key, value in mapping.items() if key not in known}
        config = cls(name=name, options=options, **{key: mapping[key] for key in known & mapping.keys()})
        config._check_values()
        return config

    @classmethod
    def keys(cls) -> set[str]:
        """Return the keys of an entry that are not options of its dataset class."""
        return {entry.name for entry in fields(cls)} - {"name", "options"}

    def _check_values(self) -> None:
        where, names, counts = f"grouped_datasets.{self.name}", self.dataset_names, self.num_used_data
        if not _is_list(names) or not names:
            raise DataError(
                f"{where}.dataset_names is {names!r}; it must be a list of keys of dataset_info.{self.name}"
            )
        if not _is_number(self.weight) or not 0 < self.weight < math.inf:
            raise DataError(
                f"{where}.weight is {self.weight!r}; it must be a number above 0, or set the group to null"
                " to leave it out"
            )
        if not isinstance(self.is_mandatory, bool):
            raise DataError(f"{where}.is_mandatory is {self.is_mandatory!r}; it must be true or false")
        for key in ("image_transform_args", "vit_image_transform_args", "frame_sampler_args"):
            arguments = getattr(self, key)
            if arguments is not None and not isinstance(arguments, Mapping):
                raise DataError(f"{where}.{key} is {arguments!r}; it must be a mapping of arguments")
        if counts is None:
            return
        if not _is_list(counts) or len(counts) != len(names):
            raise DataError(
                f"{where}.num_used_data is {counts!r}; it must be a list with one number for each of the {len(names)} "
                "dataset_names"
            )
        if any(count is not None and (not isinstance(count, int) or count < 1) for count in counts):
            raise DataError(f"{where}.num_used_data is {counts!r}; every number must be whole and at least 1, or null")

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
        if not module:
            raise DataError(
                f"grouped_datasets.{self.name}: no dataset class of that name; the registry has "
                f"{sorted(DATASET_REGISTRY)}, or name yours by dataset_class: package.module.Class"
            )
        try:
            kind = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise DataError(f"grouped_datasets.{self.name}.dataset_class: cannot import {wanted!r}: {error}") from error
        if not (isinstance(kind, type) and issubclass(kind, DistributedIterableDataset)):
            raise DataError(
                f"grouped_datasets.{self.name}.dataset_class: {wanted!r} is no DistributedIterableDataset; derive "
                "it from one, e.g. from ParquetStandardIterableDataset"
            )
        return kind

    def transform(self, key: str) -> ImageTransform | None:
        """Build one of the group's image transforms; None where its arguments are omitted."""
        return self._build(ImageTransform, key)

    def _build(self, kind: type, key: str) -> Any:
        arguments = getattr(self, key)
        return None if arguments is None else _build(kind, arguments, f"grouped_datasets.{self.name}.{key}")

    def check(self, dataset_info: Mapping[str, Any]) -> None:
        """Refuse what the dataset class cannot be built with; no data is touched.

        Raises:
            DataError: an option is unknown, an argument is missing, or ``dataset_info`` does not know a dataset.
        """
        kind, where = self.dataset_type, f"grouped_datasets.{self.name}"
        accepted = inspect.signature(kind).parameters
        for key in self.options:
            if key in _SET_BY_THE_RUN:
                raise DataError(f"{where}.{key}: this is set by {_SET_BY_THE_RUN[key]}, not by the group; take it out")
            if key not in accepted:
                raise DataError(f"{where}.{key}: unknown key{_nearest(key, self.keys() | accepted.keys())}")
        for parameter, key in (("transform", "image_transform_args"), ("vit_transform", "vit_image_transform_args")):
            if _is_required(accepted, parameter) and getattr(self, key) is None:
                raise DataError(f"{where}.{key} is missing; {kind.__name__} needs it")
        self._build(FrameSampler, "frame_sampler_args")
        needed = ["data_dir", "jsonl_path"] if _is_required(accepted, "jsonl_path_list") else ["data_dir"]
        for name, entry in zip(self.dataset_names, self._entries(dataset_info), strict=True):
            for key in needed:
                if not isinstance(entry, Mapping) or key not in entry:
                    raise DataError(f"dataset_info.{self.name}.{name} has no {key}; {kind.__name__} needs it")

    def build(self, dataset_info: Mapping[str, Any], tokenizer: Any, placement: Placement, data_status: Any) -> Group:
        """Build the group's source; ``check`` refuses what would fail here."""
        entries = self._entries(dataset_info)
        offered = {
            "dataset_name": self.name,
            "tokenizer": tokenizer,
            "transform": self.transform("image_transform_args"),
            "vit_transform": self.transform("vit_image_transform_args"),
            "frame_sampler": self._build(FrameSampler, "frame_sampler_args"),
            "data_dir_list": [entry["data_dir"] for entry in entries],
            "jsonl_path_list": [entry["jsonl_path"] for entry in entries if "jsonl_path" in entry],
            "num_used_data": self.num_used_data or [None] * len(entries),
            "parquet_info": self._parquet_info(entries),
            "local_rank": placement.rank,
            "world_size": placement.world_size,
            "num_workers": placement.num_workers,
            "data_status": data_status,
        }
        kind = self.dataset_type
        accepted = inspect.signature(kind).parameters
        arguments = {key: value for key, value in offered.items() if key in accepted} | dict(self.options)
        return Group(self.name, kind(**arguments), self.weight, self.is_mandatory)

    def _entries(self, dataset_info: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        if self.name not in dataset_info:
            raise DataError(f"dataset_info has no group {self.name!r}{_nearest(self.name, dataset_info)}")
        known = dataset_info[self.name]
        if not isinstance(known, Mapping):
            raise DataError(f"dataset_info.{self.name} is {known!r}; it must be a mapping of datasets")
        for name in self.dataset_names:
            if name not in known:
                raise DataError(f"dataset_info.{self.name} has no dataset {name!r}{_nearest(name, known)}")
        return [known[name] for name in self.dataset_names]

    def _parquet_info(self, entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        paths = [entry["parquet_info_path"] for entry in entries if "parquet_info_path" in entry]
        if paths and len(paths) < len(entries):
            raise DataError(
                f"dataset_info.{self.name}: {len(paths)} of {len(entries)} datasets have a parquet_info_path; give it "
                "for all of them or for none (then the files' footers are read)"
            )
        merged: dict[str, Any] = {}
        for path in paths:
            try:
                merged |= json.loads(Path(path).read_text(encoding="utf-8"))
            except (OSError, ValueError, TypeError) as error:
                raise DataError(f"dataset_info.{self.name}: cannot read parquet_info_path {path!r}: {error}") from error
        return merged


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_required(accepted: Mapping[str, inspect.Parameter], name: str) -> bool:
    return name in accepted and accepted[name].default is inspect.Parameter.empty


def _build(kind: type, arguments: Mapping[str, Any], where: str) -> Any:
    accepted = inspect.signature(kind).parameters
    for key in arguments:
        if key not in accepted:
            raise DataError(f"{where}.{key}: unknown key{_nearest(key, accepted)}")
    missing = [name for name in accepted if _is_required(accepted, name) and name not in arguments]
    if missing:
        raise DataError(f"{where} lacks {', '.join(missing)}")
    try:
        return kind(**arguments)
    except ValueError as error:
        raise DataError(f"{where}: {error}") from error


def _nearest(key: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {sorted(known)}"
