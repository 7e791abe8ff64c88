"""Which samples share a pack: the mixture, the buffer of samples set aside, and the budgets (SPEC 3)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from automodel_data.errors import DataError, SkipSample
from automodel_data.multimodal.mixture import Mixture
from automodel_data.multimodal.pack_builder import OpenPack
from automodel_data.multimodal.plan import Sample
from automodel_data.multimodal.policy import PackingPolicy, Verdict
from automodel_data.randomness import Randomness


@dataclass(eq=False, slots=True, kw_only=True)
class Packer:
    """Fills packs, without end.

    Args:
        mixture: Gives samples, and counts those that are lost.
        policy: The budgets.
        lay_out: Adds a sample to a pack; raises ``SkipSample`` where condition dropout leaves nothing of it.
        buffer: Samples set aside, oldest first.
    """

    mixture: Mixture
    policy: PackingPolicy
    lay_out: Callable[[Sample, OpenPack], OpenPack]
    buffer: list[Sample] = field(default_factory=list)

    def packs(self, rng: Randomness) -> Iterator[OpenPack]:
        """Yield closed packs; ``rng`` draws the groups.

        Raises:
            DataError: a source gives nothing, or a sample takes more tokens than it says.
        """
        pack = OpenPack()
        while True:
            if pack.num_tokens == 0:
                self._add_mandatory(pack)
            from_buffer = pack.num_tokens < self.policy.prefer_buffer_before and bool(self.buffer)
            sample = self.buffer.pop(0) if from_buffer else self.mixture.draw(rng).next()
            match self.policy.judge(sample.length, pack.num_tokens, from_buffer, len(self.buffer)):
                case Verdict.TOO_LONG:
                    self._reject_too_long(sample)
                case Verdict.SET_ASIDE:
                    self.buffer.append(sample)
                case Verdict.CLOSE_WITHOUT:
                    self.mixture.source_of(sample).give_up(sample, "pack and buffer full")
                    yield pack
                    pack = OpenPack()
                case Verdict.ADD:
                    self._add(sample, pack)
                    if pack.num_tokens >= self.policy.expected_num_tokens:
                        yield pack
                        pack = OpenPack()

    def _add_mandatory(self, pack: OpenPack) -> None:
        for group in self.mixture.mandatory:
            while (sample := group.next()).length >= self.policy.max_num_tokens_per_sample:
                self._reject_too_long(sample)
            self._add(sample, pack)

    def _add(self, sample: Sample, pack: OpenPack) -> None:
        before = pack.num_tokens
        try:
            self.lay_out(sample, pack)
        except SkipSample as error:
            self.mixture.reject(sample, error.reason, error.detail)
        if (taken := pack.num_tokens - before) > sample.length:
            raise DataError(
                f"{self.mixture.where(sample)}: the sample takes {taken} tokens, but its num_tokens "
                f"({sample.num_tokens}) and two for each of its {len(sample.plan)} items make {sample.length}: "
                "count every text id and image patch in num_tokens"
            )

    def _reject_too_long(self, sample: Sample) -> None:
        limit = self.policy.max_num_tokens_per_sample
        self.mixture.reject(sample, "too long", f"{sample.length} tokens, max_num_tokens_per_sample is {limit}")
