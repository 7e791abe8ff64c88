"""Every fault of data is found, named with its place, and told from data that is well."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recipes.mistakes import ConfigError
from recipes.validate.config import ValidateRun, check
from recipes.validate.findings import Check, Severity
from recipes.validate.report import Report
from tests.recipes.composing import composed

ReportOn = Callable[..., Report]


@pytest.fixture(scope="session")
def sound(report_on: ReportOn, few_rows: Path) -> Report:
    return report_on(few_rows)


def rewrite_lines(root: Path, change: Callable[[int, dict], dict]) -> Path:
    file = root / "train/vlm/rows.jsonl"
    rows = [change(number, json.loads(line)) for number, line in enumerate(file.read_text().splitlines(), 1)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def rewrite_tables(folder: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    for file in folder.glob("*.parquet"):
        pq.write_table(change(pq.read_table(file)), file)


def only_finding(report: Report, check: Check) -> str:
    (found,) = [one for one in report.findings if one.check is check]
    assert found.severity is Severity.PROBLEM
    return f"{found.source}: {found.message}"


def test_nothing_is_found_in_sound_data(sound: Report) -> None:
    assert sound.findings == []
    assert [(one.name, one.paths, one.rows, one.sample.looked_at) for one in sound.sources] == [
        ("train/t2i_pretrain/t2i", 4, 16, 16),
        ("train/unified_edit/edit", 16, 16, 16),
        ("train/vlm_sft/vlm", 16, 16, 16),
        ("heldout/t2i_pretrain/t2i", 4, 8, 8),
        ("heldout/unified_edit/edit", 8, 8, 8),
        ("heldout/vlm_sft/vlm", 8, 8, 8),
    ]


def test_packs_are_counted_by_group(sound: Report) -> None:
    packs = sound.packs
    assert packs is not None
    assert len(packs.lengths) == 2
    assert packs.tokens == sum(group.tokens for group in packs.groups.values())
    assert all(0.5 < fill <= 1 for fill in packs.fills)
    t2i = packs.groups["t2i_pretrain"]
    assert t2i.weight == pytest.approx(1 / 3)
    assert t2i.steps_per_pass == pytest.approx(16 / (t2i.samples / 2))
    assert set(packs.seconds) == {"plan", "decode", "assemble"}
    assert all(seconds > 0 for seconds in packs.seconds.values())


def test_more_ranks_and_accumulation_shorten_a_pass(report_on: ReportOn, few_rows: Path, sound: Report) -> None:
    shorter = report_on(few_rows, "validate.world_size=2", "train.accumulation_steps=2")
    assert shorter.packs is not None
    assert sound.packs is not None
    for name, group in shorter.packs.groups.items():
        assert group.steps_per_pass == pytest.approx(sound.packs.groups[name].steps_per_pass / 4)


def test_a_sample_of_rows_is_spread_over_files_and_row_groups(report_on: ReportOn, few_rows: Path) -> None:
    report = report_on(few_rows, "validate.rows=4")
    assert [one.sample.looked_at for one in report.sources] == [4] * 6


def test_a_missing_column_is_named_with_those_that_are_there(report_on: ReportOn, copied: Path) -> None:
    rewrite_tables(copied / "train/t2i", lambda table: table.rename_columns(["image", "caption"]))
    report = report_on(copied, "data=t2i")
    line = only_finding(report, Check.COLUMNS)
    assert line.startswith(
        "train/t2i_pretrain/t2i: column 'captions' is missing, it must be text: 4 of 4 files, first "
    )
    assert "image (bytes), caption (text)" in line
    assert report.packs is None


def test_a_column_of_another_kind_is_named_with_its_kind(report_on: ReportOn, copied: Path) -> None:
    def nested(table: pa.Table) -> pa.Table:
        images = [{"bytes": image, "path": "a.png"} for image in table["image"].to_pylist()]
        return table.set_column(0, "image", pa.array(images))

    rewrite_tables(copied / "train/t2i", nested)
    line = only_finding(report_on(copied, "data=t2i"), Check.COLUMNS)
    assert "column 'image' is struct<bytes: binary, path: string>, it must be bytes: 4 of 4 files" in line


def test_flat_instructions_of_edits_are_told_from_lists_of_phrasings(report_on: ReportOn, copied: Path) -> None:
    def flattened(table: pa.Table) -> pa.Table:
        return table.set_column(1, "instruction_list", pa.array([["make it red"]] * len(table)))

    rewrite_tables(copied / "train/edit", flattened)
    line = only_finding(report_on(copied, "data=edit"), Check.COLUMNS)
    assert "'instruction_list' is list of text, it must be list of list of text" in line


def test_a_file_cut_in_half_is_named(report_on: ReportOn, copied: Path) -> None:
    for kind in ("t2i", "edit"):
        file = copied / f"train/{kind}/part-1.parquet"
        file.write_bytes(file.read_bytes()[:-100])
    report = report_on(copied, "validate.rows=8")
    broken = {one.source: one.message for one in report.problems if one.check is Check.FILES}
    assert set(broken) == {"train/t2i_pretrain/t2i", "train/unified_edit/edit"}
    assert all(line.startswith("1 of 4 files cannot be read, first ") for line in broken.values())
    assert str(copied / "train/edit/part-1.parquet") in broken["train/unified_edit/edit"]


def test_row_groups_that_only_parquet_info_knows_are_named(report_on: ReportOn, few_rows: Path, tmp_path: Path) -> None:
    files = sorted(map(str, (few_rows / "train/edit").glob("*.parquet")))
    promised = {file: {"num_row_groups": 4 if number else 6} for number, file in enumerate(files)}
    info = tmp_path / "info.json"
    info.write_text(json.dumps(promised))
    report = report_on(few_rows, "data=edit", f"+sources.train.unified_edit.edit.parquet_info_path={info}")
    line = only_finding(report, Check.ROW_GROUPS)
    assert "parquet_info names 2 row groups that are not there" in line
    assert f"{files[0]}, which has 4" in line


@pytest.mark.parametrize("key", ["conversations", "messages"])
def test_the_openai_form_of_conversations_is_named(report_on: ReportOn, copied: Path, key: str) -> None:
    roles = {"human": "user", "gpt": "assistant", "system": "system"}

    def as_openai(number: int, row: dict) -> dict:
        turns = [{"role": roles[turn["from"]], "content": turn["value"]} for turn in row.pop("conversations")]
        return {**row, key: turns}

    file = rewrite_lines(copied, as_openai)
    report = report_on(copied, "data=vlm_sft")
    line = only_finding(report, Check.DIALECT)
    assert "16 of 16 rows looked at have" in line
    assert "'role' and 'content' (OpenAI's form)" in line
    assert f"first {file}:" in line
    assert "gave no usable row" in report.findings[-1].message


def test_a_few_conversations_with_openai_roles_are_a_problem_too(report_on: ReportOn, copied: Path) -> None:
    def third_as_user(number: int, row: dict) -> dict:
        for turn in row["conversations"] if number == 3 else []:
            turn["from"] = {"human": "user", "gpt": "assistant"}.get(turn["from"], turn["from"])
        return row

    file = rewrite_lines(copied, third_as_user)
    line = only_finding(report_on(copied, "data=vlm_sft"), Check.DIALECT)
    assert (
        f"1 of 16 rows looked at have 'from' user and assistant (OpenAI's roles): rename user to human, assistant to \
gpt; first {file}:3."
        in line
    )


def test_tags_that_do_not_match_the_images_are_counted_and_placed(report_on: ReportOn, copied: Path) -> None:
    def surplus_tag(number: int, row: dict) -> dict:
        if number in (5, 6):
            row["conversations"][0]["value"] += "<image>"
        return row

    file = rewrite_lines(copied, surplus_tag)
    report = report_on(copied, "data=vlm_sft")
    assert report.sources[0].sample.lost == {"tags do not match images": 2}
    line = only_finding(report, Check.ROWS)
    assert "2 of 16 rows looked at cannot be used" in line
    assert f"{file}:5" in line
    assert f"{file}:6" in line


def test_a_missing_image_is_named_with_its_line(report_on: ReportOn, copied: Path) -> None:
    (copied / "train/vlm/images/00001_0.jpg").unlink(missing_ok=True)
    (copied / "train/vlm/images/00001_0.png").unlink(missing_ok=True)
    report = report_on(copied, "data=vlm_sft")
    assert report.sources[0].sample.lost == {"missing image": 1}
    assert "rows.jsonl:2 " in only_finding(report, Check.ROWS)


def test_few_lost_rows_are_a_warning_and_more_a_problem(report_on: ReportOn, copied: Path) -> None:
    rewrite_lines(copied, lambda number, row: {} if number == 1 else row)
    tolerant = report_on(copied, "data=vlm_sft", "validate.max_lost=0.1")
    assert tolerant.problems == []
    assert [found.check for found in tolerant.findings] == [Check.ROWS]
    assert report_on(copied, "data=vlm_sft", "validate.max_lost=0").problems[0].check is Check.ROWS


def test_a_broken_image_anywhere_in_an_edit_chain_is_found(report_on: ReportOn, copied: Path) -> None:
    def last_broken(table: pa.Table) -> pa.Table:
        chains = table["image_list"].to_pylist()
        return table.set_column(0, "image_list", pa.array([[*chain[:-1], b"<html>"] for chain in chains]))

    rewrite_tables(copied / "train/edit", last_broken)
    report = report_on(copied, "data=edit")
    assert report.sources[0].sample.lost == {"unreadable image": 16}


def test_images_that_fail_only_when_decoded_are_found_in_the_packs(report_on: ReportOn, copied: Path) -> None:
    def truncated(table: pa.Table) -> pa.Table:
        images = [image[:-200] if number % 2 else image for number, image in enumerate(table["image"].to_pylist())]
        return table.set_column(0, "image", pa.array(images))

    rewrite_tables(copied / "train/t2i", truncated)
    report = report_on(copied, "data=t2i", "validate.packs=4")
    assert report.sources[0].sample.lost == {}
    assert "undecodable image" in only_finding(report, Check.PACKS)


def test_too_few_paths_for_ranks_and_workers_are_a_problem_with_both_counts(
    report_on: ReportOn, few_rows: Path
) -> None:
    report = report_on(few_rows, "data=t2i", "data.num_workers=4", "validate.world_size=8")
    lines = {one.source: one.message for one in report.problems}
    assert lines["train/t2i_pretrain"].startswith("4 paths cannot be shared by 8 ranks x 4 workers; ")
    assert lines["heldout/t2i_pretrain"].startswith("4 paths cannot be shared by 8 ranks x 1 workers; ")
    assert "raise num_used_data" in lines["train/t2i_pretrain"]


def test_paths_that_do_not_divide_are_a_warning(report_on: ReportOn, few_rows: Path) -> None:
    report = report_on(few_rows, "data=vlm_sft", "data.num_workers=2", "validate.world_size=3")
    assert [(one.severity, one.check) for one in report.findings] == [(Severity.WARNING, Check.SHARES)] * 2
    assert report.findings[0].message.startswith("4 of 16 paths are read by nobody")
    assert [(one.per_worker, one.left_out) for one in report.shares] == [(2, 4), (2, 2)]


def test_samples_over_the_budget_are_counted(report_on: ReportOn, few_rows: Path, sound: Report) -> None:
    lengths = sound.sources[2].sample.lengths
    limit = sorted(lengths)[-3]
    report = report_on(few_rows, "data=vlm_sft", f"packing.max_num_tokens_per_sample={limit}")
    assert report.sources[0].too_long == sum(length >= limit for length in lengths)  # its group is mandatory
    found = report.findings[0]
    assert (found.severity, found.check) == (Severity.WARNING, Check.BUDGET)
    assert f"the longest has {max(lengths)}" in found.message


def test_a_budget_that_nothing_fits_is_a_problem(report_on: ReportOn, few_rows: Path) -> None:
    report = report_on(few_rows, "data=vlm_sft", "packing.max_num_tokens_per_sample=20")
    assert "16 of 16 samples have more than 19 tokens" in report.problems[0].message
    assert report.problems[-1].check is Check.PACKS


def test_a_folder_that_is_not_there_is_named_and_the_others_are_looked_at(report_on: ReportOn, few_rows: Path) -> None:
    report = report_on(few_rows, "sources.train.t2i_pretrain.t2i.data_dir=nowhere", "validate.rows=4")
    assert "'nowhere' is not a directory" in only_finding(report, Check.OPEN)
    assert [one.opened for one in report.sources] == [False, True, True, True, True, True]


def test_asking_for_more_than_there_is_gives_a_warning(report_on: ReportOn, few_rows: Path) -> None:
    counts = ["sources.num_used_data.train.vlm_sft=[99]", "sources.num_used_data.train.t2i_pretrain=[9]"]
    lines = {one.source: one.message for one in report_on(few_rows, *counts, "validate.rows=4").findings}
    assert lines["train/vlm_sft/vlm"] == "num_used_data asks for 99 lines, there are 16; all are used"
    assert lines["train/t2i_pretrain/t2i"] == "num_used_data asks for 9 files, there are 4; they are repeated"


def test_the_report_is_plain_values(sound: Report, tmp_path: Path) -> None:
    sound.write(tmp_path / "validate.json")
    read = json.loads((tmp_path / "validate.json").read_text())
    assert read["ok"] is True
    assert read["sources"][0]["rows"] == 16
    assert read["packs"]["groups"]["vlm_sft"]["is_mandatory"] is True
    assert read["packs"]["mean_fill"] == pytest.approx(sum(sound.packs.fills) / 2)


@pytest.mark.parametrize("override", ["rows=0", "rows=some", "packs=0", "world_size=0", "max_lost=2"])
def test_a_number_that_means_nothing_is_refused_by_its_key(override: str) -> None:
    key = override.partition("=")[0]
    with pytest.raises(ConfigError, match=rf"validate\.{key} \("):
        check(composed("validate", ValidateRun, f"validate.{override}").validate)
