"""Caches of latents are looked into as well: their metadata, their buckets and their payloads."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from recipes.validate.config import ValidateRun
from recipes.validate.findings import Check, Severity
from recipes.validate.report import Report
from recipes.validate.run import validate
from tests.recipes.composing import composed

CACHES = Path(__file__).parents[2] / "data/parity/inputs"
ALONE = ["validation.data=null", "callbacks.validation=null", "objective=null", "sources.prepare=null"]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return shutil.copytree(CACHES / "edit_cache", tmp_path / "cache")


@pytest.fixture
def report_on() -> Callable[..., Report]:
    def report(cache: Path, *overrides: str) -> Report:
        where = ["recipe=image_edit", f"data.cache_dir={cache}", "task.batch_size=2", "validate.rows=all"]
        return validate(composed("validate", ValidateRun, *where, *ALONE, *overrides))

    return report


def test_a_sound_cache_gives_its_buckets_and_no_finding(report_on, cache) -> None:
    report = report_on(cache, "validate.world_size=2")
    (looked_at,) = report.caches
    assert report.findings == []
    assert (looked_at.items, looked_at.looked_at, looked_at.batches_per_pass) == (43, 43, 11)
    assert sum(bucket.samples for bucket in looked_at.buckets) == 43


def test_a_cache_of_captions_is_looked_into_too(report_on) -> None:
    report = report_on(CACHES / "t2i_cache", "recipe=t2i_cached")
    assert report.findings == []
    assert report.caches[0].items == 37


def test_a_payload_cut_in_half_is_named(report_on, cache) -> None:
    payload = cache / "samples/0007.pt"
    payload.write_bytes(payload.read_bytes()[:500])
    (found,) = report_on(cache, "validate.max_lost=0").findings
    assert (found.severity, found.check) == (Severity.PROBLEM, Check.ROWS)
    assert found.message.startswith(f"1 of 43 payloads looked at cannot be used; first {payload}: ")
    assert report_on(cache, "validate.max_lost=0.1").problems == []


def test_samples_that_fill_no_batch_are_counted(report_on, cache) -> None:
    report = report_on(cache, "data.bucket_policy=drop", "task.batch_size=8")
    (found,) = report.findings
    assert (found.severity, found.check) == (Severity.WARNING, Check.SHARES)
    assert found.message.startswith("11 of 43 samples are seen by no rank in a pass")


def test_a_folder_that_is_no_cache_is_a_problem(report_on, tmp_path) -> None:
    (found,) = report_on(tmp_path).problems
    assert found.check is Check.OPEN
    assert "metadata.json" in found.message


def test_ranks_that_the_cache_cannot_feed_are_a_problem(report_on, cache) -> None:
    (found,) = report_on(cache, "data.bucket_policy=drop", "validate.world_size=64").problems
    assert "no bucket fills a batch on 64 ranks" in found.message
