"""What is added to a row besides its content: where its patch lies and how noisy it is."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_TIME_CHANNELS = 256
_BASE = 10000.0


def sincos_2d(ids_N: Tensor, side: int, dim: int) -> Tensor:
    """Embed flattened grid positions ``row * side + column`` by sines and cosines (ViT; MAE's 2-D layout).

    Returns:
        float32 [N, dim]: sin and cos of the column, then of the row, dim / 4 values each. Computed in float64 per
        coordinate, so no table of side**2 rows is kept. Ids from side**2 on raise an IndexError.
    """
    frequencies = _BASE ** (-torch.arange(dim // 4, dtype=torch.float64, device=ids_N.device) / (dim / 4))
    angles = torch.arange(side, dtype=torch.float64, device=ids_N.device)[:, None] * frequencies
    coordinate = torch.cat([angles.sin(), angles.cos()], dim=1).float()
    return torch.cat([coordinate[ids_N % side], coordinate[ids_N // side]], dim=1)


class Connector(nn.Module):
    """Two layers from the vision tower's width to the decoder's."""

    def __init__(self, vision_width: int, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(vision_width, width)
        self.fc2 = nn.Linear(width, width)

    def forward(self, x_ND: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x_ND), approximate="tanh"))


class TimestepEmbedder(nn.Module):
    """Embed flow times in [0, 1], unscaled, by 128 frequencies (cosines first) and two layers (DiT)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(_TIME_CHANNELS, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, time_N: Tensor) -> Tensor:
        half = _TIME_CHANNELS // 2
        frequencies = _BASE ** (-torch.arange(half, dtype=torch.float32, device=time_N.device) / half)
        angles = time_N.float()[:, None] * frequencies
        waves = torch.cat([angles.cos(), angles.sin()], dim=1)
        return self.mlp(waves.to(self.mlp[0].weight.dtype))
