import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from automodel_data.multimodal.collate_fns import SimpleCustomBatch
from automodel_data.multimodal.utils import prepare_attention_mask_per_sample
from recipes.models.bagel import Bagel, BagelConfig, LlmConfig, VisionConfig
from recipes.models.bagel.masks import Splits

PARITY = Path(__file__).parents[2] / "data" / "parity" / "model"


def _lens_by_sample(splits: Splits) -> list[tuple[list[int], list[str]]]:
    """Return split lengths and modes of each sample, the padding left out."""
    samples, remaining = [], list(zip(splits.split_lens, splits.modes, strict=True))
    for length in splits.sample_lens[:-1]:
        own: list[tuple[int, str]] = []
        while sum(lens for lens, _ in own) < length:
            own.append(remaining.pop(0))
        samples.append(([lens for lens, _ in own], [mode for _, mode in own]))
    return samples


def without_splits(parts: dict[str, Any]) -> dict[str, Any]:
    """Turn the parts of a flex pack into those of a nested one."""
    splits = Splits(sample_lens=parts["sample_lens"], split_lens=parts["split_lens"], modes=parts["attn_modes"])
    masks = [prepare_attention_mask_per_sample(lens, modes) for lens, modes in _lens_by_sample(splits)]
    kept = {name: value for name, value in parts.items() if name not in ("split_lens", "attn_modes")}
    return kept | {"nested_attention_masks": masks, "sample_lens": parts["sample_lens"][:-1]}


@dataclass
class ParityCase:
    """A tiny model, one pack, and what must come out."""

    config: BagelConfig
    parts: dict[str, Any]
    noise: Tensor
    expected: dict[str, Any]

    def batch(self, form: str) -> SimpleCustomBatch:
        return SimpleCustomBatch([self.parts if form == "flex" else without_splits(self.parts)])

    @property
    def latents(self) -> Tensor:
        return self.parts["padded_latent"]

    def model(self) -> Bagel:
        model = self.config.build(generator=torch.Generator().manual_seed(0))
        model.load_state_dict(load_file(PARITY / "weights.safetensors"))
        return model


@pytest.fixture(scope="session")
def parity() -> ParityCase:
    expected = json.loads((PARITY / "expected.json").read_text())
    sizes = expected["config"]
    llm = {name: sizes[name] for name in LlmConfig.__dataclass_fields__ if name in sizes}
    config = BagelConfig(
        llm=LlmConfig(**llm),
        vision=VisionConfig(**sizes["vision"], select_layer=sizes["vit_select_layer"]),
        max_latent_size=sizes["max_latent_size"],
        latent_channels=sizes["z_channels"],
        vae_downsample=sizes["vae_downsample"],
        latent_patch_size=sizes["latent_patch_size"],
        timestep_shift=sizes["timestep_shift"],
    )
    parts = load_file(PARITY / "batch.safetensors") | expected["batch_lists"]
    parts["patchified_vae_latent_shapes"] = [tuple(grid) for grid in parts["patchified_vae_latent_shapes"]]
    return ParityCase(config=config, noise=parts.pop("noise"), parts=parts, expected=expected)


@pytest.fixture
def tiny_config() -> BagelConfig:
    """Return the smallest model with every part."""
    return BagelConfig(
        llm=LlmConfig(
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            vocab_size=40,
        ),
        vision=VisionConfig(
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=2,
            image_size=56,
        ),
        max_latent_size=8,
    )


@pytest.fixture
def seeded() -> Callable[[int], torch.Generator]:
    return lambda seed: torch.Generator().manual_seed(seed)


@pytest.fixture
def lens_by_sample() -> Callable[[Splits], list[tuple[list[int], list[str]]]]:
    """Return the function that gives split lengths and modes of each sample, the padding left out."""
    return _lens_by_sample
