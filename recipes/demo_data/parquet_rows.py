"""Text-to-image and edit rows, written to parquet files with several row groups each."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from recipes.demo_data.captions import captions
from recipes.demo_data.config import FILES_PER_SOURCE, ROW_GROUPS_PER_FILE
from recipes.demo_data.edits import draw_chain, phrasings
from recipes.demo_data.flaws import Flaw, damage
from recipes.demo_data.pictures import Studio
from recipes.demo_data.scenes import Split, draw_scene

MAX_CHAIN = 5  # images

T2I_SCHEMA = pa.schema([("image", pa.binary()), ("captions", pa.string())])
EDIT_SCHEMA = pa.schema([("image_list", pa.list_(pa.binary())), ("instruction_list", pa.list_(pa.list_(pa.string())))])

Row = dict[str, object]


def t2i_row(rng: Random, studio: Studio, split: Split, flaw: Flaw | None) -> Row:
    """Make an image with a JSON object of its captions by name."""
    scene = draw_scene(rng, split)
    image = studio.photograph(rng, scene, studio.draw_size(rng))
    text = json.dumps(captions(scene))
    return {
        "image": damage(image.data, flaw),
        "captions": text[: len(text) // 2] if flaw is Flaw.BROKEN_CAPTIONS else text,
    }


def edit_row(rng: Random, studio: Studio, split: Split, flaw: Flaw | None) -> Row:
    """Make a chain of images with, for each step, several phrasings of its instruction."""
    chain, size = draw_chain(rng, split, rng.randint(2, MAX_CHAIN)), studio.draw_size(rng)
    images = [studio.photograph(rng, scene, size) for scene in chain.scenes]
    return {
        "image_list": [damage(image.data, flaw) for image in images],
        "instruction_list": [phrasings(edit) for edit in chain.edits],
    }


def write_parquet(folder: Path, schema: pa.Schema, rows: Iterator[Row], count: int) -> None:
    """Write ``count`` rows in order to ``part-<n>.parquet`` files, one file's rows in memory at a time."""
    folder.mkdir(parents=True)
    per_file = -(-count // FILES_PER_SOURCE)
    for file in range(FILES_PER_SOURCE):
        table = pa.Table.from_pylist(list(islice(rows, per_file)), schema=schema)
        pq.write_table(table, folder / f"part-{file}.parquet", row_group_size=-(-per_file // ROW_GROUPS_PER_FILE))
