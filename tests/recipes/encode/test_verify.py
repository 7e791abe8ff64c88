from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from automodel_data.diffusion.image_edit_dataset import ImageEditDataset
from recipes.encode.cache import CacheWriter, payload_files
from recipes.encode.transform import Transform
from recipes.encode.verify import Findings, compare_with_source, verify
from tests.recipes.encode.watched import watch


@pytest.fixture
def cache(pairs: Path, tmp_path: Path, make_writer: Callable[..., CacheWriter]) -> Path:
    make_writer(pairs, tmp_path / "cache").run()
    return tmp_path / "cache"


@pytest.fixture
def look(pairs: Path, cache: Path, make_writer: Callable[..., CacheWriter]) -> Callable[..., Findings]:
    """Verify the cache against its source, with a writer's fields replaced."""

    def findings(**fields: object) -> Findings:
        found = verify(ImageEditDataset(str(cache)), threads=2)
        writer = make_writer(pairs, cache, **fields)
        compare_with_source(found, ImageEditDataset(str(cache)), writer.source, writer.hasher, threads=2)
        return found

    return findings


def payload(cache: Path, index: int) -> Path:
    return Path(ImageEditDataset(str(cache)).metadata[index]["cache_file"])


def test_a_fresh_cache_is_right_in_everything(look: Callable[..., Findings]) -> None:
    found = look()
    assert found.usable
    assert list(found.lines()) == ["6 samples read back", "bad: 0", "stale: 0", "missing: 0", "lost: 0", "orphaned: 0"]


def test_bad_payloads_are_listed(cache: Path, look: Callable[..., Findings]) -> None:
    payload(cache, 0).write_bytes(b"torn")
    payload(cache, 1).unlink()
    spoilt = torch.load(payload(cache, 2), weights_only=True)
    spoilt["target_latent"][0, 0, 0] = torch.nan
    torch.save(spoilt, payload(cache, 2))
    misfit = torch.load(payload(cache, 3), weights_only=True)
    misfit["target_latent"] = torch.zeros(16, 8, 8)
    torch.save(misfit, payload(cache, 3))
    found = look()
    assert not found.usable
    assert len(found.bad) == 4
    for line, part in zip(found.bad, ("truncated", "No such file", "finite", "has shape"), strict=True):
        assert part in line


@pytest.mark.parametrize("part", ["text", "sources", "transform", "encoder"])
def test_a_stale_sample_is_listed_with_what_has_changed(
    pairs: Path, look: Callable[..., Findings], change_row: Callable[..., None], part: str
) -> None:
    fields: dict[str, object] = {}
    match part:
        case "text":
            change_row(pairs / "pairs.jsonl", 1, instruction="make it pink")
        case "sources":
            (pairs / "1_1.png").write_bytes((pairs / "5_0.png").read_bytes())
        case "transform":
            fields["transform"] = Transform(quantization=16, max_pixels=48 * 48)
        case "encoder":
            fields["encoder_identity"] = {"name": "another"}
    found = look(**fields)
    assert not found.usable
    assert f"{pairs}/pairs.jsonl:2: {part} changed since it was encoded" in found.stale
    assert len(found.stale) == (1 if part in ("text", "sources") else 6)


def test_rows_that_have_gone_or_come_are_listed(pairs: Path, look: Callable[..., Findings]) -> None:
    lines = (pairs / "pairs.jsonl").read_text().splitlines()
    added = lines[1].replace("green", "pink")
    (pairs / "pairs.jsonl").write_text("\n".join([*lines[1:], lines[2].replace("blue", "grey"), added]) + "\n")
    found = look()
    assert found.stale == [f"{pairs}/pairs.jsonl:1: no longer in the source"]
    assert found.missing == [f"{pairs}/pairs.jsonl:6", f"{pairs}/pairs.jsonl:7"]


def test_files_that_nothing_names_are_orphaned_and_do_no_harm(
    pairs: Path,
    cache: Path,
    make_writer: Callable[..., CacheWriter],
    change_row: Callable[..., None],
    look: Callable[..., Findings],
) -> None:
    old = payload(cache, 1).resolve()
    change_row(pairs / "pairs.jsonl", 1, instruction="make it pink")
    make_writer(pairs, cache).run()
    found = look()
    assert found.orphaned == [old]
    assert found.usable


def test_what_a_stopped_run_has_written_is_not_orphaned(
    pairs: Path,
    cache: Path,
    make_writer: Callable[..., CacheWriter],
    change_row: Callable[..., None],
    look: Callable[..., Findings],
) -> None:
    for row in range(4):
        change_row(pairs / "pairs.jsonl", row, instruction=f"make it {row} times as pink")
    before = set(payload_files(cache))
    for _ in range(2):  # the second one has the first one's in its manifest
        writer, _ = watch(make_writer(pairs, cache), stop_at=4)
        with pytest.raises(KeyboardInterrupt):
            writer.run()
        assert set(payload_files(cache)) > before
        assert look().orphaned == []


def test_other_files_among_the_payloads_are_not_orphaned(cache: Path, look: Callable[..., Findings]) -> None:
    for name in ("mine.txt", "0_after.pt", "12/0_after.pt", f"12/{'ab' * 16}.pt"):
        (cache / "samples" / name).parent.mkdir(exist_ok=True)
        (cache / "samples" / name).write_bytes(b"mine")
    assert look().orphaned == []


def test_a_long_list_is_cut() -> None:
    lines = list(Findings(samples=100, bad=[f"x{i}" for i in range(50)]).lines())
    assert "bad: 50 (delete these files and encode again)" in lines
    assert "  and 30 more" in lines
    assert len(lines) == 27


def test_after_two_stops_rows_that_are_in_no_item_yet_are_missing(
    pairs: Path, cache: Path, make_writer: Callable[..., CacheWriter], look: Callable[..., Findings]
) -> None:
    lines = (pairs / "pairs.jsonl").read_text().splitlines(keepends=True)
    added = [lines[i].replace("make it", "paint it") for i in range(4)]
    (pairs / "pairs.jsonl").write_text("".join([*lines, *added]))
    for _ in range(2):
        writer, _ = watch(make_writer(pairs, cache), stop_at=2)
        with pytest.raises(KeyboardInterrupt):
            writer.run()
    assert look().missing == [f"{pairs}/pairs.jsonl:{row}" for row in range(7, 11)]
    make_writer(pairs, cache).run()
    assert look().missing == []


@pytest.mark.parametrize("part", ["image", "picture", "instruction", "line"])
def test_rows_that_cannot_be_encoded_are_listed_with_the_reason_and_do_no_harm(
    pairs: Path,
    cache: Path,
    make_writer: Callable[..., CacheWriter],
    change_row: Callable[..., None],
    look: Callable[..., Findings],
    part: str,
) -> None:
    lines = pairs / "pairs.jsonl"
    match part:
        case "image":
            (pairs / "1_1.png").unlink()
        case "picture":
            (pairs / "1_1.png").write_bytes((pairs / "1_1.png").read_bytes()[:-40])
        case "instruction":
            change_row(lines, 1, instruction=None)
        case "line":
            lines.write_text(lines.read_text().replace('{"contexts": ["1_0.png"]', "{"))
    make_writer(pairs, cache).run()
    found = look()
    assert found.usable, list(found.lines())
    reason = {
        "image": "missing image",
        "picture": "undecodable image",
        "instruction": "missing instruction",
        "line": "no JSON object",
    }
    (lost,) = found.lost
    assert lost.startswith(f"{lines}:2: {reason[part]}: ")
