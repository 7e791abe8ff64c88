"""A sample is packed, set aside, or given up by its length and the pack's; budgets that contradict are refused."""

from dataclasses import replace

import pytest

from automodel_data.errors import DataError
from automodel_data.multimodal.policy import PackingPolicy, Verdict

POLICY = PackingPolicy(
    expected_num_tokens=30,
    max_num_tokens_per_sample=20,
    max_num_tokens=40,
    prefer_buffer_before=10,
    max_buffer_size=2,
)


@pytest.mark.parametrize(
    ("sample", "pack", "from_buffer", "buffered", "verdict"),
    [
        (21, 0, False, 0, Verdict.TOO_LONG),
        (20, 0, False, 0, Verdict.ADD),
        (20, 20, False, 0, Verdict.ADD),
        (20, 21, False, 0, Verdict.SET_ASIDE),
        (20, 21, False, 1, Verdict.SET_ASIDE),
        (20, 21, False, 2, Verdict.CLOSE_WITHOUT),
        (20, 21, True, 1, Verdict.CLOSE_WITHOUT),
    ],
)
def test_a_sample_is_judged_by_its_length_and_the_room_left(
    sample: int, pack: int, from_buffer: bool, buffered: int, verdict: Verdict
) -> None:
    assert POLICY.judge(sample, pack, from_buffer, buffered) is verdict


@pytest.mark.parametrize(
    ("change", "mandatory", "message"),
    [
        (
            {"max_num_tokens_per_sample": 41},
            0,
            r"max_num_tokens_per_sample \(41\) must not exceed max_num_tokens \(40\): lower",
        ),
        ({"expected_num_tokens": 41}, 0, r"expected_num_tokens \(41\) must not exceed max_num_tokens \(40\): lower"),
        ({"expected_num_tokens": 0}, 0, r"expected_num_tokens \(0\) must be above 0"),
        ({"max_num_tokens_per_sample": 0}, 0, r"max_num_tokens_per_sample \(0\) must be above 0"),
        ({"max_buffer_size": -1}, 0, r"max_buffer_size \(-1\) must not be negative"),
        (
            {},
            3,
            r"3 mandatory groups may bring 57 tokens, more than max_num_tokens \(40\): lower "
            r"max_num_tokens_per_sample \(20\), raise max_num_tokens, or make fewer groups mandatory",
        ),
    ],
)
def test_budgets_that_contradict_each_other_are_refused_with_both(
    change: dict[str, int], mandatory: int, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        replace(POLICY, **change).check(mandatory_groups=mandatory)


def test_budgets_that_agree_pass() -> None:
    replace(POLICY, max_num_tokens_per_sample=40, expected_num_tokens=40).check(mandatory_groups=1)
    POLICY.check(mandatory_groups=2)
