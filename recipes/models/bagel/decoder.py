"""The decoder of two experts: every pointwise weight exists twice, attention is joint (Mixture of Transformers).

Rows stand in expert order: text and ViT rows first (und), latent rows after (gen, weights named ``*_moe_gen``). A pair
of modules then works on two contiguous slices. Flavour of the layers: Qwen2 with RMSNorm on queries and keys.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recipes.mistakes import ConfigError
from recipes.models.bagel.attention import PackedAttention


@dataclass(frozen=True, kw_only=True, slots=True)
class LlmConfig:
    """Sizes of one expert, in the words of Qwen2's configuration.

    Attributes:
        hidden_size: Channels of a token.
        intermediate_size: Channels inside the MLP.
        num_hidden_layers: Decoder layers.
        num_attention_heads: Query heads.
        num_key_value_heads: Key and value heads, each shared by a group of query heads.
        vocab_size: Rows of the embedding; at least as many as the tokenizer has tokens.
        pad_token_id: A row of the embedding that stays zero and never learns, or None.
        rope_theta: Base of the rotary position embedding's wavelengths.
        rms_norm_eps: Added to the mean square in RMSNorm.
        qk_norm: Normalize queries and keys head by head.
        initializer_range: Standard deviation of fresh weights.
    """

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    vocab_size: int
    pad_token_id: int | None = None
    rope_theta: float = 1e6
    rms_norm_eps: float = 1e-6
    qk_norm: bool = True
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        if self.hidden_size % self.num_attention_heads or self.head_dim % 2:
            raise ConfigError(
                f"hidden_size ({self.hidden_size}) must be an even multiple of "
                f"num_attention_heads ({self.num_attention_heads})"
            )
        if self.num_attention_heads % self.num_key_value_heads:
            raise ConfigError(
                f"num_attention_heads ({self.num_attention_heads}) must be divisible by "
                f"num_key_value_heads ({self.num_key_value_heads})"
            )
        if self.pad_token_id is not None and not 0 <= self.pad_token_id < self.vocab_size:
            raise ConfigError(
                f"pad_token_id ({self.pad_token_id}) must lie below vocab_size ({self.vocab_size}), or be null"
            )

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads


@dataclass(frozen=True, kw_only=True, slots=True)
class Routing:
    """Where the rows of one pack lie, and what each layer needs to know of it.

    Attributes:
        rows: Pack row of each row in expert order, int64 [L].
        place: Row in expert order of each pack row, the inverse.
        num_und: How many rows, the first ones, are the understanding expert's.
        positions: Rotary position of each row, int64 [L], in expert order. Each layer makes its tables from them: a
            sharded layer may have floating-point inputs cast to bfloat16, which is too coarse for angles.
        attention: Joint attention over rows in pack order.
    """

    rows: Tensor
    place: Tensor
    num_und: int
    positions: Tensor
    attention: PackedAttention

    def apply(self, x: Tensor, und: Callable[[Tensor], Tensor], gen: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply each expert to its own rows."""
        return torch.cat([und(x[: self.num_und]), gen(x[self.num_und :])])


