"""Token budgets: does a sample fit the open pack, and when is a pack full."""

from dataclasses import dataclass
from enum import Enum, auto

from automodel_data.errors import DataError


class Verdict(Enum):
    """What becomes of a sample."""

    ADD = auto()
    SET_ASIDE = auto()
    TOO_LONG = auto()
    CLOSE_WITHOUT = auto()


@dataclass(frozen=True, kw_only=True, slots=True)
class PackingPolicy:
    """Budgets in tokens, as in BAGEL's packed dataset.

    Args:
        expected_num_tokens: A pack with this many is full.
        max_num_tokens_per_sample: Longer samples are dropped.
        max_num_tokens: No pack holds more.
        prefer_buffer_before: Below this the pack takes from the buffer first.
        max_buffer_size: Most samples set aside, because they did not fit.
    """

    expected_num_tokens: int
    max_num_tokens_per_sample: int
    max_num_tokens: int
    prefer_buffer_before: int
    max_buffer_size: int

    def judge(self, sample_tokens: int, pack_tokens: int, from_buffer: bool, buffered: int) -> Verdict:
        """Decide about a sample before it is packed."""
        if sample_tokens > self.max_num_tokens_per_sample:
            return Verdict.TOO_LONG
        if pack_tokens + sample_tokens <= self.max_num_tokens:
            return Verdict.ADD
        if not from_buffer and buffered < self.max_buffer_size:
            return Verdict.SET_ASIDE
        return Verdict.CLOSE_WITHOUT

    def check(self, mandatory_groups: int) -> None:
        """Refuse budgets that contradict each other.

        Raises:
            DataError: naming the two keys and their values.
        """
        for name in ("expected_num_tokens", "max_num_tokens_per_sample"):
            value = getattr(self, name)
            if value > self.max_num_tokens:
                raise DataError(
                    f"{name} ({value}) must not exceed max_num_tokens ({self.max_num_tokens}): "
                    "lower the one or raise the other"
                )
            if value <= 0:
                raise DataError(f"{name} ({value}) must be above 0")
        if self.max_buffer_size < 0:
            raise DataError(f"max_buffer_size ({self.max_buffer_size}) must not be negative")
        needed = mandatory_groups * (self.max_num_tokens_per_sample - 1)
        if needed > self.max_num_tokens:
            raise DataError(
                f"{mandatory_groups} mandatory groups may bring {needed} tokens, more than max_num_tokens "
                f"({self.max_num_tokens}): lower max_num_tokens_per_sample ({self.max_num_tokens_per_sample}), raise "
                "max_num_tokens, or make fewer groups mandatory (is_mandatory)"
            )
