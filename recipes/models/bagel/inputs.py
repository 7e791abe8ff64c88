"""What the model takes: one pack, its parts typed and absent where the pack has none."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from recipes.models.bagel.latents import Grid
from recipes.models.bagel.masks import SampleMasks, Splits, Visibility

if TYPE_CHECKING:
    from automodel_data.multimodal.collate_fns import SimpleCustomBatch


@dataclass(frozen=True, kw_only=True, slots=True)
class TextInputs:
    """Token ids, the four special tokens among them, and the pack row of each: int64 [T]."""

    ids: Tensor
    rows: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class VitInputs:
    """Patches of all images end to end.

    Attributes:
        patches: Normalised pixels [N, 3 * patch**2], the channel fastest.
        rows: Pack row of each patch, int64 [N].
        position_ids: ``row * max_patches_per_side + column`` of each patch.
        lengths: Patches of each image.
    """

    patches: Tensor
    rows: Tensor
    position_ids: Tensor
    lengths: Sequence[int]


@dataclass(frozen=True, kw_only=True, slots=True)
class LatentInputs:
    """Latents of all images for the generation side, those to predict and those that are conditions.

    Attributes:
        padded: Clean latents [M, C, H, W], scaled, each padded to the largest.
        grids: Height and width of each image in tokens.
        rows: Pack row of each token, int64 [G].
        position_ids: ``row * max_latent_size + column`` of each token.
        time_logits: Logit of each token's flow time before shifting; minus infinity in conditions.
        loss_rows: Pack rows of the tokens to predict, [G+].
    """

    padded: Tensor
    grids: Sequence[Grid]
    rows: Tensor
    position_ids: Tensor
    time_logits: Tensor
    loss_rows: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelInputs:
    """Pack rows with a text target, and the token each of them predicts: int64 [E]."""

    rows: Tensor
    ids: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedInputs:
    """One pack of L rows; every row is one text token, ViT patch or latent token.

    Attributes:
        positions: Rotary position of each row, int64 [L].
        visibility: Which rows see which.
    """

    text: TextInputs
    positions: Tensor
    visibility: Visibility
    vit: VitInputs | None = None
    latents: LatentInputs | None = None
    labels: LabelInputs | None = None

    @classmethod
    def from_batch(cls, batch: "SimpleCustomBatch", latents: Tensor | None = None) -> "PackedInputs":
        """Type a packed batch, the tensors on the model's device.

        Args:
            batch: With flex splits or with nested masks; parts that the pack lacks are absent attributes.
            latents: ``padded_images`` of the batch through the VAE and scaled (``encode_latents``); None without.
        """
        present = vars(batch)
        return cls(
            text=TextInputs(ids=batch.packed_text_ids, rows=batch.packed_text_indexes),
            positions=batch.packed_position_ids,
            visibility=_visibility(batch),
            vit=_vit(batch) if "packed_vit_tokens" in present else None,
            latents=_latents(batch, latents) if "packed_vae_token_indexes" in present else None,
            labels=_labels(batch) if "packed_label_ids" in present else None,
        )


def _visibility(batch: "SimpleCustomBatch") -> Visibility:
    if "nested_attention_masks" in vars(batch):
        return SampleMasks(additive=batch.nested_attention_masks)
    return Splits(sample_lens=batch.sample_lens, split_lens=batch.split_lens, modes=batch.attn_modes)


def _vit(batch: "SimpleCustomBatch") -> VitInputs:
    return VitInputs(
        patches=batch.packed_vit_tokens,
        rows=batch.packed_vit_token_indexes,
        position_ids=batch.packed_vit_position_ids,
        lengths=batch.vit_token_seqlens.tolist(),
    )


def _latents(batch: "SimpleCustomBatch", latents: Tensor | None) -> LatentInputs:
    assert latents is not None, "a batch with padded_images needs their latents"
    return LatentInputs(
        padded=latents,
        grids=batch.patchified_vae_latent_shapes,
        rows=batch.packed_vae_token_indexes,
        position_ids=batch.packed_latent_position_ids,
        time_logits=batch.packed_timesteps,
        loss_rows=batch.mse_loss_indexes,
    )


def _labels(batch: "SimpleCustomBatch") -> LabelInputs:
    return LabelInputs(rows=batch.ce_loss_indexes, ids=batch.packed_label_ids)
