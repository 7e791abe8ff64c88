"""The configuration of the packed BAGEL model."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import torch

from recipes.mistakes import ConfigError
from recipes.models.bagel.attention import AttentionKind
from recipes.models.bagel.checkpoint import DenseWeights, PublishedWeights
from recipes.models.bagel.decoder import LlmConfig
from recipes.models.bagel.model import Bagel
from recipes.models.bagel.vision import VisionConfig

Part = TypeVar("Part", LlmConfig, VisionConfig)

_PUBLISHED_NAMES = {
    "max_latent_size": "max_latent_size",
    "latent_patch_size": "latent_patch_size",
    "timestep_shift": "timestep_shift",
    "z_channels": "latent_channels",
    "downsample": "vae_downsample",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class BagelConfig:
    """Sizes and choices; the defaults are those of BAGEL-7B-MoT.

    Attributes:
        llm: Sizes of the decoder's experts.
        vision: Sizes of the understanding tower.
        max_latent_size: Tokens on the longest side of an image for generation; the data's ``max_latent_size``.
        latent_channels: Channels of the VAE.
        vae_downsample: Pixels on a side of one VAE latent.
        latent_patch_size: VAE latents on a side of one token.
        timestep_shift: Above 1 more training happens near noise, as large images need.
        freeze_und: Train the generation expert alone: text and ViT rows and their weights take no gradient, but the
            language head still learns from labels.
        attention: ``auto`` takes the flex kernel on GPUs for packs with splits, and else, as ``sdpa`` always does,
            attends sample by sample.
        pretrained: Where the weights come from; None trains from scratch.
    """

    llm: LlmConfig
    vision: VisionConfig
    max_latent_size: int = 64
    latent_channels: int = 16
    vae_downsample: int = 8
    latent_patch_size: int = 2
    timestep_shift: float = 1.0
    freeze_und: bool = False
    attention: AttentionKind = "auto"
    pretrained: PublishedWeights | DenseWeights | None = None

    def __post_init__(self) -> None:
        if self.llm.hidden_size % 4:
            raise ConfigError(
                f"llm.hidden_size ({self.llm.hidden_size}) must be divisible by 4: "
                "positions are embedded by sines and cosines of two coordinates"
            )
        if self.attention not in ("auto", "sdpa"):
            raise ConfigError(f"attention ({self.attention}) must be auto or sdpa")
        if self.timestep_shift <= 0:
            raise ConfigError(f"timestep_shift ({self.timestep_shift}) must be above 0; 1 shifts nothing")

    @property
    def image_stride(self) -> int:
        """Pixels on a side of one latent token; the data's ``vae_image_downsample`` must be the same."""
        return self.vae_downsample * self.latent_patch_size

    @property
    def latent_features(self) -> int:
        return self.latent_patch_size**2 * self.latent_channels

    def build(self, *, device: torch.device | str | None = None, generator: torch.Generator | None = None) -> Bagel:
        """Build the model in float32 with fresh or pretrained weights.

        Args:
            device: The default device if None. On ``meta`` nothing is allocated, drawn or read: shard the model, then
                ``to_empty``, ``init_weights`` and ``config.pretrained.load(model)``.
            generator: Draws the fresh weights, on ``device``; the default generator if None.
        """
        device = torch.get_default_device() if device is None else torch.device(device)
        with torch.device("meta"):
            model = Bagel(self)
        if device.type == "meta":
            return model
        model.to_empty(device=device)
        if not isinstance(self.pretrained, PublishedWeights):
            model.init_weights(generator)
        if self.pretrained is not None:
            self.pretrained.load(model)
        return model

    @classmethod
    def from_pretrained_config(cls, folder: str | Path) -> "BagelConfig":
        """Read the sizes of a published folder: ``llm_config.json``, ``vit_config.json`` and ``config.json``.

        Raises:
            ConfigError: A file or a size is missing, or the checkpoint is of a flavour that is not built here.
        """
        llm_file, vit_file, file = (Path(folder, f"{name}.json") for name in ("llm_config", "vit_config", "config"))
        llm, vit, values = _read(llm_file), _read(vit_file), _read(file)
        vision = _part(VisionConfig, vit, vit_file)
        for source, found, key, built in (
            (llm_file, llm, "layer_module", "Qwen2MoTDecoderLayer"),
            (vit_file, vit, "rope", False),
            (file, values, "vit_max_num_patch_per_side", vision.max_patches_per_side),
        ):
            if key in found and found[key] != built:
                raise ConfigError(f"{source}: {key} is {found[key]}, and only {built} is built here")
        values |= values.get("vae_config", {})
        return cls(
            llm=_part(LlmConfig, llm | (llm.get("rope_parameters") or {}), llm_file),
            vision=vision,
            **{ours: values[theirs] for theirs, ours in _PUBLISHED_NAMES.items() if theirs in values},
        )


def _read(file: Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise ConfigError(f"{file} of a published BAGEL folder cannot be read: {error}") from error


def _part(config: type[Part], values: Mapping[str, Any], file: Path) -> Part:
    missing = [field.name for field in fields(config) if field.default is MISSING and field.name not in values]
    if missing:
        raise ConfigError(f"{file} lacks {missing[0]}")
    return config(**{field.name: values[field.name] for field in fields(config) if field.name in values})
