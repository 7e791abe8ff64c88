"""With other numbers of ranks and workers the unread rows are dealt out anew: none lost, none twice in the pass."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from automodel_data.errors import DataError
from automodel_data.multimodal.datasets import BagelDatasetConfig
from automodel_data.multimodal.elastic import deal
from automodel_data.multimodal.interleave import InterleavedBaseIterableDataset, ParquetStandardIterableDataset
from automodel_data.multimodal.loader import BagelDataloaderConfig, PackedDataLoader
from automodel_data.multimodal.plan import Sample
from automodel_data.multimodal.state import LoaderState

ROWS = 101


class NumberedRows(InterleavedBaseIterableDataset, ParquetStandardIterableDataset):
    """Rows that are their own number, as text."""

    def parse_row(self, row: Any) -> Sample:
        return self._add_text(self._init_data(), f"row {row['number']} .", need_loss=True, enable_cfg=False)


class Corpus:
    """101 numbered rows as parquet row groups of 5 and as JSON lines, packed two to four at a time."""

    def __init__(self, root: Path, tokenizer: Any, special_tokens: dict[str, int], kind: str) -> None:
        self.tokenizer, self.special_tokens = tokenizer, special_tokens
        self.budget = {"max_num_tokens": 60}
        path = root / "rows.parquet"
        pq.write_table(pa.table({"number": list(range(ROWS))}), path, row_group_size=5)
        lines = [json.dumps({"conversations": [{"from": "gpt", "value": f"row {number} ."}]}) for number in range(ROWS)]
        (root / "rows.jsonl").write_text("\n".join(lines))
        sizes = {"image_stride": 16, "max_image_size": 64, "min_image_size": 32}
        patches = sizes | {"image_stride": 14}
        group = {"dataset_names": ["rows"], "image_transform_args": sizes, "vit_image_transform_args": patches}
        if kind == "parquet":
            self.groups: dict[str, Any] = {"rows": group | {"dataset_class": f"{__name__}.NumberedRows"}}
        else:
            self.groups = {
                "rows": {"dataset_names": ["rows"], "image_transform_args": patches, "dataset_class": "vlm_sft"}
            }
        self.info = {"rows": {"rows": {"data_dir": str(root), "jsonl_path": str(root / "rows.jsonl")}}}

    def loader(self, rank: int, world_size: int, workers: int) -> PackedDataLoader:
        config = BagelDatasetConfig(
            grouped_datasets=self.groups,
            dataset_info=self.info,
            expected_num_tokens=20,
            max_num_tokens_per_sample=20,
            **self.budget,
            max_buffer_size=4,
        )
        built = BagelDataloaderConfig(config, num_workers=workers).build(
            self.tokenizer, self.special_tokens, rank, world_size, 1, 7
        )
        return built.dataloader

    def rows(self, batch: Any) -> Iterator[int]:
        """Yield the numbers in a batch, by the texts of its samples."""
        ids = batch.packed_text_ids.tolist()
        for part in self.tokenizer.decode(ids).split("<|im_end|>")[:-1]:
            yield int(part.removeprefix("<|im_start|>").split()[1])


@pytest.fixture(params=["parquet", "jsonl"])
def corpus(
    request: pytest.FixtureRequest, tmp_path: Path, tokenizer: Any, special_tokens: dict[str, int], monkeypatch: Any
) -> Corpus:
    import sys

    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or request.module)
    return Corpus(tmp_path, tokenizer, special_tokens, request.param)


def run(corpus: Corpus, states: list[dict[str, Any]] | None, ranks: int, workers: int, batches: list[int]) -> Any:
    """Take so many batches on each rank; return the rows seen and the new states of all ranks."""
    seen: list[int] = []
    after = []
    for rank in range(ranks):
        loader = corpus.loader(rank, ranks, workers)
        if states is not None:
            loader.load_elastic(states)
        for batch in islice(loader, batches[rank]):
            seen += corpus.rows(batch)
        after.append(json.loads(json.dumps(loader.state_dict())))
    return seen, after


def rows_by_origin(loader: PackedDataLoader, batch: Any) -> list[int]:
    """Return the numbers of a batch's rows, by the files and places that its indexes lead back to."""
    numbers = []
    for origin in loader.origins(batch):
        place = origin.rpartition("rows.")[2]
        match re.findall(r"\d+", place):
            case [line]:
                numbers.append(int(line) - 1)
            case [group, row]:
                numbers.append(5 * int(group) + int(row))
    return numbers


