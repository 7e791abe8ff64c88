"""Broken rows, as real data has them: which rows are broken, and how.

Only the training split has them, only with ``oddities``, and the manifest lists every one.
"""

from enum import StrEnum


class Source(StrEnum):
    T2I = "t2i"
    EDIT = "edit"
    VLM = "vlm"


class Flaw(StrEnum):
    TRUNCATED = "every image is cut in half"
    HTML = "every image is an HTML page"
    EMPTY = "every image has zero bytes"
    BROKEN_CAPTIONS = "the captions are not JSON"
    MISSING_FILE = "the image file is missing"
    SURPLUS_TAG = "one more <image> tag than images"
    SURPLUS_IMAGE = "one more image than <image> tags"


FLAWS = {
    Source.T2I: (Flaw.TRUNCATED, Flaw.HTML, Flaw.EMPTY, Flaw.BROKEN_CAPTIONS),
    Source.EDIT: (Flaw.TRUNCATED, Flaw.HTML),
    Source.VLM: (Flaw.TRUNCATED, Flaw.MISSING_FILE, Flaw.SURPLUS_TAG, Flaw.SURPLUS_IMAGE),
}
MIN_ROWS = 2 * max(len(flaws) for flaws in FLAWS.values())
HTML_PAGE = b"<!DOCTYPE html><html><head><title>404 Not Found</title></head><body>Not Found</body></html>\n"


def broken_rows(source: Source, rows: int) -> dict[int, Flaw]:
    """Spread the flaws of a source evenly over its rows."""
    flaws = FLAWS[source]
    return {(2 * number + 1) * rows // (2 * len(flaws)): flaw for number, flaw in enumerate(flaws)}


def damage(data: bytes, flaw: Flaw | None) -> bytes:
    """Return the image file as the flaw leaves it."""
    match flaw:
        case Flaw.TRUNCATED:
            return data[: len(data) // 2]
        case Flaw.HTML:
            return HTML_PAGE
        case Flaw.EMPTY:
            return b""
        case _:
            return data
