"""The two kinds of cache: which columns a row has, and what its payload and its item hold."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch

from automodel_data.diffusion.base_dataset import BaseMultiresolutionDataset
from automodel_data.diffusion.image_edit_dataset import ImageEditDataset
from automodel_data.diffusion.text_to_image_dataset import TextToImageDataset
from automodel_data.errors import SkipSample
from recipes.encode.encoders.base import EncodedText
from recipes.encode.rows import RawRow, Row, read_picture, read_text
from recipes.encode.transform import BucketedImage


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoded:
    """One row, encoded: latents [C, h, w] of the target and of the contexts, in order, and the text."""

    target: torch.Tensor
    contexts: list[torch.Tensor]
    text: EncodedText


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """What a preview shows of one sample: latents, contexts first, and the text."""

    latents: list[torch.Tensor]
    text: str


class Layout(Protocol):
    """A kind of cache."""

    @property
    def name(self) -> str: ...
    @property
    def lines_file(self) -> str: ...
    @property
    def columns(self) -> Sequence[str]: ...
    @property
    def has_contexts(self) -> bool: ...

    def parse(self, row: RawRow) -> Row:
        """Return the row's images and text; raise ``SkipSample`` if it lacks any."""
        ...

    def payload(self, row: Row, image: BucketedImage, encoded: Encoded) -> dict[str, Any]:
        """Return the content of the payload file; ``image`` is the target's.

        It may hold nothing that the row's key does not decide: rows of one key share it.
        """
        ...

    def item(self, cache_file: str, image: BucketedImage, encoded: Encoded) -> dict[str, Any]:
        """Return the item of the cache's metadata."""
        ...

    def open(self, cache_dir: str) -> BaseMultiresolutionDataset:
        """Open a finished cache."""
        ...

    def shown(self, sample: dict[str, Any]) -> Shown:
        """Return what a preview shows of a sample of the opened cache."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageEditLayout:
    """Rows of ``contexts`` (a list of images), ``instruction`` and ``target`` (an image)."""

    name: ClassVar[str] = "image_edit"
    lines_file: ClassVar[str] = "pairs.jsonl"
    columns: ClassVar[tuple[str, ...]] = ("contexts", "instruction", "target")
    has_contexts: ClassVar[bool] = True

    def parse(self, row: RawRow) -> Row:
        contexts = row.values.get("contexts")
        if contexts is None or contexts == []:
            raise SkipSample("missing context", f"contexts is {contexts!r}")
        if not isinstance(contexts, list):
            raise SkipSample("contexts are no list", f"contexts is {contexts!r:.60}; write [...], also around one")
        return Row(
            text=read_text(row, "instruction"),
            contexts=tuple(read_picture(row, value, f"contexts[{i}]") for i, value in enumerate(contexts)),
            target=read_picture(row, row.values.get("target"), "target"),
        )

    def payload(self, row: Row, image: BucketedImage, encoded: Encoded) -> dict[str, Any]:
        conditioning = {} if encoded.text.pooled is None else {"pooled": encoded.text.pooled}
        return {
            "target_latent": encoded.target,
            "context_latents": encoded.contexts,
            "prompt_embeddings": encoded.text.embeddings,
            "prompt_attention_mask": encoded.text.mask,
            "conditioning_tensors": conditioning,
            "metadata": {
                "original_ids": {
                    "contexts": [picture.name for picture in row.contexts],
                    "target": row.target.name,
                    "instruction": row.text,
                },
                "target_spatial_shape": list(encoded.target.shape[1:]),
                "context_spatial_shapes": [list(latent.shape[1:]) for latent in encoded.contexts],
                "compound_bucket_signature": _signature(encoded),
                "conditioning_shapes": {name: list(tensor.shape) for name, tensor in conditioning.items()},
                "text_token_length": int(encoded.text.mask.sum()),
            },
        }

    def item(self, cache_file: str, image: BucketedImage, encoded: Encoded) -> dict[str, Any]:
        return {"cache_file": cache_file, "compound_bucket_signature": _signature(encoded)}

    def open(self, cache_dir: str) -> ImageEditDataset:
        return ImageEditDataset(cache_dir)

    def shown(self, sample: dict[str, Any]) -> Shown:
        ids = sample["metadata"]["original_ids"]
        return Shown(
            latents=[*sample["context_latents"], sample["target_latent"]], text=str(ids.get("instruction", ""))
        )


def _signature(encoded: Encoded) -> dict[str, Any]:
    return {"target": list(encoded.target.shape), "contexts": [list(latent.shape) for latent in encoded.contexts]}


@dataclass(frozen=True, kw_only=True, slots=True)
class TextToImageLayout:
    """Rows of ``image`` and ``caption``."""

    name: ClassVar[str] = "t2i"
    lines_file: ClassVar[str] = "captions.jsonl"
    columns: ClassVar[tuple[str, ...]] = ("image", "caption")
    has_contexts: ClassVar[bool] = False

    def parse(self, row: RawRow) -> Row:
        return Row(
            text=read_text(row, "caption"),
            contexts=(),
            target=read_picture(row, row.values.get("image"), "image"),
        )

    def payload(self, row: Row, image: BucketedImage, encoded: Encoded) -> dict[str, Any]:
        pooled = encoded.text.pooled
        return {
            "latent": encoded.target,
            "crop_offset": list(image.crop_offset),
            "prompt": row.text,
            "image_path": row.target.name,
            "prompt_embeds": encoded.text.embeddings[None],
            "prompt_attention_mask": encoded.text.mask[None],
            **({} if pooled is None else {"pooled_prompt_embeds": pooled[None]}),
        }

    def item(self, cache_file: str, image: BucketedImage, encoded: Encoded) -> dict[str, Any]:
        width, height = image.image.size
        return {
            "cache_file": cache_file,
            "bucket_resolution": [width, height],
            "original_resolution": list(image.original_size),
            "bucket_id": image.bucket_id,
            "aspect_ratio": width / height,
        }

    def open(self, cache_dir: str) -> TextToImageDataset:
        return TextToImageDataset(cache_dir)

    def shown(self, sample: dict[str, Any]) -> Shown:
        return Shown(latents=[sample["latent"]], text=sample["prompt"])
