"""A diffusers ``AutoencoderKL`` and transformers text encoders, from local paths: FLUX, SD3 and their like."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from diffusers import AutoencoderKL
from PIL import Image

from recipes.encode.encoders.base import EncodedText
from recipes.encode.encoders.weights import TextTower, TextTowerConfig, dtype_of
from recipes.encode.hashing import hash_folder
from recipes.models.vae import decode_latents, encode_modes, load_autoencoder_kl

_PATCH = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class AutoencoderKlEncoderConfig:
    """Local folders of a VAE and of text encoders.

    Args:
        vae: A diffusers folder, or a published ``ae.safetensors``.
        text: Its last hidden states are the embeddings.
        pooled: A second text encoder whose pooled output goes along, e.g. CLIP for FLUX.
        dtype: ``auto``, ``float32``, ``bfloat16`` or ``float16``.
    """

    needs_contexts: ClassVar[bool] = False
    vae: str
    text: TextTowerConfig
    pooled: TextTowerConfig | None = None
    dtype: str = "auto"

    def build(self, device: torch.device) -> "AutoencoderKlEncoder":
        """Load VAE, text encoders and tokenizers.

        Raises:
            ConfigError: a folder is not there, or holds something else.
        """
        dtype = dtype_of(self.dtype, device)
        return AutoencoderKlEncoder(
            config=self,
            vae=load_autoencoder_kl(self.vae).to(device, dtype).eval(),
            text=self.text.build("encoder.text", device, dtype),
            pooled=None if self.pooled is None else self.pooled.build("encoder.pooled", device, dtype),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class AutoencoderKlEncoder:
    """Latents are the posterior's mode, shifted and scaled as the VAE's config says."""

    config: AutoencoderKlEncoderConfig
    vae: AutoencoderKL
    text: TextTower
    pooled: TextTower | None

    @property
    def grid(self) -> int:
        return 2 ** (len(self.vae.config.block_out_channels) - 1) * _PATCH

    def identity(self) -> dict[str, Any]:
        pooled = None if self.pooled is None or self.config.pooled is None else (self.config.pooled, self.pooled)
        return {
            "name": "autoencoder_kl",
            "dtype": str(self.vae.dtype),
            "vae": hash_folder(self.config.vae),
            "text": [None if one is None else _tower_identity(*one) for one in ((self.config.text, self.text), pooled)],
        }

    def encode_image(self, pixels_CHW: torch.Tensor) -> torch.Tensor:
        return encode_modes(self.vae, pixels_CHW[None].to(self.vae.device, self.vae.dtype))[0].float().cpu()

    def decode_image(self, latent: torch.Tensor) -> torch.Tensor:
        pixels = decode_latents(self.vae, latent[None].to(self.vae.device, self.vae.dtype))
        return pixels[0].float().cpu().clamp(-1, 1)

    def encode_text(self, text: str, contexts: Sequence[Image.Image]) -> EncodedText:
        embeddings = self.text(text).last_hidden_state[0].float().cpu()
        pooled = None if self.pooled is None else self.pooled(text).pooler_output[0].float().cpu()
        return EncodedText(embeddings=embeddings, mask=torch.ones(len(embeddings), dtype=torch.bool), pooled=pooled)


def _tower_identity(config: TextTowerConfig, tower: TextTower) -> dict[str, Any]:
    """Return what decides a tower's output; that it takes no more tokens than it has positions goes without saying."""
    tokenizer = None if config.tokenizer is None else hash_folder(config.tokenizer)
    max_tokens = config.max_tokens if tower.max_tokens == tower.positions else tower.max_tokens
    return {**asdict(config), "path": hash_folder(config.path), "tokenizer": tokenizer, "max_tokens": max_tokens}
