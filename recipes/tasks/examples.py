"""Samples of a cache for people to look at: unlike each other, the same ones every time; and what decodes them."""

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from torch import nn

from automodel_data.diffusion.base_dataset import BaseMultiresolutionDataset
from automodel_data.diffusion.collate import _collate_image_edit, collate_text_to_image
from automodel_data.diffusion.image_edit_dataset import ImageEditDataset
from automodel_data.diffusion.payload import PayloadError
from automodel_data.diffusion.signature import _CompoundBucketSignature
from recipes.mistakes import ConfigError
from recipes.models.vae import latent_channels

log = logging.getLogger(__name__)

_VAE_OF_ENCODER = {  # as metadata.json calls it
    "demo": "DctVae",
    "autoencoder_kl": "AutoencoderKL",
    "QwenImageEditPipeline": "AutoencoderKLQwenImage",
    "QwenImageEditPlusPipeline": "AutoencoderKLQwenImage",
}
_WAY_OUT = "or draw no pictures: callbacks.sampled_pictures=null"


def examples(dataset: BaseMultiresolutionDataset, count: int) -> list[Any]:
    """Return up to ``count`` batches of one sample each; payloads that cannot be used are told of and passed over."""
    collate: Any = _collate_image_edit if isinstance(dataset, ImageEditDataset) else collate_text_to_image
    return [collate([sample]) for sample in itertools.islice(_usable(dataset), count)]


def _usable(dataset: BaseMultiresolutionDataset) -> Iterator[Any]:
    for index in unlike(dataset):
        try:
            yield dataset[index]
        except PayloadError as error:
            log.warning("not looked at: %s", error)


def unlike(dataset: BaseMultiresolutionDataset) -> Iterator[int]:
    """Yield the indices of all samples: edits of one context, of two, ... in turn, of each kind its buckets in turn."""
    kinds: dict[int, list[list[int]]] = {}
    for key in dataset.sorted_bucket_keys:
        contexts = len(key.contexts) if isinstance(key, _CompoundBucketSignature) else 0
        kinds.setdefault(contexts, []).append(dataset.bucket_groups[key]["indices"])
    return _in_turn(_in_turn(buckets) for buckets in kinds.values())


def _in_turn(piles: Iterable[Iterable[int]]) -> Iterator[int]:
    for layer in itertools.zip_longest(*piles):
        yield from (index for index in layer if index is not None)


def require_decoder(
    make_vae: Callable[[], nn.Module] | None, dataset: BaseMultiresolutionDataset, batches: Sequence[Any]
) -> None:
    """Refuse a VAE that is known not to be the one that the cache was encoded with.

    Raises:
        ConfigError: There is none, it cannot be loaded, is of another kind, or its latents have other channels.
    """
    if make_vae is None:
        raise ConfigError(
            f"task.vae has no value, and latents of {dataset.cache_dir} are to be decoded: name their VAE, {_WAY_OUT}"
        )
    vae = make_vae()
    encoder = dataset.cache_manifest.get("encoder")
    name = encoder.get("name") if isinstance(encoder, dict) else None
    ours, theirs = type(vae).__name__, _VAE_OF_ENCODER.get(str(name))
    if ours in _VAE_OF_ENCODER.values() and theirs not in (None, ours):
        raise ConfigError(
            f"task.vae ({ours}) must be the {theirs} of the encoder ({name}) that made {dataset.cache_dir}: "
            f"choose the model whose VAE that is, name its folder, {_WAY_OUT}"
        )
    taken = latent_channels(vae)
    for found in (batch["image_latents"].shape[1] for batch in batches):
        if found != taken:
            raise ConfigError(
                f"task.vae ({ours}) decodes latents of {taken} channels, and {dataset.cache_dir} holds {found}: "
                f"name the VAE that encoded them, {_WAY_OUT}"
            )
