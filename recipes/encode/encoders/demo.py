"""An encoder without weights: a cosine transform for images, a fixed random vector for every word."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import torch
from PIL import Image

from recipes.encode.encoders.base import EncodedText
from recipes.mistakes import require_at_least
from recipes.models.vae import DctVae, decode_latents, encode_modes

_VERSION = 1  # part of every key: raise it when the output changes


@cache
def _word_vector(word: str, size: int) -> torch.Tensor:
    """Draw a word's vector [size] of unit variance; its seed is the word."""
    seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8])
    return torch.randn(size, generator=torch.Generator().manual_seed(seed % 2**63))


@dataclass(frozen=True, kw_only=True, slots=True)
class DemoEncoder:
    """16 channels at an eighth of the size; ``text_size`` numbers a word, at most ``max_words`` words."""

    vae: DctVae
    text_size: int
    max_words: int

    @property
    def grid(self) -> int:
        return 16

    def identity(self) -> dict[str, Any]:
        return {"name": "demo", "version": _VERSION, "text_size": self.text_size, "max_words": self.max_words}

    def encode_image(self, pixels_CHW: torch.Tensor) -> torch.Tensor:
        return encode_modes(self.vae, pixels_CHW[None])[0]

    def decode_image(self, latent: torch.Tensor) -> torch.Tensor:
        return decode_latents(self.vae, latent[None].float())[0].clamp(-1, 1)

    def encode_text(self, text: str, contexts: Sequence[Image.Image]) -> EncodedText:
        words = re.findall(r"\w+|[^\w\s]", text.lower())[: self.max_words]
        embeddings = torch.stack([_word_vector(word, self.text_size) for word in words])
        return EncodedText(
            embeddings=embeddings, mask=torch.ones(len(words), dtype=torch.bool), pooled=embeddings.mean(0)
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class DemoEncoderConfig:
    """The demo encoder; needs no download.

    Args:
        text_size: Channels of a word's vector.
        max_words: Longer texts are cut.
    """

    needs_contexts: ClassVar[bool] = False
    text_size: int = 64
    max_words: int = 64

    def __post_init__(self) -> None:
        """Refuse texts of nothing."""
        require_at_least(1, text_size=self.text_size, max_words=self.max_words)

    def build(self, device: torch.device) -> DemoEncoder:
        """Return it; it works on the CPU whatever ``device`` is."""
        del device
        return DemoEncoder(vae=DctVae(), text_size=self.text_size, max_words=self.max_words)
