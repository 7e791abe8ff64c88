"""Qwen-Image-Edit's own VAE and vision-language text encoder, from a local diffusers pipeline folder."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from diffusers import DiffusionPipeline, QwenImageEditPipeline, QwenImageEditPlusPipeline
from PIL import Image

from automodel_data.errors import SkipSample
from recipes.encode.encoders.base import EncodedText
from recipes.encode.encoders.weights import dtype_of, require_path
from recipes.encode.hashing import hash_folder, hash_values
from recipes.mistakes import ConfigError, require_at_least
from recipes.models.vae import decode_latents, encode_modes

_PATCH = 2
_CONDITION_GRID = 32  # pixels, as the pipelines round


@dataclass(frozen=True, kw_only=True, slots=True)
class QwenImageEditEncoderConfig:
    """A local folder of Qwen-Image-Edit (one context) or Qwen-Image-Edit-Plus (several); no transformer is needed.

    Args:
        path: The pipeline's local folder.
        condition_pixels: About how many pixels of each context the text encoder sees; null: all that are encoded.
            Qwen-Image-Edit was trained with 1024 * 1024, Plus with 384 * 384.
        dtype: That the encoder computes in; ``auto``: bfloat16 on GPUs, float32 elsewhere.
    """

    needs_contexts: ClassVar[bool] = True
    path: str
    condition_pixels: int | None = None
    dtype: str = "auto"

    def __post_init__(self) -> None:
        """Refuse pictures of nothing."""
        require_at_least(1, condition_pixels=self.condition_pixels)

    def build(self, device: torch.device) -> "QwenImageEditEncoder":
        """Load VAE, text encoder and processor.

        Raises:
            ConfigError: there is no such folder, or it holds another pipeline.
        """
        require_path("encoder.path", self.path)
        try:
            pipeline = DiffusionPipeline.from_pretrained(
                self.path, transformer=None, torch_dtype=dtype_of(self.dtype, device), local_files_only=True
            )
        except (OSError, ValueError) as error:
            raise ConfigError(f"encoder.path ({self.path}): {str(error).splitlines()[0]}") from error
        if not isinstance(pipeline, QwenImageEditPipeline | QwenImageEditPlusPipeline):
            raise ConfigError(
                f"encoder.path ({self.path}) holds a {type(pipeline).__name__}, not a QwenImageEditPipeline"
            )
        return QwenImageEditEncoder(config=self, pipeline=pipeline.to(device))


@dataclass(frozen=True, kw_only=True, slots=True)
class QwenImageEditEncoder:
    """Latents are the posterior's mode, normalized channel by channel as the VAE's config says."""

    config: QwenImageEditEncoderConfig
    pipeline: QwenImageEditPipeline | QwenImageEditPlusPipeline

    @property
    def grid(self) -> int:
        return self.pipeline.vae_scale_factor * _PATCH

    def identity(self) -> dict[str, Any]:
        parts = ("vae", "text_encoder", "tokenizer", "processor")
        return {
            "name": type(self.pipeline).__name__,
            "dtype": str(self.pipeline.vae.dtype),
            "condition_pixels": self.config.condition_pixels,
            "weights": hash_values({part: hash_folder(f"{self.config.path}/{part}") for part in parts}),
        }

    def encode_image(self, pixels_CHW: torch.Tensor) -> torch.Tensor:
        vae = self.pipeline.vae
        return encode_modes(vae, pixels_CHW[None].to(vae.device, vae.dtype))[0].cpu()

    def decode_image(self, latent: torch.Tensor) -> torch.Tensor:
        vae = self.pipeline.vae
        return decode_latents(vae, latent[None].to(vae.device))[0].float().cpu().clamp(-1, 1)

    @torch.no_grad()
    def encode_text(self, text: str, contexts: Sequence[Image.Image]) -> EncodedText:
        seen = [self._resize(image) for image in contexts]
        match self.pipeline:
            case QwenImageEditPlusPipeline():
                embeddings, mask = self.pipeline.encode_prompt(text, image=seen)
            case QwenImageEditPipeline() if len(seen) == 1:
                embeddings, mask = self.pipeline.encode_prompt(text, image=seen[0])
            case _:
                raise SkipSample("too many contexts", f"{len(seen)}; QwenImageEditPipeline takes one, Plus more")
        mask = torch.ones(embeddings.shape[:2]) if mask is None else mask
        return EncodedText(embeddings=embeddings[0].float().cpu(), mask=mask[0].bool().cpu())

    def _resize(self, image: Image.Image) -> Image.Image:
        if self.config.condition_pixels is None:
            return image
        scale = math.sqrt(self.config.condition_pixels / (image.width * image.height)) / _CONDITION_GRID
        size = [max(1, round(side * scale)) * _CONDITION_GRID for side in image.size]
        return image.resize((size[0], size[1]), Image.Resampling.LANCZOS)
