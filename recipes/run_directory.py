"""One run to a directory: it can be written to, and no other run is in it; checked before anything is overwritten."""

import errno
import fcntl
import json
import logging
import os
import shutil
import socket
from pathlib import Path
from typing import IO, Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from recipes.launch import is_rank_0
from recipes.mistakes import ConfigError, told_in_one_line

log = logging.getLogger(__name__)

FILE_NAME = ".lock"
_WAY_OUT = "choose another with output_dir, name or hydra.run.dir (a sweep's is hydra.sweep.dir)"
_LEAST_FREE_BYTES = 32 * 2**20  # logs and metrics of a run; a checkpoint that does not fit is told when it is written
_NO_LOCKS_HERE = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


class Claim(Callback):
    """Take the directory of a run, or of a whole sweep, before Hydra writes into it; held until the process ends.

    The lock is the operating system's (POSIX record lock), so that one left behind by a killed run holds nobody up.
    """

    def __init__(self) -> None:
        self._lock: IO[str] | None = None

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Claim the directory of a run."""
        self._claim(Path(config.hydra.run.dir))

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Claim the directory of a sweep; its jobs have theirs inside."""
        self._claim(Path(config.hydra.sweep.dir))

    def _claim(self, directory: Path) -> None:
        with told_in_one_line():
            if is_rank_0():
                self._lock = claim(directory)


def claim(directory: Path) -> IO[str] | None:
    """Make ``directory`` and lock it for this process; the lock lasts as long as the returned file is open.

    Returns None where the process that started this one holds it already.

    Raises:
        ConfigError: It cannot be written to, or another run is in it.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = (directory / FILE_NAME).open("a+")
        if not _locked(file):
            return _refuse(directory, file)
        file.truncate(0)
        free = shutil.disk_usage(directory).free
        if free < _LEAST_FREE_BYTES:
            raise OSError(errno.ENOSPC, f"only {free / 2**20:.1f} MiB are free")
        file.write(_myself(os.getpid()))
        file.flush()
    except OSError as error:
        raise ConfigError(f"cannot write to the run directory {directory}: {error.strerror}; {_WAY_OUT}") from error
    return file


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _NO_LOCKS_HERE:
            log.warning("%s: this file system has no locks; see to it that no two runs share a directory", file.name)
            return True
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        raise
    return True


def _myself(pid: int) -> str:
    return json.dumps({"host": socket.gethostname(), "pid": pid})


def _refuse(directory: Path, file: IO[str]) -> None:
    """Say who is in ``directory``, unless it is the process that started this one as a rank of its run."""
    file.seek(0)
    written = file.read()
    if written != _myself(os.getppid()):
        holder = json.loads(written) if written else None  # None: it has the lock and is about to say who it is
        who = "another process" if holder is None else f"process {holder['pid']} on {holder['host']}"
        raise ConfigError(f"the run directory {directory} is in use by {who}; wait for it, or {_WAY_OUT}")
