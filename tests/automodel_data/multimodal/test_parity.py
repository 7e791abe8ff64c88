"""The batches equal those of the published implementation, bit for bit."""

import hashlib
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

CASES = [
    "t2i_only",
    "edit_only",
    "vlm_only",
    "mix_flex",
    "mix_nested",
    "mix_tight",
    "mix_rank0of2",
    "mix_workers2",
]


def differs(want: Any, got: Any) -> bool:
    """Compare one part of a batch with its golden form."""
    if not isinstance(got, torch.Tensor):
        if isinstance(want, list) and want and isinstance(want[0], dict) and "sha256" in want[0]:
            return len(want) != len(got) or any(differs(w, g) for w, g in zip(want, got, strict=True))
        return want != (list(map(list, got)) if got and isinstance(got, list) and isinstance(got[0], tuple) else got)
    if want["dtype"] != str(got.dtype).removeprefix("torch.") or want["shape"] != list(got.shape):
        return True
    if "data" in want:
        return want["data"] != [value if math.isfinite(value) else str(value) for value in got.flatten().tolist()]
    return want["sha256"] != hashlib.sha256(got.contiguous().numpy().tobytes()).hexdigest()


@pytest.mark.parametrize("case", CASES)
def test_the_first_batches_equal_the_golden_ones(
    case: str, golden: Callable[[str], dict[str, Any]], build_golden: Callable[..., Any]
) -> None:
    wanted = golden(case)["batches"]
    for number, (want, batch) in enumerate(zip(wanted, build_golden(case).dataloader, strict=False)):
        got = batch.to_dict()
        assert got.keys() == want.keys(), f"batch {number}"
        assert [key for key in want if differs(want[key], got[key])] == [], f"batch {number}"
    assert number + 1 == len(wanted) == 6