def rope_tables(positions_L: Tensor, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Return cosines and sines [L, 1, head_dim] of rotary position embedding, float32, both halves alike (NeoX)."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device=positions_L.device) / head_dim
    angles = positions_L.float()[:, None] * (1.0 / theta**exponents)
    angles = torch.cat([angles, angles], dim=1)[:, None]
    return angles.cos(), angles.sin()


def rotate(x_LHd: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate heads by their positions, in float32."""
    cos, sin = rope
    x = x_LHd.float()
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class LanguageModel(nn.Module):
    """The decoder and its head, under the names that the published checkpoint gives them."""

    def __init__(self, config: LlmConfig, *, freeze_und: bool) -> None:
        super().__init__()
        self.model = MotDecoder(config, freeze_und=freeze_und)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)


class MotDecoder(nn.Module):
    """Token embedding, layers and final norms; rows [L, D] in expert order go in and come out."""

    def __init__(self, config: LlmConfig, *, freeze_und: bool) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        layers = [MotLayer(config, freeze_und=freeze_und) for _ in range(config.num_hidden_layers)]
        self.layers = nn.ModuleList(layers)
        self.norm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.norm_moe_gen = RmsNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x_LD: Tensor, routing: Routing) -> Tensor:
        for layer in self.layers:
            x_LD = layer(x_LD, routing)
        return routing.apply(x_LD, self.norm, self.norm_moe_gen)


class MotLayer(nn.Module):
    """One pre-norm layer; the unit of sharding and of activation checkpointing."""

    def __init__(self, config: LlmConfig, *, freeze_und: bool) -> None:
        super().__init__()
        width, eps = config.hidden_size, config.rms_norm_eps
        self.input_layernorm = RmsNorm(width, eps)
        self.input_layernorm_moe_gen = RmsNorm(width, eps)
        self.self_attn = MotAttention(config, freeze_und=freeze_und)
        self.post_attention_layernorm = RmsNorm(width, eps)
        self.post_attention_layernorm_moe_gen = RmsNorm(width, eps)
        self.mlp = GatedMlp(width, config.intermediate_size)
        self.mlp_moe_gen = GatedMlp(width, config.intermediate_size)

    def forward(self, x_LD: Tensor, routing: Routing) -> Tensor:
        normed = routing.apply(x_LD, self.input_layernorm, self.input_layernorm_moe_gen)
        x_LD = x_LD + self.self_attn(normed, routing)
        return x_LD + routing.apply(
            x_LD,
            und=lambda x: self.mlp(self.post_attention_layernorm(x)),
            gen=lambda x: self.mlp_moe_gen(self.post_attention_layernorm_moe_gen(x)),
        )


class MotAttention(nn.Module):
    """Projections per expert around one attention over all rows.

    With ``freeze_und`` what und rows gather is cut from the graph: together with und weights that take no gradient
    this keeps every gradient out of und rows, while gen rows still attend to them.
    """

    def __init__(self, config: LlmConfig, *, freeze_und: bool) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.rope_theta = config.rope_theta
        self.freeze_und = freeze_und
        width, kv_width = config.hidden_size, config.num_key_value_heads * config.head_dim
        for expert in ("", "_moe_gen"):
            self.add_module(f"q_proj{expert}", nn.Linear(width, width))
            self.add_module(f"k_proj{expert}", nn.Linear(width, kv_width))
            self.add_module(f"v_proj{expert}", nn.Linear(width, kv_width))
            self.add_module(f"o_proj{expert}", nn.Linear(width, width, bias=False))
            for norm in (f"q_norm{expert}", f"k_norm{expert}"):
                self.add_module(norm, RmsNorm(self.head_dim, config.rms_norm_eps) if config.qk_norm else nn.Identity())

    def forward(self, x_LD: Tensor, routing: Routing) -> Tensor:
        q = routing.apply(
            x_LD,
            und=lambda x: self.q_norm(self._heads(self.q_proj(x))),
            gen=lambda x: self.q_norm_moe_gen(self._heads(self.q_proj_moe_gen(x))),
        )
        k = routing.apply(
            x_LD,
            und=lambda x: self.k_norm(self._heads(self.k_proj(x))),
            gen=lambda x: self.k_norm_moe_gen(self._heads(self.k_proj_moe_gen(x))),
        )
        v = self._heads(routing.apply(x_LD, self.v_proj, self.v_proj_moe_gen))
        rope = rope_tables(routing.positions, self.head_dim, self.rope_theta)
        q, k = rotate(q, rope).to(v.dtype), rotate(k, rope).to(v.dtype)
        gathered = routing.attention(*(x[routing.place] for x in (q, k, v))).flatten(1)
        return routing.apply(
            gathered[routing.rows],
            und=lambda x: self.o_proj(x.detach() if self.freeze_und else x),
            gen=self.o_proj_moe_gen,
        )

    def _heads(self, x_ND: Tensor) -> Tensor:
        return x_ND.unflatten(-1, (-1, self.head_dim))


class GatedMlp(nn.Module):
    """SwiGLU without biases."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, hidden, bias=False)
        self.up_proj = nn.Linear(width, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x_ND: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x_ND)) * self.up_proj(x_ND))


class RmsNorm(nn.Module):
    """Root-mean-square norm, in float32 whatever comes in; the weight applies after casting back."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)).to(x.dtype)
