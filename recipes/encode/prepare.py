"""What can be done ahead of the encoder, in threads: read a row's files, hash them, decode, scale and cut."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from automodel_data.errors import SkipSample
from recipes.encode.hashing import hash_bytes, hash_values
from recipes.encode.layouts import Layout
from recipes.encode.rows import Lost, RawRow, Row
from recipes.encode.transform import BucketedImage, Transform

Given = TypeVar("Given")
Made = TypeVar("Made")


@dataclass(frozen=True, kw_only=True, slots=True)
class Hashes:
    """What a payload is made from, part by part; ``key`` is the hash of all. ``sources`` have hash and name."""

    key: str
    sources: list[str]
    text: str
    transform: str
    encoder: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Hashed:
    """A row that was read."""

    raw: RawRow
    row: Row
    hashes: Hashes


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """A row that is ready to be encoded."""

    hashed: Hashed
    target: BucketedImage
    contexts: list[BucketedImage]


@dataclass(frozen=True, kw_only=True, slots=True)
class Hasher:
    """Reads rows and hashes all that decides their payloads."""

    layout: Layout
    transform: Transform
    encoder_hash: str

    def __call__(self, raw: RawRow | Lost) -> Hashed | Lost:
        """Read one row, all its files too."""
        if isinstance(raw, Lost):
            return raw
        try:
            row = self.layout.parse(raw)
        except SkipSample as skip:
            return Lost.of(raw, skip)
        return Hashed(raw=raw, row=row, hashes=self._hashes(row))

    def _hashes(self, row: Row) -> Hashes:
        parts: dict[str, Any] = {
            "sources": [f"{picture.digest} {picture.name}" for picture in (*row.contexts, row.target)],
            "text": hash_bytes(row.text.encode()),
            "transform": hash_values(self.transform.identity()),
            "encoder": self.encoder_hash,
        }
        return Hashes(key=hash_values({"layout": self.layout.name, **parts}), **parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class Preparer:
    """Prepares rows; ``is_done`` tells of a key whether its payload is there already."""

    hasher: Hasher
    is_done: Callable[[str], bool]

    def __call__(self, raw: RawRow | Lost) -> Prepared | Hashed | Lost:
        """Prepare one row; one whose payload is there needs no pixels."""
        hashed = self.hasher(raw)
        if isinstance(hashed, Lost) or self.is_done(hashed.hashes.key):
            return hashed
        transform, row = self.hasher.transform, hashed.row
        try:
            target = transform.target(row.target)
            contexts = [transform.context(picture) for picture in row.contexts]
        except SkipSample as skip:
            return Lost.of(hashed.raw, skip, hashed.hashes.key)
        return Prepared(hashed=hashed, target=target, contexts=contexts)


def map_ahead(function: Callable[[Given], Made], items: Iterable[Given], threads: int, ahead: int) -> Iterator[Made]:
    """Yield ``function`` of every item, in order, while threads work on the next ``ahead``."""
    waiting: deque[Future[Made]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # who stops early does not wait for what nobody wants
