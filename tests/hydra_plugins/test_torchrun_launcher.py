"""Sweeps as people start them: from plain python, again after a failure, with a sampler, and under torchrun."""

import csv
import json
import socket
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.types import HydraContext

from hydra_plugins.automodel_launcher.torchrun_launcher import TorchrunLauncher
from recipes import config, launch
from recipes.mistakes import ConfigError
from tests.recipes.points_program import ROOT, Ended, end, start, train

SWEPT = ("train.max_steps=3,0", "packing=tiny,8k")


def rows(sweep: Path) -> list[dict[str, str]]:
    with (sweep / "sweep.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def result(job: Path) -> dict[str, Any]:
    return json.loads((job / "result.json").read_text())


@pytest.fixture(scope="module")
def swept(tmp_path_factory) -> tuple[Path, Ended, Path]:
    """Two values of two keys; one of them breaks a rule, so that half of the jobs fail."""
    folder = tmp_path_factory.mktemp("sweep")
    ended = train(folder, *SWEPT, "-m")
    (sweep,) = ended.outputs.iterdir()
    return folder, ended, sweep


def test_jobs_run_in_directories_of_their_own_and_a_failed_one_does_not_stop_the_others(swept) -> None:
    _, ended, sweep = swept
    assert ended.code == 2
    assert [(row["job"], row["packing"], row["status"].partition(":")[0]) for row in rows(sweep)] == [
        ("0", "tiny", "finished"),
        ("1", "8k", "finished"),
        ("2", "tiny", "failed"),
        ("3", "8k", "failed"),
    ]
    assert [result(sweep / job)["step"] for job in "01"] == [3, 3]


def test_a_value_that_breaks_a_rule_is_one_line_for_its_job(swept) -> None:
    _, ended, sweep = swept
    assert ended.err.splitlines().count("error: train.max_steps (0) must be at least 1") == 2
    assert rows(sweep)[2]["status"] == "failed: train.max_steps (0) must be at least 1"
    assert not (sweep / "2/metrics.jsonl").exists()
    assert "Traceback" not in ended.err
    assert f"resume=auto hydra.sweep.dir={sweep.relative_to(ended.outputs.parents[1])}" in ended.err


def test_a_value_that_does_not_exist_fails_its_job_alone(tmp_path) -> None:
    ended = train(tmp_path, "packing=nosuch,tiny", "train.max_steps=3", "-m")
    assert ended.code == 2
    (sweep,) = ended.outputs.iterdir()
    line = "packing=nosuch: no such option. There are: 16k, 32k, 8k, tiny."
    assert [(row["packing"], row["status"]) for row in rows(sweep)] == [
        ("nosuch", f"failed: {line}"),
        ("tiny", "finished"),
    ]
    assert f"job 0: {line}" in ended.out
    assert "Traceback" not in ended.err
    assert result(sweep / "1")["step"] == 3


def test_the_table_the_file_and_the_picture_show_what_the_jobs_measured(swept) -> None:
    _, ended, sweep = swept
    tiny, large, *_ = rows(sweep)
    assert float(tiny["fill"]) == pytest.approx(8192 / 1536 * float(large["fill"]))
    assert tiny["objective"] == str(result(sweep / "0")["value"])
    assert float(tiny["lost/broken"]) > 0
    assert "tokens/s" in ended.out and "8k" in ended.out
    assert (sweep / "sweep.png").read_bytes().startswith(b"\x89PNG")


def test_resume_skips_what_is_finished_and_never_mixes_jobs(swept) -> None:
    """The sweep of the fixture once more, but for its second value of packing."""
    folder, _, sweep = swept
    times = [(sweep / job / "metrics.jsonl").stat().st_mtime_ns for job in "01"]
    again = train(folder, SWEPT[0], "packing=tiny,16k", "resume=auto", f"hydra.sweep.dir={sweep}", "-m")
    assert again.err.count("finished already") == 1
    assert again.err.count(f"error: hydra.sweep.dir: {sweep}/1 holds the result of another job") == 1
    assert again.err.splitlines().count("error: train.max_steps (0) must be at least 1") == 2
    assert times == [(sweep / job / "metrics.jsonl").stat().st_mtime_ns for job in "01"]


def test_jobs_that_would_share_a_directory_are_refused_before_the_first() -> None:
    config.register()
    launch.register_resolvers()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        sweep = compose("train", ["hydra.sweep.subdir=same"], return_hydra_config=True)
        context = HydraContext(config_loader=GlobalHydra.instance().config_loader(), callbacks=Callbacks())
        launcher = TorchrunLauncher()
        launcher.setup(hydra_context=context, task_function=lambda job: pytest.fail("a job ran"), config=sweep)
        with pytest.raises(ConfigError, match=r"hydra\.sweep\.subdir: two jobs would share .*/same"):
            launcher.launch([["train.seed=1"], ["train.seed=2"]], initial_job_idx=0)


def test_a_sampler_sees_the_objectives(tmp_path) -> None:
    ended = train(tmp_path, "hydra/sweeper=optuna", "hydra.sweeper.n_trials=1", "optimizer.lr=interval(0.01,0.1)", "-m")
    assert ended.code == 0, ended.err
    (sweep,) = ended.outputs.iterdir()
    best = yaml.safe_load((sweep / "optimization_results.yaml").read_text())
    assert best["best_value"] == result(sweep / "0")["value"]
    assert 0.01 <= best["best_params"]["optimizer.lr"] <= 0.1


def test_under_torchrun_all_jobs_share_the_ranks_and_the_first_failure_ends_them(tmp_path) -> None:
    """Two nodes of one rank each: job 0 is well, rank 1 fails in job 1, job 2 never starts."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = "127.0.0.1:{1}".format(*probe.getsockname())
    node = "-m torch.distributed.run --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint"
    sweep = ("callbacks.accident.step=9,1,8", "callbacks.accident.rank=1", "-m")
    nodes = [start(tmp_path, *sweep, launcher=(*node.split(), endpoint)) for _ in range(2)]
    ended = [end(node, tmp_path) for node in nodes]
    assert all(node.code != 0 for node in ended)
    (sweep,) = ended[0].outputs.iterdir()  # both nodes agree on it
    assert sorted(path.name for path in sweep.glob("[0-9]")) == ["0", "1"]
    assert result(sweep / "0")["step"] == 3
    assert "ArithmeticError" in (sweep / "1/rank1.log").read_text()
    assert sum(node.err.count("ArithmeticError: a bug on purpose") for node in ended) == 1
