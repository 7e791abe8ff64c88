"""Qwen-Image and Qwen-Image-Edit (Wu et al., 2025), by diffusers' transformer."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from recipes.models.flow.inputs import FlowInputs, to_latents


@dataclass(frozen=True, kw_only=True, slots=True)
class QwenImageConfig:
    """Makes the model.

    Args:
        transformer: Makes diffusers' ``QwenImageTransformer2DModel``, fresh or from a folder.
        vae: Makes the VAE of its latents; ``task=latents`` decodes pictures with it.
    """

    transformer: Callable[[], nn.Module]
    vae: Callable[[], nn.Module] | None = None

    def build(self) -> "QwenImage":
        """Build it; what the last block computes for text is thrown away, so those weights do not train."""
        transformer = self.transformer()
        last = transformer.transformer_blocks[-1]
        for unused in (last.txt_mlp, last.attn.to_add_out):
            unused.requires_grad_(False)
        return QwenImage(transformer)


class QwenImage(nn.Module):
    """Predicts velocity [B, C, H, W]; the text mask keeps padding out of the attention."""

    def __init__(self, transformer: nn.Module) -> None:
        super().__init__()
        self.transformer = transformer

    def forward(self, inputs: FlowInputs) -> Tensor:
        """Run the transformer and keep the target's span."""
        tokens_BNF, grids = inputs.tokens()
        velocity = self.transformer(
            hidden_states=tokens_BNF,
            encoder_hidden_states=inputs.text_BSD,
            encoder_hidden_states_mask=inputs.mask_BS,
            timestep=inputs.time_B,  # the transformer itself multiplies by 1000
            img_shapes=[[(1, h, w) for h, w in grids]] * len(tokens_BNF),
            return_dict=False,
        )[0]
        h, w = grids[0]
        return to_latents(velocity[:, : h * w], grids[0])
