"""A JSONL is an index of offsets: lines are read where they lie, selected, shuffled and sorted without being held."""

import pickle
import random
import shutil
from pathlib import Path

import pytest

from automodel_data.errors import DataError
from automodel_data.multimodal import jsonl
from automodel_data.multimodal.jsonl import JsonlFile, JsonlLines


@pytest.fixture(params=["path", "uri"])
def scheme(request: pytest.FixtureRequest) -> str:
    return "" if request.param == "path" else "file://"


@pytest.mark.parametrize(
    "content", [b'{"a": 1}\n{"b": 2}\n\n{"c": 3}', b"a\r\nb\r\n", "ä\nö\n".encode(), b"one", b"\n"]
)
@pytest.mark.parametrize("piece", [2**26, 1, 3])
def test_lines_are_those_of_the_file(
    content: bytes, piece: int, scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl, "_SCANNED_AT_ONCE", piece)
    (tmp_path / "rows.jsonl").write_bytes(content)
    file = JsonlFile(f"{scheme}{tmp_path}/rows.jsonl")
    assert [file.line(number) for number in range(len(file))] == content.splitlines()


@pytest.mark.parametrize("name", ["missing.jsonl", "empty.jsonl"])
def test_a_file_without_lines_is_refused_with_its_name(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(DataError, match=f"cannot read the JSONL file '.*{name}'"):
        JsonlFile(f"{tmp_path}/{name}")


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Return two files of six lines each; the second one's lines also stand in the first one."""
    for name, rows in (("a", "dbacfe"), ("b", "fedcba")):
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{'x' * 70}{row}\n" for row in rows))
    return [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]


def letters_of(lines: JsonlLines) -> str:
    return "".join(line[-1] + folder for line, folder in lines)


def test_the_first_lines_of_each_file_are_taken_with_its_folder(files: list[str]) -> None:
    lines = JsonlLines.take(files, ["1", "2"], [2, 3], shuffle_seed=None)
    assert (len(lines), letters_of(lines)) == (5, "d1b1f2e2d2")
    assert letters_of(JsonlLines.take(files, ["1", "2"], [None, 99], shuffle_seed=None)) == "d1b1a1c1f1e1f2e2d2c2b2a2"


def test_each_file_is_shuffled_by_the_same_seed_before_its_first_lines_are_taken(files: list[str]) -> None:
    order = list(range(6))
    random.Random(7).shuffle(order)
    lines = JsonlLines.take(files, ["1", "2"], [4, 5], shuffle_seed=7)
    wanted = ["dbacfe"[number] + "1" for number in order[:4]] + ["fedcba"[number] + "2" for number in order[:5]]
    assert letters_of(lines) == "".join(wanted)


def test_lines_sort_by_their_text_then_by_their_folder(files: list[str]) -> None:
    lines = JsonlLines.take(files, ["2", "1"], [None, 4], shuffle_seed=3)
    ordered = lines.reordered(lines.sorted_order())
    assert list(ordered) == sorted(lines)


def test_short_and_empty_lines_sort_like_the_long_ones(tmp_path: Path) -> None:
    content = [b"b\0", b"b", b"", b"b\0\0", b"a\r\r", b"a\x01", b"", b"c" * 64, b"c" * 63, b"c" * 64 + b"a"]
    (tmp_path / "rows.jsonl").write_bytes(b"\n".join(content) + b"\n")
    lines = JsonlLines.take([str(tmp_path / "rows.jsonl")], ["here"], [None], shuffle_seed=None)
    assert list(lines.reordered(lines.sorted_order())) == sorted(lines)


def test_the_digest_tells_other_lines_and_another_order_but_not_another_folder(
    files: list[str], tmp_path: Path
) -> None:
    def digest(paths: list[str], counts: list[int], seed: int | None = None) -> str:
        return JsonlLines.take(paths, ["1", "2"], counts, seed).digest()

    moved = [str(shutil.copy(file, tmp_path / f"moved-{Path(file).name}")) for file in files]
    elsewhere = [str(Path(tmp_path, "else", Path(file).name)) for file in files]
    Path(elsewhere[0]).parent.mkdir()
    for file, target in zip(files, elsewhere, strict=True):
        shutil.copy(file, target)
    wanted = digest(files, [6, 6])
    assert digest(elsewhere, [6, 6]) == wanted
    others = [digest(files, [6, 5]), digest(files, [6, 6], seed=1), digest(moved, [6, 6]), digest(files[::-1], [6, 6])]
    assert wanted not in others


def test_a_slice_is_a_selection_of_the_same_files(files: list[str]) -> None:
    lines = JsonlLines.take(files, ["1", "2"], [None, None], shuffle_seed=None)
    assert letters_of(lines[4:8]) == "f1e1f2e2"
    assert letters_of(lines[4:8][::-1][:2]) == "e2f2"
    assert lines[4:8].files is lines.files


def test_a_line_is_named_by_its_file_and_number(files: list[str]) -> None:
    lines = JsonlLines.take(files, ["1", "2"], [None, None], shuffle_seed=None).reordered([7, 0])
    assert [lines.where(index) for index in (0, 1)] == [f"{files[1]}:2", f"{files[0]}:1"]


def test_bytes_that_are_no_text_do_not_stop_the_reader(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b"\xff\xfe\nfine\n")
    lines = JsonlLines.take([str(tmp_path / "rows.jsonl")], ["1"], [None], shuffle_seed=None)
    assert [line for line, _ in lines] == ["\ufffd\ufffd", "fine"]


def test_lines_travel_to_another_process_as_their_index(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(f"{'x' * 5000}{row}\n" for row in range(200)))
    lines = JsonlLines.take([str(tmp_path / "rows.jsonl")], ["1"], [None], shuffle_seed=1)
    content = pickle.dumps(lines)
    assert len(content) < 10_000
    assert list(pickle.loads(content)) == list(lines)
