"""Groups of samples and their weights: which group gives the next sample."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from automodel_data.multimodal.distributed_iterable import DistributedIterableDataset
from automodel_data.multimodal.plan import Sample
from automodel_data.randomness import Randomness


@dataclass(eq=False, slots=True)
class Group:
    """A source in the mixture."""

    name: str
    source: DistributedIterableDataset
    weight: float
    is_mandatory: bool
    _samples: Iterator[Sample] | None = field(default=None, repr=False)

    def next(self) -> Sample:
        """Return the source's next sample."""
        if self._samples is None:
            self._samples = iter(self.source)
        return next(self._samples)

    def rewind(self, worker_id: int | None) -> None:
        """Let the source start over, as the worker of that number."""
        self._samples = None
        self.source.restart(worker_id)


@dataclass(eq=False, slots=True)
class Mixture:
    """The groups in the order of their config."""

    groups: Sequence[Group]

    @property
    def mandatory(self) -> list[Group]:
        """The groups that give one sample to every pack first."""
        return [group for group in self.groups if group.is_mandatory]

    def draw(self, rng: Randomness) -> Group:
        """Draw a group in proportion to the weights."""
        total = sum(group.weight for group in self.groups)
        bounds = accumulate(group.weight / total for group in self.groups)
        u = rng.uniform()
        for group, bound in zip(self.groups, bounds, strict=True):
            if u < bound:
                return group
        return self.groups[-1]  # the bounds' rounding left a crumb above the last one

    def source(self, name: str) -> DistributedIterableDataset:
        """Return the source of the group of that name."""
        return next(group.source for group in self.groups if group.name == name)

    def source_of(self, sample: Sample) -> DistributedIterableDataset:
        """Return the source that yielded a sample."""
        assert sample.index is not None
        return self.source(sample.index.dataset_name)

    def where(self, sample: Sample) -> str:
        """Name a sample's source, file and row."""
        source = self.source_of(sample)
        assert sample.index is not None
        return f"{source.dataset_name}: {source.where(sample.index.path, sample.index.place)}"

    def reject(self, sample: Sample, reason: str, detail: str) -> None:
        """Count a sample that can never be used (see its source)."""
        self.source_of(sample).reject(sample, reason, detail)
