import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from automodel_data.diffusion.image_edit_dataset import ImageEditDataset
from automodel_data.diffusion.text_to_image_dataset import TextToImageDataset
from automodel_data.errors import DataError
from recipes.distributed import World
from recipes.encode.cache import CacheWriter
from recipes.encode.sources import Source
from tests.recipes.encode.watched import watch

Contents = Callable[[Path], dict[str, bytes]]


def test_an_image_edit_cache_trains_as_it_is(
    pairs: Path, tmp_path: Path, make_writer: Callable[..., CacheWriter]
) -> None:
    assert make_writer(pairs, tmp_path / "cache").run() == {}
    dataset = ImageEditDataset(str(tmp_path / "cache"))
    assert dataset.get_bucket_info()["buckets"] == {
        "target=16x4x4/contexts=[16x4x4]": 4,
        "target=16x2x4/contexts=[16x2x4,16x2x4]": 2,
    }
    sample = dataset[2]
    assert sample["prompt_embeddings"].shape == (3, 8)
    assert sample["metadata"]["original_ids"]["instruction"] == "make it blue"
    assert sample["metadata"]["text_token_length"] == 3
    assert sample["conditioning_tensors"]["pooled"].shape == (8,)


def test_a_text_to_image_cache_trains_as_it_is(
    pairs: Path, tmp_path: Path, make_writer: Callable[..., CacheWriter]
) -> None:
    assert make_writer(pairs, tmp_path / "cache", layout="t2i").run() == {}
    dataset = TextToImageDataset(str(tmp_path / "cache"))
    assert dataset.get_bucket_info()["buckets"] == {"square/32x32": 4, "wide/32x16": 2}
    sample = dataset[2]
    assert sample["prompt"] == "a blue picture"
    assert sample["image_path"] == "2_2.png"
    assert sample["original_resolution"].tolist() == [64, 32]
    assert sample["prompt_embeds"].shape == (3, 8)


def test_latents_decode_to_the_picture(pairs: Path, tmp_path: Path, make_writer: Callable[..., CacheWriter]) -> None:
    writer = make_writer(pairs, tmp_path / "cache", layout="t2i")
    writer.run()
    decoded = writer.encoder.decode_image(TextToImageDataset(str(tmp_path / "cache"))[0]["latent"])
    red, green, blue = decoded[:, 16:, 16:].mean(dim=(1, 2)).tolist()
    assert green == pytest.approx(128 / 127.5 - 1, abs=0.1), "the target of the first pair is green"
    assert max(red, blue) < -0.9
    assert decoded[:, :4, :4].mean() < -0.9, "the black corner is still at the top left"


def test_latents_and_texts_are_stored_in_the_type_asked_for(
    pairs: Path, tmp_path: Path, make_writer: Callable[..., CacheWriter]
) -> None:
    make_writer(pairs, tmp_path / "cache", dtype=torch.bfloat16).run()
    sample = ImageEditDataset(str(tmp_path / "cache"))[0]
    assert sample["target_latent"].dtype == sample["prompt_embeddings"].dtype == torch.bfloat16


@pytest.mark.parametrize("stop_at", range(0, 14, 2))
def test_stopped_anywhere_it_goes_on_and_ends_as_if_never_stopped(
    pairs: Path, tmp_path: Path, make_writer: Callable[..., CacheWriter], contents: Contents, stop_at: int
) -> None:
    make_writer(pairs, tmp_path / "whole").run()
    images = 0
    for stop in (stop_at, 3):  # stopped twice
        writer, watched = watch(make_writer(pairs, tmp_path / "cache"), stop_at=stop)
        try:
            writer.run()
        except KeyboardInterrupt:
            assert not (tmp_path / "cache" / "metadata.json").exists()
        images += watched.images
    writer, watched = watch(make_writer(pairs, tmp_path / "cache"))
    writer.run()
    assert contents(tmp_path / "cache") == contents(tmp_path / "whole")
    assert images + watched.images <= 14 + 2 * 2, "no more than the row in hand is encoded again"


def test_what_a_stop_left_half_written_is_cleared_away(
    pairs: Path, tmp_path: Path, make_writer: Callable[..., CacheWriter], contents: Contents
) -> None:
    make_writer(pairs, tmp_path / "whole").run()
    writer, _ = watch(make_writer(pairs, tmp_path / "cache"), stop_at=6)
    with pytest.raises(KeyboardInterrupt):
        writer.run()
    with (tmp_path / "cache" / "journal-0.jsonl").open("a") as journal:
        journal.write('{"row": 3, "where": "to')
    folder = next((tmp_path / "cache" / "samples").iterdir())
    for torn in (folder / "torn.pt", tmp_path / "cache" / "metadata.json"):
        torn.with_name(f"{torn.name}.{'0a' * 16}.tmp").write_bytes(b"half")
    make_writer(pairs, tmp_path / "cache").run()
    assert contents(tmp_path / "cache") == contents(tmp_path / "whole")


def test_files_of_others_are_left_alone(pairs: Path, tmp_path: Path, make_writer: Callable[..., CacheWriter]) -> None:
    cache = tmp_path / "cache"
    theirs = [cache / "samples" / "thesis.tmp", cache / "notes" / "thesis.pt.tmp", cache / "thesis.tmp"]
    for path in theirs:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    make_writer(pairs, cache).run()
    assert [path.read_text() for path in theirs] == ["mine"] * 3


