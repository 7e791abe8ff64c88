"""A batch's data indexes lead back to files and rows."""

import json
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq

from automodel_data.multimodal.materialize import Materializer


def test_an_index_names_the_line_of_a_conversation_whichever_worker_read_it(build_golden, tokenizer):
    build = build_golden("vlm_only", workers=2)
    for batch in islice(build.dataloader, 3):
        ids = batch.packed_text_ids.tolist()
        spelled = tokenizer.decode(ids)
        for origin in build.dataloader.origins(batch):
            file, _, line = origin.rpartition(":")
            row = json.loads(Path(file).read_text().splitlines()[int(line) - 1])
            answer = next(turn["value"] for turn in row["conversations"] if turn["from"] == "gpt")
            assert answer in spelled


def test_an_index_names_the_row_of_a_parquet_file(build_golden, tokenizer):
    build = build_golden("t2i_only", workers=0, text_cond_dropout_prob=0.0)
    batch = next(iter(build.dataloader))
    spelled = tokenizer.decode(batch.packed_text_ids.tolist())
    for origin in build.dataloader.origins(batch):
        file, group, row = origin.split(", ")
        table = pq.ParquetFile(file).read_row_group(int(group.removeprefix("row group ")))
        captions = json.loads(table["captions"][int(row.removeprefix("row "))].as_py())
        assert any(caption in spelled for caption in captions.values())


def test_seconds_are_told_by_stage(build_golden):
    dataset = build_golden("t2i_only", workers=0).dataset
    seconds = dataset.materializer.seconds
    assert (seconds.decode, seconds.assemble) == (0, 0)
    next(iter(dataset))
    assert isinstance(dataset.materializer, Materializer)
    assert seconds.decode > 0
    assert seconds.assemble > 0
