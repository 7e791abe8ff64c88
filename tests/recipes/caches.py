"""Caches of latents that a test makes up."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

Edit = tuple[torch.Tensor, Sequence[torch.Tensor]]
"""Latents [C, H, W] of a target and of its contexts."""


def write_edits(folder: Path, edits: Sequence[Edit], **about: Any) -> Path:
    """Write a cache of ``edits``, the prompts ones; ``about`` goes into its metadata."""
    folder.mkdir(parents=True)
    items = []
    for number, (target, contexts) in enumerate(edits):
        signature = {"target": list(target.shape), "contexts": [list(one.shape) for one in contexts]}
        payload = {
            "target_latent": target,
            "context_latents": list(contexts),
            "prompt_embeddings": torch.ones(3, 64),
            "prompt_attention_mask": torch.ones(3, dtype=torch.bool),
            "conditioning_tensors": {},
            "metadata": {
                "original_ids": {"row": number, "instruction": f"make it {number}"},
                "target_spatial_shape": list(target.shape[1:]),
                "context_spatial_shapes": [list(one.shape[1:]) for one in contexts],
                "compound_bucket_signature": signature,
                "conditioning_shapes": {},
            },
        }
        torch.save(payload, folder / f"{number}.pt")
        items.append({"cache_file": f"{number}.pt", "compound_bucket_signature": signature})
    (folder / "shard.json").write_text(json.dumps(items))
    (folder / "metadata.json").write_text(json.dumps({"shards": ["shard.json"], **about}))
    return folder
