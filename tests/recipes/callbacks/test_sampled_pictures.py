"""Sampled edits are drawn beside their contexts and targets, at the end of a run on a cache made here."""

import json
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir

from recipes import config, distributed, launch
from recipes.job import Job, build_trainer

CONF = Path(__file__).parents[3] / "conf"


def write_cache(folder: Path, samples: int = 4) -> None:
    folder.mkdir(parents=True)
    items = []
    for number in range(samples):
        signature = {"target": [16, 4, 6], "contexts": [[16, 4, 4]]}
        payload = {
            "target_latent": torch.randn(16, 4, 6),
            "context_latents": [torch.randn(16, 4, 4)],
            "prompt_embeddings": torch.randn(3, 64),
            "prompt_attention_mask": torch.ones(3, dtype=torch.bool),
            "conditioning_tensors": {},
            "metadata": {
                "original_ids": {"row": number, "instruction": f"make it {number}"},
                "target_spatial_shape": [4, 6],
                "context_spatial_shapes": [[4, 4]],
                "compound_bucket_signature": signature,
                "conditioning_shapes": {},
            },
        }
        torch.save(payload, folder / f"{number}.pt")
        items.append({"cache_file": f"{number}.pt", "compound_bucket_signature": signature})
    (folder / "shard.json").write_text(json.dumps(items))
    (folder / "metadata.json").write_text(json.dumps({"shards": ["shard.json"]}))


@pytest.mark.parametrize("guidance", [1.0, 3.0])
def test_a_run_on_edits_ends_with_samples(tmp_path, guidance: float) -> None:
    for split in ("train", "heldout"):
        write_cache(tmp_path / split / "image_edit")
    config.register()
    launch.register_resolvers()
    overrides = {
        "sources.train_cache": tmp_path / "train",
        "sources.heldout_cache": tmp_path / "heldout",
        "train.max_steps": 2,
        "lr_schedule.warmup_steps": 1,
        "data.num_workers": 0,
        "task.batch_size": 2,
        "callbacks.sampled_pictures.steps": 2,
        "callbacks.sampled_pictures.guidance": guidance,
        "callbacks.watchdog": "null",
    }
    with initialize_config_dir(str(CONF), version_base="1.3"):
        composed = compose("train", ["recipe=image_edit", *(f"{key}={value}" for key, value in overrides.items())])
    settings, resolved = config.load(composed)
    world = distributed.start(timeout_minutes=1)
    trainer = build_trainer(Job(config=settings, resolved=resolved, directory=tmp_path), world)
    metrics = trainer.fit()
    assert metrics["val/loss"] == metrics["val/mse"]
    assert (tmp_path / "samples.png").read_bytes().startswith(b"\x89PNG")
