"""The SigLIP tower in NaViT form: patches of many images end to end, each image at its own size.

Method: SigLIP (Zhai et al., 2023), NaViT (Dehghani et al., 2023).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from recipes.mistakes import ConfigError
from recipes.models.bagel.attention import PackedAttention, SampleAttention


@dataclass(frozen=True, kw_only=True, slots=True)
class VisionConfig:
    """Sizes of the tower; ``num_hidden_layers`` counts those of the stock model.

    Attributes:
        hidden_size: Channels of a patch's token.
        intermediate_size: Channels inside the MLP.
        num_hidden_layers: Encoder layers of the stock model.
        num_attention_heads: Attention heads.
        image_size: Longest side in pixels that the learned table of positions covers.
        patch_size: Pixels on a side of a patch.
        select_layer: Which stock layer's output is used, from the end; the layers after it are not built.
        layer_norm_eps: Added to the variance in LayerNorm.
    """

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    image_size: int
    patch_size: int = 14
    select_layer: int = -2
    layer_norm_eps: float = 1e-6

    def __post_init__(self) -> None:
        if self.hidden_size % self.num_attention_heads:
            raise ConfigError(
                f"hidden_size ({self.hidden_size}) must be divisible by "
                f"num_attention_heads ({self.num_attention_heads})"
            )
        if not -self.num_hidden_layers <= self.select_layer < 0:
            raise ConfigError(
                f"select_layer ({self.select_layer}) must count from the end, between "
                f"-1 and -num_hidden_layers ({-self.num_hidden_layers})"
            )

    @property
    def layers_built(self) -> int:
        return self.num_hidden_layers + 1 + self.select_layer

    @property
    def max_patches_per_side(self) -> int:
        """Patches in a row of the position table: a patch's id is ``row * max_patches_per_side + column``."""
        return self.image_size // self.patch_size

    @property
    def patch_features(self) -> int:
        return 3 * self.patch_size**2


class SiglipTower(nn.Module):
    """The tower under the name that the published checkpoint gives it."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.vision_model = _VisionModel(config)

    def forward(self, patches_NF: Tensor, position_ids_N: Tensor, lengths: Sequence[int]) -> Tensor:
        """Encode patches [N, 3 * patch**2] of images with ``lengths`` patches each to [N, D]."""
        return self.vision_model(patches_NF, position_ids_N, lengths)


class _VisionModel(nn.Module):
    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.embeddings = _Embeddings(config)
        self.encoder = _Encoder(config)
        self.post_layernorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, patches_NF: Tensor, position_ids_N: Tensor, lengths: Sequence[int]) -> Tensor:
        within_images = SampleAttention(lengths, [None] * len(lengths))
        return self.post_layernorm(self.encoder(self.embeddings(patches_NF, position_ids_N), within_images))


class _Embeddings(nn.Module):
    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.patch_embedding = nn.Linear(config.patch_features, config.hidden_size)
        self.position_embedding = nn.Embedding(config.max_patches_per_side**2, config.hidden_size)

    def forward(self, patches_NF: Tensor, position_ids_N: Tensor) -> Tensor:
        patches = patches_NF.to(self.patch_embedding.weight.dtype)
        return self.patch_embedding(patches) + self.position_embedding(position_ids_N)


class _Encoder(nn.Module):
    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList([VisionLayer(config) for _ in range(config.layers_built)])

    def forward(self, x_ND: Tensor, attention: PackedAttention) -> Tensor:
        for layer in self.layers:
            x_ND = layer(x_ND, attention)
        return x_ND


class VisionLayer(nn.Module):
    """A pre-norm transformer layer with biases everywhere."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.layer_norm1 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.self_attn = _SelfAttention(config)
        self.layer_norm2 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.mlp = _Mlp(config)

    def forward(self, x_ND: Tensor, attention: PackedAttention) -> Tensor:
        x_ND = x_ND + self.self_attn(self.layer_norm1(x_ND), attention)
        return x_ND + self.mlp(self.layer_norm2(x_ND))


class _SelfAttention(nn.Module):
    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.q_proj = nn.Linear(config.hidden_size, config.hidden_size)
        self.k_proj = nn.Linear(config.hidden_size, config.hidden_size)
        self.v_proj = nn.Linear(config.hidden_size, config.hidden_size)
        self.out_proj = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, x_ND: Tensor, attention: PackedAttention) -> Tensor:
        q, k, v = (p(x_ND).unflatten(-1, (self.num_heads, -1)) for p in (self.q_proj, self.k_proj, self.v_proj))
        return self.out_proj(attention(q, k, v).flatten(1))


class _Mlp(nn.Module):
    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x_ND: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x_ND), approximate="tanh"))