def test_losses_are_counted_by_reason_and_kept_with_the_cache(
    pairs: Path, tmp_path: Path, make_writer: Callable[..., CacheWriter], change_row: Callable[..., None]
) -> None:
    change_row(pairs / "captions.jsonl", 0, caption=None)
    change_row(pairs / "captions.jsonl", 1, image="gone.png")
    (pairs / "2_2.png").write_bytes(b"no image")
    writer, _ = watch(make_writer(pairs, tmp_path / "cache", layout="t2i"), spoil_at=1)
    losses = {"missing caption": 1, "missing image": 1, "unreadable image": 1, "encoded to NaN or infinity": 1}
    assert writer.run() == losses
    assert json.loads((tmp_path / "cache" / "metadata.json").read_text())["lost"] == losses
    lost = [json.loads(line) for line in (tmp_path / "cache" / "lost.jsonl").read_text().splitlines()]
    assert [(row["row"], row["reason"]) for row in lost] == [
        (0, "missing caption"),
        (1, "missing image"),
        (2, "unreadable image"),
        (4, "encoded to NaN or infinity"),
    ]
    assert lost[2]["where"] == f"{pairs}/captions.jsonl:3"
    assert lost[2]["detail"].startswith("image: '2_2.png'")
    dataset = TextToImageDataset(str(tmp_path / "cache"))
    assert [dataset[i]["prompt"] for i in range(len(dataset))] == ["a white picture", "a yellow picture"]


def test_a_source_of_which_no_row_can_be_used_is_an_error(
    pairs: Path, tmp_path: Path, make_writer: Callable[..., CacheWriter]
) -> None:
    for picture in pairs.glob("*.png"):
        picture.unlink()
    with pytest.raises(DataError, match=r"source \(pairs\): not one of 6 rows could be used: .*'missing image': 6"):
        make_writer(pairs, tmp_path / "cache").run()


def test_rows_with_the_same_content_share_a_payload_and_count_twice(
    pairs: Path, tmp_path: Path, make_writer: Callable[..., CacheWriter]
) -> None:
    lines = (pairs / "captions.jsonl").read_text()
    (pairs / "captions.jsonl").write_text(lines * 2)
    make_writer(pairs, tmp_path / "cache", layout="t2i").run()
    assert len(TextToImageDataset(str(tmp_path / "cache"))) == 12
    assert len(list((tmp_path / "cache").rglob("*.pt"))) == 6


@pytest.mark.parametrize("layout", ["image_edit", "t2i"])
def test_equal_rows_are_encoded_once_and_stopped_anywhere_make_the_same_cache(
    pairs: Path, tmp_path: Path, make_writer: Callable[..., CacheWriter], contents: Contents, layout: str
) -> None:
    file = pairs / make_writer(pairs, tmp_path / "whole", layout=layout).layout.lines_file
    file.write_text("".join(line * 3 for line in file.read_text().splitlines(keepends=True)))
    writer, watched = watch(make_writer(pairs, tmp_path / "whole", layout=layout))
    writer.run()
    assert watched.images == (14 if layout == "image_edit" else 6)
    for stop in range(0, watched.images, 3):
        cache = tmp_path / f"stopped-{stop}"
        with pytest.raises(KeyboardInterrupt):
            watch(make_writer(pairs, cache, layout=layout), stop_at=stop)[0].run()
        make_writer(pairs, cache, layout=layout).run()
        assert contents(cache) == contents(tmp_path / "whole")


@dataclass(frozen=True, kw_only=True)
class Absent(World):
    """A world in which another rank has taken the first blocks of rows."""

    def deal(self, tasks: Any) -> Any:
        return iter(tasks[3:])


def test_rows_that_another_rank_takes_are_left_to_it(
    pairs: Path, tmp_path: Path, make_writer: Callable[..., CacheWriter], world: World
) -> None:
    writer = make_writer(pairs, tmp_path / "cache")
    others = Absent(rank=0, size=1, device=world.device, store=world.store)
    writer, watched = watch(replace(writer, world=others, source=InBlocks(writer.source)))
    writer.run()
    assert len(ImageEditDataset(str(tmp_path / "cache"))) == 3
    assert watched.images == 7


@dataclass
class InBlocks:
    """A source in blocks of one row."""

    inner: Source

    def __len__(self) -> int:
        return len(self.inner)

    def blocks(self, readers: int) -> list[range]:
        return [range(i, i + 1) for i in range(len(self))]

    def rows(self, block: range) -> Any:
        return self.inner.rows(block)


def test_items_are_in_the_order_of_rows_over_shards(
    pairs: Path, tmp_path: Path, make_writer: Callable[..., CacheWriter]
) -> None:
    make_writer(pairs, tmp_path / "cache", layout="t2i").run()
    shards = json.loads((tmp_path / "cache" / "metadata.json").read_text())["shards"]
    assert [len(json.loads((tmp_path / "cache" / shard).read_text())) for shard in shards] == [4, 2]
    dataset = TextToImageDataset(str(tmp_path / "cache"))
    assert [dataset[i]["prompt"].split()[1] for i in range(6)] == ["red", "green", "blue", "white", "black", "yellow"]
