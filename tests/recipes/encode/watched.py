"""An encoder that is watched, stopped or spoilt while a cache is made."""

from dataclasses import dataclass, replace
from typing import Any

import torch

from recipes.encode.cache import CacheWriter
from recipes.encode.encoders.base import Encoder


@dataclass(kw_only=True)
class Watched:
    """An encoder that counts the images it was given, and may be stopped at one of them."""

    inner: Encoder
    images: int = 0
    stop_at: int | None = None
    spoil_at: int | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def encode_image(self, pixels_CHW: torch.Tensor) -> torch.Tensor:
        if self.images == self.stop_at:
            raise KeyboardInterrupt
        self.images += 1
        latent = self.inner.encode_image(pixels_CHW)
        return latent * torch.nan if self.images - 1 == self.spoil_at else latent


def watch(writer: CacheWriter, **options: Any) -> tuple[CacheWriter, Watched]:
    watched = Watched(inner=writer.encoder, **options)
    return replace(writer, encoder=watched), watched
