"""An exponential moving average of the trained weights."""

from collections.abc import Mapping

import torch
from torch import nn


class Ema:
    """A shadow of every trained parameter, in float32: at 0.9999 a bfloat16 shadow would round each update away."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
        self._decay = decay
        self.shadow = {name: one.detach().float().clone() for name, one in self._trained.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Move the shadow towards the weights: shadow = decay * shadow + (1 - decay) * weight."""
        weights = [one.detach().float() for one in self._trained.values()]
        torch._foreach_lerp_(list(self.shadow.values()), weights, 1 - self._decay)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the shadow by parameter name."""
        return self.shadow

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Take over a saved shadow."""
        for name, one in self.shadow.items():
            one.copy_(state[name])
