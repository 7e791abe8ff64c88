"""How much a training step computes, for tokens per second to become TFLOP/s."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from recipes.models.bagel.model import Bagel

if TYPE_CHECKING:
    from automodel_data.multimodal.collate_fns import SimpleCustomBatch

_TRAINED, _FROZEN = 6, 2


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenFlops:
    """Floating-point operations that a token of each kind costs in one training step, forward and backward.

    A token costs 6 for every trained weight that it meets and 2 for every frozen one; attention costs 12 for every
    pair of rows in a sample, head, head dimension and layer.
    """

    und_row: int
    gen_row: int
    patch: int  # in the vision tower and the connector, before it is an und row
    label: int
    pair: int

    @classmethod
    def of(cls, model: Bagel) -> "TokenFlops":
        """Count the weights of a model, sharded or not."""
        decoder, llm = model.language_model.model, model.config.llm
        gen = [p for name, p in decoder.named_parameters() if "_moe_gen" in name]
        und = [p for name, p in decoder.named_parameters() if "_moe_gen" not in name and "embed_tokens" not in name]
        ends = [p for part in (model.vae2llm, model.llm2vae, model.time_embedder) for p in part.parameters()]
        tower = [p for name, p in model.vit_model.named_parameters() if "position_embedding" not in name]
        return cls(
            und_row=_flops(und),
            gen_row=_flops([*gen, *ends]),
            patch=_flops([*tower, *model.connector.parameters()]),
            label=_flops([model.language_model.lm_head.weight]),
            pair=12 * llm.hidden_size * llm.num_hidden_layers,
        )

    def of_pack(self, batch: "SimpleCustomBatch") -> int:
        """Return the operations of one pack; padding costs nothing."""
        present = vars(batch)
        patches = len(batch.packed_vit_token_indexes) if "packed_vit_tokens" in present else 0
        latents = len(batch.packed_vae_token_indexes) if "packed_vae_token_indexes" in present else 0
        labels = len(batch.ce_loss_indexes) if "ce_loss_indexes" in present else 0
        samples = batch.sample_lens[:-1] if "split_lens" in present else batch.sample_lens
        return (
            self.und_row * (batch.sequence_length - latents)
            + self.gen_row * latents
            + self.patch * patches
            + self.label * labels
            + self.pair * sum(length**2 for length in samples)
        )


def _flops(parameters: list[nn.Parameter]) -> int:
    return sum(p.numel() * (_TRAINED if p.requires_grad else _FROZEN) for p in parameters)
