"""Toy caches of random latents, written as real ones are."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

PARITY = Path(__file__).parents[2] / "data" / "parity"

Shape = tuple[int, int, int]


def edit_payload(target: Shape, contexts: list[Shape], row: int = 0, hidden: int = 6) -> dict[str, Any]:
    """Return a payload that is right in every field; its text has 3 tokens and one more for each row modulo 3."""
    generator = torch.Generator().manual_seed(row)
    length = 3 + row % 3
    return {
        "target_latent": torch.randn(target, generator=generator).bfloat16(),
        "context_latents": [torch.randn(shape, generator=generator).bfloat16() for shape in contexts],
        "prompt_embeddings": torch.randn(length, hidden, generator=generator),
        "prompt_attention_mask": torch.ones(length, dtype=torch.long),
        "conditioning_tensors": {"pooled": torch.randn(5, generator=generator)},
        "metadata": {
            "original_ids": {"row": row},
            "target_spatial_shape": list(target[1:]),
            "context_spatial_shapes": [list(shape[1:]) for shape in contexts],
            "compound_bucket_signature": {"target": list(target), "contexts": [list(shape) for shape in contexts]},
            "conditioning_shapes": {"pooled": [5]},
        },
    }


def write_cache(root: Path, items: list[dict[str, Any]], payloads: list[Any]) -> Path:
    """Write payloads as ``samples/NNNN.pt`` and one shard; an item's ``cache_file`` is filled in if it has none."""
    (root / "samples").mkdir(parents=True, exist_ok=True)
    for i, (item, payload) in enumerate(zip(items, payloads, strict=True)):
        item.setdefault("cache_file", f"samples/{i:04d}.pt")
        torch.save(payload, root / "samples" / f"{i:04d}.pt")
    (root / "metadata.json").write_text(json.dumps({"shards": ["shard.json"]}))
    (root / "shard.json").write_text(json.dumps(items))
    return root


@pytest.fixture
def make_edit_cache(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes an image-edit cache.

    ``buckets`` maps target shapes to numbers of samples (each with one context of its target's shape);
    ``change(payload, row)`` may spoil a payload before it is written.
    """

    def make(
        buckets: dict[Shape, int], change: Callable[[dict[str, Any], int], Any] | None = None, name: str = "cache"
    ) -> Path:
        shapes = [shape for shape, samples in buckets.items() for _ in range(samples)]
        payloads = [edit_payload(shape, [shape], row) for row, shape in enumerate(shapes)]
        items = [{"compound_bucket_signature": p["metadata"]["compound_bucket_signature"]} for p in payloads]
        items = json.loads(json.dumps(items))  # a payload that is spoilt leaves its item as it is
        for row, payload in enumerate(payloads):
            if change is not None:
                change(payload, row)
        return write_cache(tmp_path / name, items, payloads)

    return make


def t2i_payload(width: int, height: int, row: int = 0) -> dict[str, Any]:
    """Return a payload of one image of this size, in pixels, encoded 8 to 1."""
    generator = torch.Generator().manual_seed(row)
    return {
        "latent": torch.randn(4, height // 8, width // 8, generator=generator),
        "crop_offset": [0, 0],
        "prompt": f"prompt {row}",
        "image_path": f"images/{row}.jpg",
        "prompt_embeds": torch.randn(1, 4 + row % 2, 6, generator=generator),
        "clip_tokens": torch.arange(7)[None],
        "t5_tokens": torch.arange(9)[None],
    }


@pytest.fixture
def make_t2i_cache(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a text-to-image cache of ``{(width, height): samples}``."""

    def make(
        buckets: dict[tuple[int, int], int],
        change: Callable[[dict[str, Any], int], Any] | None = None,
        change_item: Callable[[dict[str, Any], int], Any] | None = None,
        name: str = "cache",
    ) -> Path:
        sizes = [size for size, samples in buckets.items() for _ in range(samples)]
        payloads = [t2i_payload(*size, row) for row, size in enumerate(sizes)]
        items: list[dict[str, Any]] = [
            {"bucket_resolution": list(size), "original_resolution": list(size), "bucket_id": 0} for size in sizes
        ]
        for row in range(len(sizes)):
            if change is not None:
                change(payloads[row], row)
            if change_item is not None:
                change_item(items[row], row)
        return write_cache(tmp_path / name, items, payloads)

    return make


@pytest.fixture(scope="session")
def golden() -> dict[str, Any]:
    """Return the right outputs for the caches of ``tests/data/parity``."""
    return json.loads((PARITY / "golden" / "diffusion.json").read_text())


@pytest.fixture(scope="session")
def parity_inputs() -> Path:
    return PARITY / "inputs"