def read_to_the_end(corpus: Corpus, states: list[dict[str, Any]]) -> list[int]:
    """Read on alone until the pass is over: the rows that come before the first one seen again."""
    loader = corpus.loader(0, 1, 0)
    loader.load_elastic(states)
    seen: list[int] = []
    for batch in loader:
        if loader.state_dict()["workers"][0]["groups"]["rows"]["passes"] > 0:
            return seen + list(corpus.rows(batch))
        seen += corpus.rows(batch)
    raise AssertionError


def test_every_row_is_read_once_in_the_pass_across_three_changes_of_placement(corpus: Corpus) -> None:
    first, states = run(corpus, None, 2, 2, [3, 5])
    second, states = run(corpus, states, 1, 0, [2])
    third, states = run(corpus, states, 3, 1, [1, 0, 2])
    fourth, states = run(corpus, states, 2, 2, [2, 1])
    before = Counter(first + second + third + fourth)
    assert set(before.values()) == {1}
    rest = read_to_the_end(corpus, states)
    unread = set(range(ROWS)) - before.keys()
    assert sorted(rest[: len(unread)]) == sorted(unread)


def test_a_deal_without_progress_covers_all_rows(corpus: Corpus) -> None:
    states = [corpus.loader(rank, 2, 2).state_dict() for rank in range(2)]
    dealt = deal([LoaderState.from_dict(state) for state in states], 1, 0, 7)
    assert dealt == [LoaderState.start(0, 1, 0)]


def test_readers_that_are_a_pass_ahead_read_nothing_twice_in_it(corpus: Corpus) -> None:
    _first, states = run(corpus, None, 2, 0, [2, 30])
    ahead = states[1]["workers"][0]["groups"]["rows"]
    assert ahead["passes"] >= 1
    dealt = deal([LoaderState.from_dict(state) for state in states], 1, 0, 7)[0]
    source = dealt.workers[0]["groups"]["rows"]  # type: ignore[index]
    assert source["passes"] == 0
    assert len(source["dealt"]) == ahead["passes"] + 1


def test_the_dealt_state_is_small_plain_and_names_the_new_placement(corpus: Corpus) -> None:
    _, states = run(corpus, None, 2, 1, [4, 3])
    for rank, state in enumerate(deal([LoaderState.from_dict(state) for state in states], 3, 1, 7)):
        assert (state.rank, state.world_size, state.num_workers, state.batches) == (rank, 3, 1, 0)
        assert len(json.dumps(state.to_dict())) < 64 * 1024


def test_every_deal_draws_from_new_generators(corpus: Corpus) -> None:
    _, states = run(corpus, None, 2, 0, [2, 2])
    draws = []
    for _ in range(2):  # as a run that is resumed elsewhere and stopped at once
        dealt = deal([LoaderState.from_dict(state) for state in states], 1, 0, 7)
        draws.append(dealt[0].workers[0]["randomness"])  # type: ignore[index]
        _, states = run(corpus, states, 1, 0, [4])
    assert dealt[0].dealt_after == 8
    assert draws[0] != draws[1]


@pytest.mark.parametrize("workers", [0, 2])
def test_other_groups_are_refused_in_one_line(workers: int, corpus: Corpus) -> None:
    _, (state,) = run(corpus, None, 1, workers, [2])
    corpus.groups = {"others": corpus.groups["rows"] | {"dataset_class": "vlm_sft"}}
    corpus.groups["others"]["image_transform_args"] = corpus.groups["others"]["image_transform_args"] | {
        "image_stride": 14
    }
    corpus.info = {"others": corpus.info["rows"]}
    loader = corpus.loader(0, 1, workers)
    loader.load_state_dict(state)
    with pytest.raises(
        DataError, match=r"^the data state was saved with the groups \['rows'\], this run has \['others'\]"
    ):
        next(iter(loader))


@pytest.mark.parametrize("workers", [0, 2])
def test_an_index_leads_back_to_its_row_also_where_the_row_was_dealt_or_buffered(workers: int, corpus: Corpus) -> None:
    corpus.budget = {"max_num_tokens": 20, "prefer_buffer_before": 8}  # so tight that samples are set aside
    _, states = run(corpus, None, 3, 0, [6, 4, 7])
    assert any(state["workers"][0]["buffer"] for state in states)
    passes = set()
    for rank in range(2):
        loader = corpus.loader(rank, 2, workers)
        loader.load_elastic(states)
        for batch in islice(loader, 30):
            assert rows_by_origin(loader, batch) == list(corpus.rows(batch))
            passes |= {worker["groups"]["rows"]["passes"] for worker in loader.state_dict()["workers"] if worker}
    assert {0, 1} <= passes
