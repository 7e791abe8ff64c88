"""What can be done ahead of the encoder, in threads: read a row's files, hash them, decode, scale and cut."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from automodel_data.errors import SkipSample
from recipes.encode.hashing import hash_bytes, hash_values
from recipes.encode.layouts import Layout
from recipes.encode.rows import RawRow, Row
from recipes.encode.transform import BucketedImage, Transform

Given = TypeVar("Given")
Made = TypeVar("Made")


@dataclass(frozen=True, kw_only=True, slots=True)
class Hashes:
    """What a payload is made from, hashed part by part; ``key`` is the hash of all."""

    key: str
    sources: list[str]
    text: str
    transform: str
    encoder: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """A row that is ready to be encoded; without pixels where its payload is there already."""

    raw: RawRow
    row: Row
    hashes: Hashes
    target: BucketedImage | None
    contexts: list[BucketedImage]


@dataclass(frozen=True, kw_only=True, slots=True)
class Preparer:
    """Prepares rows; ``is_done`` tells of a key whether its payload is there already."""

    layout: Layout
    transform: Transform
    encoder_hash: str
    is_done: Callable[[str], bool]

    def __call__(self, raw: RawRow) -> Prepared | SkipSample:
        """Prepare one row; a row that cannot be used comes back as the reason why."""
        try:
            row = self.layout.parse(raw)
            hashes = self.hashes(row)
            if self.is_done(hashes.key):
                return Prepared(raw=raw, row=row, hashes=hashes, target=None, contexts=[])
            target = self.transform.target(row.target)
            contexts = [self.transform.context(picture) for picture in row.contexts]
        except SkipSample as skip:
            return skip
        return Prepared(raw=raw, row=row, hashes=hashes, target=target, contexts=contexts)

    def hashes(self, row: Row) -> Hashes:
        """Hash all that decides the row's payload."""
        parts: dict[str, Any] = {
            "sources": [hash_bytes(picture.content) for picture in (*row.contexts, row.target)],
            "text": hash_bytes(row.text.encode()),
            "transform": hash_values(self.transform.identity()),
            "encoder": self.encoder_hash,
        }
        return Hashes(key=hash_values({"layout": self.layout.name, **parts}), **parts)


def map_ahead(function: Callable[[Given], Made], items: Iterable[Given], threads: int, ahead: int) -> Iterator[Made]:
    """Yield ``function`` of every item, in order, while threads work on the next ``ahead``."""
    waiting: deque[Future[Made]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
