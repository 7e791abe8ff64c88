"""Make the demo data once, as a whole or not at all, also when several processes ask for it at the same time."""

import fcntl
import json
import logging
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from random import Random

from automodel_data.errors import DataError
from recipes.demo_data.config import DEMO, DemoDataConfig
from recipes.demo_data.conversations import Album
from recipes.demo_data.flaws import Flaw, Source, broken_rows
from recipes.demo_data.pairs import write_pairs
from recipes.demo_data.parquet_rows import EDIT_SCHEMA, T2I_SCHEMA, edit_row, t2i_row, write_parquet
from recipes.demo_data.pictures import Studio
from recipes.demo_data.scenes import Split
from recipes.demo_data.tokenizer import train_tokenizer, training_texts

log = logging.getLogger(__name__)

VERSION = 2  # raise it when the same configuration makes other bytes
MANIFEST = "manifest.json"


def ensure_demo_data(root: str | Path, config: DemoDataConfig | None = None) -> Path:
    """Make the demo data in ``root`` unless the same data is there, complete; return ``root``.

    Data of another configuration or version is replaced; what else lies in the folder, such as caches, stays. Several
    processes may call this at once: one makes the data, the others wait for it.

    Args:
        root: Folder of the demo data.
        config: How many rows of each kind, how large, how broken; None: the usual, or what the data that is there has.

    Raises:
        DataError: ``root`` exists and is not demo data.
    """
    root = Path(root)
    if _is_complete(root, config):
        return root
    root.parent.mkdir(parents=True, exist_ok=True)
    with _locked(root.parent / f".{root.name}.lock"):
        if not _is_complete(root, config):
            _make_and_publish(root, DEMO if config is None else config)
    return root


def _is_complete(root: Path, config: DemoDataConfig | None) -> bool:
    manifest = root / MANIFEST
    if not manifest.exists():
        return False
    found = json.loads(manifest.read_text(encoding="utf-8"))
    return found["version"] == VERSION and (config is None or found["config"] == asdict(config))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the file's exclusive lock; it ends with the process, however that ends."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make_and_publish(root: Path, config: DemoDataConfig) -> None:
    if root.exists() and not (root / MANIFEST).exists():
        raise DataError(f"{root} exists and is not demo data (it has no {MANIFEST}); name another folder or remove it")
    started = time.monotonic()
    unfinished = root.with_name(f".{root.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    log.info("making demo data in %s", root)
    make_demo_data(unfinished, config)
    if root.exists():
        _move_into(root, unfinished)
    else:
        unfinished.rename(root)
    log.info("made demo data in %s in %.0f s", root, time.monotonic() - started)


def _move_into(root: Path, made: Path) -> None:
    """Put what was made in the place of what is outdated; until the new manifest comes, the old one tells of none."""
    (root / MANIFEST).write_text(json.dumps({"version": None}), encoding="utf-8")
    for part in made.iterdir():
        if part.is_dir():
            shutil.rmtree(root / part.name, ignore_errors=True)
            part.rename(root / part.name)
    (made / MANIFEST).replace(root / MANIFEST)
    made.rmdir()


def make_demo_data(folder: Path, config: DemoDataConfig) -> None:
    """Write tokenizer, both splits and, last, the manifest; ``folder`` must not exist."""
    heldout = replace(
        config,
        t2i_rows=config.heldout_rows,
        edit_rows=config.heldout_rows,
        vlm_rows=config.heldout_rows,
        pairs=min(config.pairs, config.heldout_rows),
        oddities=False,
    )
    train_tokenizer(training_texts(config.seed), folder / "tokenizer")
    broken = _make_split(folder / Split.TRAIN, config, Split.TRAIN)
    _make_split(folder / Split.HELDOUT, heldout, Split.HELDOUT)
    manifest = {"version": VERSION, "config": asdict(config), "broken_train_rows": broken}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _make_split(folder: Path, config: DemoDataConfig, split: Split) -> dict[str, dict[int, Flaw]]:
    """Write one split; return the broken rows of each source."""
    studio = Studio(config)
    rows = {Source.T2I: config.t2i_rows, Source.EDIT: config.edit_rows, Source.VLM: config.vlm_rows}
    broken = {source: broken_rows(source, count) if config.oddities else {} for source, count in rows.items()}
    for source, schema, make_row in ((Source.T2I, T2I_SCHEMA, t2i_row), (Source.EDIT, EDIT_SCHEMA, edit_row)):
        made = (
            make_row(Random(f"{config.seed}/{split}/{source}/{number}"), studio, split, broken[source].get(number))
            for number in range(rows[source])
        )
        write_parquet(folder / source, schema, made, rows[source])
    Album(config, studio, split, folder / Source.VLM).write(rows[Source.VLM], broken[Source.VLM])
    write_pairs(folder / "pairs", config.seed, studio, split, config.pairs)
    return broken
