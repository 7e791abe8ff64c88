"""A sample of a source's rows, read and parsed as in training: images by their headers, texts by their tokens."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from statistics import median
from typing import Any, NamedTuple

from automodel_data.errors import SkipSample
from automodel_data.multimodal.datasets import (
    SftJSONLIterableDataset,
    T2IIterableDataset,
    UnifiedEditIterableDataset,
)
from automodel_data.multimodal.distributed_iterable import DistributedIterableDataset
from automodel_data.multimodal.parquet_utils import read_row_group
from recipes.validate.dialect import foreign_form


class Row(NamedTuple):
    """A row, the number of its path among the source's, and its place in that path."""

    path: int
    place: list[int]
    content: Any


@dataclass(kw_only=True, slots=True)
class ForeignRows:
    """How many conversations are written in a form of others, and where the first one lies."""

    rows: int
    first: str


@dataclass(kw_only=True, slots=True)
class Rows:
    """What a sample of rows is like: lengths in tokens of the usable ones, losses by reason, foreign forms by name."""

    lengths: list[int] = field(default_factory=list)
    lost: dict[str, int] = field(default_factory=dict)
    foreign: dict[str, ForeignRows] = field(default_factory=dict)

    @property
    def num_lost(self) -> int:
        return sum(self.lost.values())

    @property
    def looked_at(self) -> int:
        return len(self.lengths) + self.num_lost

    @property
    def median_tokens(self) -> int:
        return round(median(self.lengths)) if self.lengths else 0

    @property
    def most_tokens(self) -> int:
        return max(self.lengths, default=0)

    def longer_than(self, limit: int) -> int:
        """Return how many usable rows have more tokens than ``limit``."""
        return sum(length > limit for length in self.lengths)


def look_at_rows(source: DistributedIterableDataset, row_groups: Mapping[str, int], limit: int | None) -> Rows:
    """Parse ``limit`` rows (None: all); the losses are in the source's ledger too, with file and row.

    Raises:
        DataError: the source cannot read such rows at all, e.g. for want of a column.
    """
    rows = Rows()
    for row in _all_rows(source) if limit is None else _some_rows(source, row_groups, limit):
        try:
            _open_whole_chain(source, row)
            rows.lengths.append(source.parse(row.content).length)
        except SkipSample as skipped:
            where = source.where(row.path, row.place)
            source.ledger.drop(source.dataset_name, skipped.reason, where, skipped.detail)
            _note_form(rows, source, row, where)
    rows.lost = source.ledger.counts.get(source.dataset_name, {})
    return rows


def spread(items: Sequence[Any], count: int) -> Sequence[Any]:
    """Return ``count`` of ``items``, evenly spread and in order; all where they are fewer."""
    return items if len(items) <= count else [items[number * len(items) // count] for number in range(count)]


def _all_rows(source: DistributedIterableDataset) -> Iterator[Row]:
    for path in range(len(source.data_paths)):
        yield from _read_path(source, path)


def _some_rows(source: DistributedIterableDataset, row_groups: Mapping[str, int], limit: int) -> Iterator[Row]:
    """Yield the first rows of paths, or of row groups where a path has several, spread over the whole source."""
    paths = range(len(source.data_paths))
    match source:
        case T2IIterableDataset():
            groups = [(path, group) for path in paths for group in range(row_groups.get(source.data_paths[path], 0))]
            readers = [partial(_read_group, source, *chosen) for chosen in spread(groups, limit)]
        case _:
            readers = [partial(_read_path, source, path) for path in spread(paths, limit)]
    for read in readers:
        yield from islice(read(), math.ceil(limit / len(readers)))


def _read_path(source: DistributedIterableDataset, path: int) -> Iterator[Row]:
    for place, content in source.read_path(source.data_paths[path], None):
        yield Row(path, place, content)


def _read_group(source: DistributedIterableDataset, path: int, group: int) -> Iterator[Row]:
    for number, content in read_row_group(source.data_paths[path], group, 0, source.tally.lose_rows):
        yield Row(path, [group, number], content)


def _open_whole_chain(source: DistributedIterableDataset, row: Row) -> None:
    """Open all images of an edit chain: parsing draws a stretch and leaves the others out."""
    if isinstance(source, UnifiedEditIterableDataset):
        for number, image in enumerate(row.content["image_list"] or []):
            source.images.open(image, f"image {number} of the chain")


def _note_form(rows: Rows, source: DistributedIterableDataset, row: Row, where: str) -> None:
    if not isinstance(source, SftJSONLIterableDataset):
        return
    try:
        content = json.loads(row.content[0])
    except ValueError:
        return  # it is counted as broken JSON
    form = foreign_form(content) if isinstance(content, Mapping) else None
    if form is not None:
        rows.foreign.setdefault(form, ForeignRows(rows=0, first=where)).rows += 1
