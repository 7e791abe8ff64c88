from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import Qwen2Config, Qwen2ForCausalLM

from recipes.mistakes import ConfigError
from recipes.models.bagel import LlmConfig
from recipes.models.bagel.attention import plan_attention
from recipes.models.bagel.decoder import MotLayer, Routing, rope_tables, rotate
from recipes.models.bagel.masks import Splits

SPLITS = Splits(
    sample_lens=[11, 6, 3],
    split_lens=[3, 4, 4, 2, 4, 3],
    modes=["causal", "full", "noise", "causal", "noise", "causal"],
)
GEN = torch.zeros(17, dtype=torch.bool)
GEN[[4, 5, 8, 9, 14, 15]] = True
POSITIONS = torch.tensor([0, 1, 2, 3, 3, 3, 3, 4, 4, 4, 4, 0, 1, 2, 2, 2, 2])


@pytest.fixture
def llm() -> LlmConfig:
    return LlmConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=40,
    )


@pytest.fixture
def layer(llm, seeded) -> MotLayer:
    """Return a layer whose weights are all different, the norms' too."""
    layer, generator = MotLayer(llm, freeze_und=False).double(), seeded(0)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, mean=1.0 if parameter.ndim == 1 else 0.0, std=0.3, generator=generator)
    return layer


def route() -> Routing:
    rows = torch.cat([(~GEN).nonzero()[:, 0], GEN.nonzero()[:, 0]])
    return Routing(
        rows=rows,
        place=rows.argsort(),
        num_und=int((~GEN).sum()),
        positions=POSITIONS[rows],
        attention=plan_attention("sdpa", SPLITS, torch.device("cpu")),
    )


def naive(layer: MotLayer, llm: LlmConfig, x: Tensor) -> Tensor:
    """Compute the layer in pack order, each row by the expert that its class names, one dense mask over all."""

    def by_class(und: nn.Module, gen: nn.Module, x: Tensor) -> Tensor:
        return torch.stack([gen(row) if is_gen else und(row) for row, is_gen in zip(x, GEN, strict=True)])

    attn = layer.self_attn
    y = by_class(layer.input_layernorm, layer.input_layernorm_moe_gen, x)
    q = by_class(attn.q_proj, attn.q_proj_moe_gen, y).unflatten(-1, (-1, llm.head_dim))
    k = by_class(attn.k_proj, attn.k_proj_moe_gen, y).unflatten(-1, (-1, llm.head_dim))
    v = by_class(attn.v_proj, attn.v_proj_moe_gen, y).unflatten(-1, (-1, llm.head_dim))
    rope = rope_tables(POSITIONS, llm.head_dim, llm.rope_theta)
    q = rotate(by_class(attn.q_norm, attn.q_norm_moe_gen, q), rope).double().transpose(0, 1)
    k = rotate(by_class(attn.k_norm, attn.k_norm_moe_gen, k), rope).double().transpose(0, 1).repeat_interleave(2, 0)
    v = v.transpose(0, 1).repeat_interleave(2, 0)
    rows = torch.arange(len(GEN))
    seen = SPLITS.rule(torch.device("cpu"))(rows[:, None], rows[None, :])
    scores = (q @ k.transpose(1, 2) / llm.head_dim**0.5).masked_fill(~seen, -torch.inf)
    gathered = (scores.softmax(-1) @ v).transpose(0, 1).flatten(1)
    x = x + by_class(attn.o_proj, attn.o_proj_moe_gen, gathered)
    return x + by_class(
        nn.Sequential(layer.post_attention_layernorm, layer.mlp),
        nn.Sequential(layer.post_attention_layernorm_moe_gen, layer.mlp_moe_gen),
        x,
    )


def gradients(layer: MotLayer, output: Tensor, x: Tensor) -> dict[str, Tensor]:
    weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    names = [name for name, _ in layer.named_parameters()]
    found = torch.autograd.grad((output * weights).sum(), [x, *layer.parameters()])
    return dict(zip(["input", *names], found, strict=True))


def test_experts_on_slices_equal_experts_row_by_row_in_values_and_gradients(layer, llm, seeded):
    x = torch.randn(17, 32, generator=seeded(1), dtype=torch.float64, requires_grad=True)
    routing = route()

    on_slices = layer(x[routing.rows], routing)[routing.place]
    row_by_row = naive(layer, llm, x)

    torch.testing.assert_close(on_slices, row_by_row, rtol=1e-5, atol=1e-6)
    expected = gradients(layer, row_by_row, x)
    for name, gradient in gradients(layer, on_slices, x).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-5, msg=name)


def test_without_query_and_key_norms_there_are_no_such_weights(llm):
    names = [name for name, _ in MotLayer(replace(llm, qk_norm=False), freeze_und=False).named_parameters()]
    assert not [name for name in names if "q_norm" in name or "k_norm" in name]


def test_text_alone_goes_through_as_in_qwen2(tiny_config, seeded, text_pack):
    qwen = Qwen2ForCausalLM(
        Qwen2Config(
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            vocab_size=40,
            rope_parameters={"rope_type": "default", "rope_theta": 1e6},
            tie_word_embeddings=False,
        )
    )
    generator = seeded(3)
    for parameter in qwen.parameters():
        nn.init.normal_(parameter, std=0.3, generator=generator)
    model = replace(tiny_config, llm=replace(tiny_config.llm, qk_norm=False)).build(generator=seeded(0))
    model.language_model.load_state_dict(qwen.state_dict(), strict=False)

    ce = model(text_pack).ce

    text = text_pack.text.ids
    theirs = [qwen(input_ids=ids[None]).logits[0] for ids in text.split([5, 4])]
    expected = F.cross_entropy(torch.cat(theirs)[text_pack.labels.rows], text_pack.labels.ids, reduction="none")
    torch.testing.assert_close(ce, expected, rtol=1e-4, atol=1e-5)


def test_rotation_depends_on_distance_alone(seeded):
    q, k = torch.randn(2, 1, 1, 16, generator=seeded(0))

    def score(a: int, b: int) -> Tensor:
        return (
            rotate(q, rope_tables(torch.tensor([a]), 16, 1e4)) * rotate(k, rope_tables(torch.tensor([b]), 16, 1e4))
        ).sum()

    torch.testing.assert_close(score(3, 1), score(12, 10))
    assert not torch.isclose(score(3, 1), score(3, 2))


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"hidden_size": 34}, r"hidden_size \(34\).*num_attention_heads \(4\)"),
        ({"num_key_value_heads": 3}, r"num_attention_heads \(4\).*num_key_value_heads \(3\)"),
        ({"pad_token_id": 40}, r"pad_token_id \(40\) must lie below vocab_size \(40\)"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_by_name(llm, wrong, named):
    with pytest.raises(ConfigError, match=named):
        replace(llm, **wrong)
