"""Conversations are cut at their image tags into texts and images in reading order."""

from typing import Any

import pytest

from automodel_data.errors import SkipSample
from automodel_data.multimodal.conversation import (
    ImagePiece,
    Piece,
    TextPiece,
    check_tags,
    cut_at_tags,
    read_turns,
    with_frames,
)

IMAGE = ImagePiece()


def ask(text: str) -> TextPiece:
    return TextPiece(text, loss=False)


def answer(text: str) -> TextPiece:
    return TextPiece(text, loss=True)


@pytest.mark.parametrize(
    ("turns", "images", "pieces"),
    [
        ([("human", " hi "), ("gpt", " ho ")], 0, [ask(" hi "), answer(" ho ")]),
        ([("human", "<image>\nwhat?"), ("gpt", "a cat")], 1, [IMAGE, ask("what?"), answer("a cat")]),
        ([("human", "see <image> and <image>")], 2, [ask("see"), IMAGE, ask("and"), IMAGE]),
        ([("human", " <image> \n <image> ")], 2, [IMAGE, IMAGE]),
        (
            [("human", "<image>a"), ("gpt", "b"), ("human", "<image>c")],
            2,
            [IMAGE, ask("a"), answer("b"), IMAGE, ask("c")],
        ),
        ([("gpt", "an <image> tag in an answer is text")], 0, [answer("an <image> tag in an answer is text")]),
        ([("system", " Be brief. "), ("human", "hi")], 0, [ask(" Be brief. "), ask("hi")]),
        ([("system", "<image> stays")], 0, [ask("<image> stays")]),
        ([("human", "<image>a<image>b<image>c")], 2, [IMAGE, ask("a"), IMAGE, ask("b"), ask("c")]),
    ],
)
def test_human_turns_are_cut_at_their_tags_and_all_others_stay_as_they_stand(
    turns: list[tuple[str, str]], images: int, pieces: list[Piece]
) -> None:
    assert cut_at_tags(turns, images) == pieces


@pytest.mark.parametrize("conversations", [None, [], "", "text", {"from": "human"}, 3])
def test_a_row_without_a_conversation_is_skipped(conversations: Any) -> None:
    with pytest.raises(SkipSample, match=r"no conversation|malformed turn"):
        read_turns({"conversations": conversations})


def test_a_row_that_lacks_the_key_is_skipped() -> None:
    with pytest.raises(SkipSample, match="no conversation: a row needs 'conversations'"):
        read_turns({"messages": []})


@pytest.mark.parametrize("turn", [{"from": "human"}, {"value": "x"}, "hi", None, {"from": "gpt", "value": None}])
def test_a_turn_of_another_form_is_skipped(turn: Any) -> None:
    with pytest.raises(SkipSample, match="malformed turn"):
        read_turns({"conversations": [turn]})


@pytest.mark.parametrize("role", ["user", "assistant", "Human", "", None])
def test_an_unknown_role_is_skipped_under_its_own_reason(role: Any) -> None:
    with pytest.raises(SkipSample, match=f"unknown role: {role!r} is not human, gpt or system"):
        read_turns({"conversations": [{"from": role, "value": "x"}]})


def test_a_video_is_put_in_the_first_human_turn_that_asks_for_it() -> None:
    turns = [("human", "hi"), ("gpt", "a <video>?"), ("human", "see <video> now, <video>"), ("human", "<video>")]
    assert with_frames(turns, 3) == [
        ("human", "hi"),
        ("gpt", "a <video>?"),
        ("human", "see <image><image><image> now, <video>"),
        ("human", "<video>"),
    ]


def test_a_video_that_nobody_asks_for_is_skipped() -> None:
    with pytest.raises(SkipSample, match="tags do not match images: the row has a video, but no human turn has"):
        with_frames([("human", "hi"), ("gpt", "<video>")], 3)


@pytest.mark.parametrize(("text", "images"), [("<image>", 0), ("<image>", 2), ("no tag", 1), ("<image><image>", 1)])
def test_tags_that_do_not_match_the_images_are_skipped_with_both_numbers(text: str, images: int) -> None:
    with pytest.raises(SkipSample, match=f"{text.count('<image>')} <image> tags for {images} images"):
        check_tags([("human", text)], images)


def test_only_tags_of_human_turns_ask_for_images() -> None:
    check_tags([("system", "<image>"), ("human", "<image>"), ("gpt", "<image>"), ("human", "and <image>")], 2)
