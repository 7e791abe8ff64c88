"""Conversations with image tags, cut into texts and images in reading order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from automodel_data.errors import SkipSample

IMAGE_TAG = "<image>"
VIDEO_TAG = "<video>"


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A stretch of text; with ``loss`` it is an answer to be learnt."""

    text: str
    loss: bool


@dataclass(frozen=True, slots=True)
class ImagePiece:
    """The place of the next image."""


Piece = TextPiece | ImagePiece


def read_turns(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a row's turns as ``(role, text)``.

    Raises:
        SkipSample: the row has no conversation of this form, or a role other than human, gpt and system.
    """
    turns = row.get("conversations")
    if not isinstance(turns, Sequence) or not turns:
        raise SkipSample("no conversation", "a row needs 'conversations': [{'from': ..., 'value': ...}, ...]")
    try:
        pairs = [(turn["from"], turn["value"]) for turn in turns]
    except (KeyError, TypeError) as error:
        raise SkipSample("malformed turn", f"a turn needs 'from' and 'value', not {turns!r:.80}") from error
    for role, text in pairs:
        if role not in ("human", "gpt", "system"):
            raise SkipSample("unknown role", f"{role!r} is not human, gpt or system")
        if not isinstance(text, str):
            raise SkipSample("malformed turn", f"'value' is {text!r:.40}, not a text")
    return pairs


def with_frames(turns: Sequence[tuple[str, str]], num_frames: int) -> list[tuple[str, str]]:
    """Put an image tag for every frame in place of the first ``<video>`` of a human turn.

    Raises:
        SkipSample: no human turn has one.
    """
    for number, (role, text) in enumerate(turns):
        if role == "human" and VIDEO_TAG in text:
            replaced = (role, text.replace(VIDEO_TAG, IMAGE_TAG * num_frames, 1))
            return [*turns[:number], replaced, *turns[number + 1 :]]
    raise SkipSample("tags do not match images", "the row has a video, but no human turn has a <video> tag")


def cut_at_tags(turns: Sequence[tuple[str, str]], num_images: int) -> list[Piece]:
    """Cut human turns at their image tags; an image follows each piece of text while images are left.

    Texts beside a tag are stripped, blank ones left out; turns without a tag, and all others, stay as they stand.
    """
    pieces: list[Piece] = []
    for role, text in turns:
        if role != "human" or IMAGE_TAG not in text:
            pieces.append(TextPiece(text, loss=role == "gpt"))
            continue
        stretches = text.split(IMAGE_TAG)
        for number, stretch in enumerate(stretches):
            if stretch.strip():
                pieces.append(TextPiece(stretch.strip(), loss=False))
            if number < len(stretches) - 1 and number < num_images:
                pieces.append(ImagePiece())
    return pieces


def check_tags(turns: Sequence[tuple[str, str]], num_images: int) -> None:
    """Refuse a row whose tags and images do not match one to one.

    Raises:
        SkipSample: there are more tags than images, or fewer.
    """
    tags = sum(text.count(IMAGE_TAG) for role, text in turns if role == "human")
    if tags != num_images:
        raise SkipSample("tags do not match images", f"{tags} {IMAGE_TAG} tags for {num_images} images")
