"""One run to a directory."""

import multiprocessing
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from recipes.mistakes import ConfigError
from recipes.run_directory import Claim, claim

fork = multiprocessing.get_context("fork")


def hold(directory: Path, line: Connection) -> None:
    lock = claim(directory)
    line.send(lock is not None)
    line.recv()


@contextmanager
def held(directory: Path) -> Iterator[multiprocessing.Process]:
    """Let another process claim ``directory`` and stay."""
    ours, theirs = fork.Pipe()
    process = fork.Process(target=hold, args=(directory, theirs))
    process.start()
    assert ours.recv()
    yield process
    process.kill()
    process.join()


def test_a_directory_in_use_names_who_is_in_it(tmp_path) -> None:
    with held(tmp_path / "run") as holder, pytest.raises(ConfigError, match=f"in use by process {holder.pid} on "):
        claim(tmp_path / "run")


def test_a_directory_in_use_is_refused_before_its_holder_has_said_who_it_is(tmp_path) -> None:
    with held(tmp_path / "run"):
        (tmp_path / "run" / ".lock").write_text("")
        with pytest.raises(ConfigError, match="in use by another process; wait for it, or"):
            claim(tmp_path / "run")


def test_a_killed_run_leaves_no_lock_behind(tmp_path) -> None:
    with held(tmp_path / "run") as holder:
        holder.kill()
        holder.join()
        assert claim(tmp_path / "run")


def test_a_rank_may_enter_what_the_process_that_started_it_holds(tmp_path) -> None:
    lock = claim(tmp_path / "run")
    ours, theirs = fork.Pipe()
    rank = fork.Process(target=hold, args=(tmp_path / "run", theirs))
    rank.start()
    assert ours.recv() is False  # it has no lock of its own, and no error
    ours.send(None)
    rank.join()
    assert lock is not None


def test_a_full_disk_is_told_before_the_run_starts(tmp_path, monkeypatch) -> None:
    total, used, _ = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(total, used, 3 * 2**20))
    with pytest.raises(ConfigError, match=r"cannot write to the run directory .*/run: only 3\.0 MiB are free; choose"):
        claim(tmp_path / "run")


@pytest.mark.parametrize(("moment", "node"), [("on_run_start", "run"), ("on_multirun_start", "sweep")])
def test_a_directory_that_cannot_be_written_to_is_one_line(tmp_path, capsys, moment: str, node: str) -> None:
    (tmp_path / "file").touch()
    config = OmegaConf.create({"hydra": {node: {"dir": str(tmp_path / "file/run")}}})
    with pytest.raises(SystemExit):
        getattr(Claim(), moment)(config)
    assert capsys.readouterr().err == (
        f"error: cannot write to the run directory {tmp_path}/file/run: Not a directory; "
        "choose another with output_dir, name or hydra.run.dir (a sweep's is hydra.sweep.dir)\n"
    )
