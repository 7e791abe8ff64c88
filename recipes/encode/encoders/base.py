"""What every encoder can do."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from PIL import Image


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedText:
    """A text as a model reads it: embeddings [S, D], mask [S] (bool), and what stands for it as a whole, [P]."""

    embeddings: torch.Tensor
    mask: torch.Tensor
    pooled: torch.Tensor | None = None


class Encoder(Protocol):
    """Encodes one image or text at a time; everything it returns lies on the CPU, in float32."""

    @property
    def grid(self) -> int:
        """Pixels that every side of an image must be a multiple of: the VAE's scale times a patch of 2."""
        ...

    def identity(self) -> dict[str, Any]:
        """Return what decides the output, as plain values; weights by the hash of their files."""
        ...

    def encode_image(self, pixels_CHW: torch.Tensor) -> torch.Tensor:
        """Encode [3, H, W] in [-1, 1] to a scaled latent [C, h, w]."""
        ...

    def decode_image(self, latent: torch.Tensor) -> torch.Tensor:
        """Decode a latent to [3, H, W] in [-1, 1], for people to look at."""
        ...

    def encode_text(self, text: str, contexts: Sequence[Image.Image]) -> EncodedText:
        """Encode a text; some encoders look at the context images too.

        Raises:
            SkipSample: it cannot take these contexts.
        """
        ...


class EncoderConfig(Protocol):
    """Beside each encoder; the node ``encoder`` names it."""

    needs_contexts: ClassVar[bool]  # it looks at context images, which text-to-image rows have none of

    def build(self, device: torch.device) -> Encoder:
        """Load the encoder.

        Raises:
            ConfigError: the named files are not there or of another kind.
        """
        ...
