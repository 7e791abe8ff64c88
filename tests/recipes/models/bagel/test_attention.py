import pytest
import torch

from recipes.models.bagel.attention import FlexAttention, SampleAttention, plan_attention, plan_flex
from recipes.models.bagel.masks import SampleMasks, Splits

CPU = torch.device("cpu")
SPLITS = Splits(
    sample_lens=[150, 90, 60],
    split_lens=[40, 70, 40, 90, 60],
    modes=["full", "noise", "causal", "causal", "causal"],
)


@pytest.fixture
def qkv(seeded) -> list[torch.Tensor]:
    """Return q with 4 heads and k, v with 2, of 240 rows."""
    return [torch.randn(240, heads, 16, generator=seeded(heads)) for heads in (4, 2, 2)]


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_and_per_sample_attention_agree(qkv):
    per_sample = plan_attention("auto", SPLITS, CPU)
    with torch.no_grad():
        assert isinstance(per_sample, SampleAttention)
        torch.testing.assert_close(plan_flex(SPLITS, CPU, compiled=False)(*qkv), per_sample(*qkv), rtol=1e-4, atol=1e-5)


def test_flex_skips_the_blocks_that_nobody_may_see():
    long = Splits(sample_lens=[256, 256, 128], split_lens=[256, 256, 128], modes=["full", "full", "causal"])
    plan = plan_flex(long, CPU, compiled=False)
    assert isinstance(plan, FlexAttention)
    assert plan.block_mask.sparsity() == pytest.approx(100 * (1 - 9 / 25))


def test_attention_is_softmax_over_visible_rows_with_shared_key_heads(qkv):
    rows = torch.arange(SPLITS.padded_length)
    hidden = ~SPLITS.rule(CPU)(rows[:, None], rows[None, :])[:240, :240]
    q, k, v = (x.transpose(0, 1) for x in qkv)
    k, v = k.repeat_interleave(2, 0), v.repeat_interleave(2, 0)
    scores = (q @ k.transpose(1, 2) / 4).masked_fill(hidden, -torch.inf)

    gathered = plan_attention("sdpa", SPLITS, CPU)(*qkv)

    torch.testing.assert_close(gathered, (scores.softmax(-1) @ v).transpose(0, 1), rtol=1e-4, atol=1e-5)


def test_packs_with_nested_masks_attend_sample_by_sample():
    masks = SampleMasks(additive=[torch.zeros(3, 3), torch.zeros(2, 2)])
    plan = plan_attention("auto", masks, CPU)
    assert isinstance(plan, SampleAttention)
    assert plan.lengths == [3, 2]


def test_a_sample_without_rows_gives_no_rows_and_takes_a_gradient():
    q = torch.zeros(0, 4, 8, requires_grad=True)
    gathered = SampleAttention([0], [None])(q, q[:, :2], q[:, :2])
    gathered.sum().backward()
    assert gathered.shape == q.grad.shape == (0, 4, 8)
