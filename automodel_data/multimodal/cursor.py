"""Where a reader of a source stands: behind which row of which pass, and what it reads from there on."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from automodel_data.multimodal.plan import Position, split_position
from automodel_data.placement import Stretch, walk


@dataclass(kw_only=True, slots=True)
class Cursor:
    """A place in the endless reading of one reader.

    Args:
        position: The last row read in the pass under way; None: at its beginning.
        passes: Passes that are over.
        dealt: What to read in the pass under way and in those behind it, where that is not the reader's usual share.
    """

    position: Position | None = None
    passes: int = 0
    dealt: list[list[Stretch]] = field(default_factory=list)

    @property
    def begins_usual_pass(self) -> bool:
        """Whether all of the usual share lies ahead."""
        return self.position is None and not self.dealt

    def paths_ahead(self, usual: range) -> Iterator[tuple[int, int, list[int] | None]]:
        """Yield what is left of the pass under way, from where it stands now.

        Each path comes with its number in the reader's share, its index among all, and the place in it to start behind
        (None: at its beginning).
        """
        share = self.dealt[0] if self.dealt else [Stretch.of(usual)]
        first, place = (-1, []) if self.position is None else split_position(self.position)
        for number, (index, after) in enumerate(walk(share)):
            if number >= first:
                yield number, index, place if number == first else after

    def end_pass(self) -> None:
        """Go to the beginning of the next pass."""
        self.position = None
        self.passes += 1
        self.dealt = self.dealt[1:]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "cursor": self.position,
            "passes": self.passes,
            "dealt": [[asdict(stretch) for stretch in share] for share in self.dealt],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Cursor":
        """Read plain values."""
        dealt = [[Stretch(**stretch) for stretch in share] for share in values["dealt"]]
        return cls(position=values["cursor"], passes=values["passes"], dealt=dealt)
