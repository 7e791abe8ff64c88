"""Parquet files by their footers alone: how many rows, and whether the columns are those that a source reads."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import types

from automodel_data.multimodal.datasets import T2IIterableDataset, UnifiedEditIterableDataset
from automodel_data.multimodal.distributed_iterable import DistributedIterableDataset
from automodel_data.multimodal.parquet_utils import UNREADABLE, open_parquet

_AT_ONCE = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Footer:
    """A file's rows by row group, and its columns with their kinds in words."""

    path: str
    row_groups: tuple[int, ...]
    columns: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Unreadable:
    """A file whose footer cannot be read."""

    path: str
    error: str


def expected_columns(source: DistributedIterableDataset) -> dict[str, str]:
    """Return the columns that a source reads, with their kinds in words; none where only its own class knows."""
    match source:
        case T2IIterableDataset():
            return {"image": "bytes", "captions": "text"}
        case UnifiedEditIterableDataset():
            return {"image_list": "list of bytes", "instruction_list": "list of list of text"}
    return {}


def read_footers(paths: Sequence[str]) -> list[Footer | Unreadable]:
    """Read the footer of every path."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(_read_footer, paths))


def _read_footer(path: str) -> Footer | Unreadable:
    try:
        with open_parquet(path) as file:
            counts = tuple(file.metadata.row_group(number).num_rows for number in range(file.num_row_groups))
            columns = {field.name: spell(field.type) for field in file.schema_arrow}
    except UNREADABLE as error:
        return Unreadable(path=path, error=str(error))
    return Footer(path=path, row_groups=counts, columns=columns)


def wrong_columns(footers: Sequence[Footer], expected: Mapping[str, str]) -> Iterator[str]:
    """Say which expected columns are missing or of another kind, in how many files, and in which first."""
    for column, kind in expected.items():
        guilty = [footer for footer in footers if footer.columns.get(column) != kind]
        if not guilty:
            continue
        first = guilty[0]
        found = f"is {first.columns[column]}" if column in first.columns else "is missing"
        yield (
            f"column {column!r} {found}, it must be {kind}: {len(guilty)} of {len(footers)} files, first {first.path} "
            f"with {', '.join(f'{name} ({one})' for name, one in first.columns.items())}"
        )


def spell(kind: pa.DataType) -> str:
    """Return a column's kind in words that leave out how it is stored."""
    if types.is_dictionary(kind):
        return spell(kind.value_type)
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return "bytes"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind) or types.is_list_view(kind):
        return f"list of {spell(kind.value_type)}"
    return str(kind)
