"""What the page shows of a pack: plain values, ready to be put down."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenView:
    """A token's text; ``about`` tells its row, position and label. A marker stands around texts and images."""

    text: str
    about: str
    learned: bool
    marker: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageView:
    """A picture as a data URI; ``time`` is None without noise, else in (0, 1)."""

    source: str
    width: int
    height: int
    label: str
    time: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitView:
    """A stretch of rows that attend alike.

    Args:
        positions: The first and the last of its position ids.
        learned: Text tokens with a loss, of these ``weights``.
        tokens: Its texts; empty beside images, unless they are learned.
    """

    mode: str
    start: int
    length: int
    positions: tuple[int, int]
    learned: int
    weights: list[float]
    tokens: list[TokenView]
    images: list[ImageView]


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleView:
    """A sample and the row that it was made of; ``mask`` is a data URI."""

    number: int
    dataset: str
    origin: str
    start: int
    length: int
    learned: int
    noised: int
    splits: list[SplitView]
    mask: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PackView:
    """A pack; ``learned`` are the stretches ``(start, length)`` of rows with a loss, ``mask`` is a data URI."""

    number: int
    length: int
    capacity: int
    samples: list[SampleView]
    learned: list[tuple[int, int]]
    mask: str

    @property
    def fill(self) -> float:
        return self.length / self.capacity


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupView:
    """A group over all packs; shares are of 1."""

    name: str
    weight: float
    is_mandatory: bool
    samples: int
    by_samples: float
    by_tokens: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PageView:
    """Everything on the page; ``lost`` is ``(group, reason, samples)``, ``facts`` are names and values."""

    title: str
    facts: list[tuple[str, str]]
    groups: list[GroupView]
    lost: list[tuple[str, str, int]]
    packs: list[PackView]
