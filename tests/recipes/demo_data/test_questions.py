from random import Random

import pytest

from recipes.demo_data.edits import apply, draw_edit
from recipes.demo_data.questions import ABOUT_ONE, ask, ask_what_changed, ask_which_has_more
from recipes.demo_data.scenes import Split, draw_scene, paint


@pytest.mark.parametrize("question", ABOUT_ONE, ids=lambda function: function.__name__)
def test_answers_agree_with_what_the_pixels_show(question, look, answer):
    for number in range(40):
        rng = Random(number)
        scene = draw_scene(rng, Split.TRAIN)
        turn = question(rng, scene)
        assert answer(look(paint(scene, 192, 144)), turn.question) == turn.answer, turn


def test_yes_and_no_are_both_common():
    answers = [ask(Random(number), draw_scene(Random(number), Split.TRAIN), turns=8) for number in range(100)]
    yes, no = (sum(turn.answer == word for turns in answers for turn in turns) for word in ("Yes.", "No."))
    assert 0.3 < yes / (yes + no) < 0.7


def test_the_turns_about_one_scene_are_of_different_kinds():
    scene = draw_scene(Random(0), Split.TRAIN)
    assert len({turn.question for turn in ask(Random(1), scene, turns=5)}) == 5


def test_two_pictures_are_compared_by_what_they_show(look):
    for number in range(40):
        scenes = [draw_scene(Random(f"{number}{part}"), Split.TRAIN) for part in "ab"]
        one, two = (len(look(paint(scene, 160, 160)).shapes) for scene in scenes)
        truth = "The first one." if one > two else "The second one." if two > one else "They have the same number."
        assert ask_which_has_more(*scenes).answer == truth


def test_what_changed_is_what_the_pixels_changed(look):
    for number in range(80):
        rng = Random(number)
        scene = draw_scene(rng, Split.TRAIN)
        edit = draw_edit(rng, scene)
        before, after = look(paint(scene, 160, 160)).shapes, look(paint(apply(edit, scene), 160, 160)).shapes
        gone, new = (next(iter(one - other), None) for one, other in ((before, after), (after, before)))
        possible = {
            f"There is now a {new.size} {new.name} {new.cell}." if new and not gone else None,
            f"The {gone.name} is gone." if gone and not new else None,
        }
        if gone and new:
            possible = {
                f"The {gone.name} became {new.colour}.",
                f"The {gone.name} is now {new.cell}.",
                f"The {gone.name} is now {new.size}.",
            }
            unchanged = {
                f"The {gone.name} became {gone.colour}.",
                f"The {gone.name} is now {gone.cell}.",
                f"The {gone.name} is now {gone.size}.",
            }
            possible -= unchanged
        assert ask_what_changed(edit).answer in possible
