"""FLUX.1 and, with contexts, FLUX.1 Kontext (Black Forest Labs, 2024 and 2025), by diffusers' transformer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from recipes.mistakes import ConfigError
from recipes.models.flow.inputs import FlowInputs, Grid, to_latents


@dataclass(frozen=True, kw_only=True, slots=True)
class FluxConfig:
    """Makes the model.

    Args:
        transformer: Makes diffusers' ``FluxTransformer2DModel``, fresh or from a folder.
        guidance: What transformers with ``guidance_embeds`` (dev, Kontext) are told; others (schnell) do not ask.
        vae: Makes the VAE of its latents; ``task=latents`` decodes pictures with it.
    """

    transformer: Callable[[], nn.Module]
    guidance: float = 1.0
    vae: Callable[[], nn.Module] | None = None

    def build(self) -> "Flux":
        """Build it."""
        return Flux(self.transformer(), self.guidance)


class Flux(nn.Module):
    """Predicts velocity [B, C, H, W]. FLUX has no text mask: padded prompts are part of what it was trained on."""

    def __init__(self, transformer: nn.Module, guidance: float) -> None:
        super().__init__()
        self.transformer = transformer
        self.guidance = guidance if transformer.config.guidance_embeds else None

    def forward(self, inputs: FlowInputs) -> Tensor:
        """Run the transformer and keep the target's span.

        Raises:
            ConfigError: The batch has no pooled prompts.
        """
        if inputs.pooled_BD is None:
            raise ConfigError(_no_pooled(inputs.conditioning))
        tokens_BNF, grids = inputs.tokens()
        time_B = inputs.time_B
        velocity = self.transformer(
            hidden_states=tokens_BNF,
            encoder_hidden_states=inputs.text_BSD,
            pooled_projections=inputs.pooled_BD,
            timestep=time_B,  # the transformer itself multiplies by 1000
            img_ids=image_ids(grids, tokens_BNF.device),
            txt_ids=torch.zeros(inputs.text_BSD.shape[1], 3, device=tokens_BNF.device),
            guidance=None if self.guidance is None else torch.full_like(time_B, self.guidance),
            return_dict=False,
        )[0]
        h, w = grids[0]
        return to_latents(velocity[:, : h * w], grids[0])


def _no_pooled(conditioning: Sequence[str]) -> str:
    if not conditioning:
        return "FLUX needs pooled prompts, and the cache has no conditioning tensors: encode it with encoder.pooled"
    return (
        "FLUX needs pooled prompts, and task.pooled chooses none of the cache's conditioning tensors: name that with "
        f"one vector per prompt, task.pooled={' | '.join(conditioning)}; or encode the cache with encoder.pooled"
    )


def image_ids(grids: list[Grid], device: torch.device) -> Tensor:
    """Return [N, 3]: which image (the target is 0), row and column of every token."""
    ids = []
    for image, (h, w) in enumerate(grids):
        rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        ids.append(torch.stack([torch.full_like(rows, image), rows, columns], dim=-1).reshape(h * w, 3))
    return torch.cat(ids).to(device, torch.float32)
