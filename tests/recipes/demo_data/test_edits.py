from random import Random

import pytest

from recipes.demo_data.edits import MAX_SHAPES, Add, Move, Recolour, Remove, Resize, draw_chain, phrasings
from recipes.demo_data.scenes import Split, paint

CHAINS = [draw_chain(Random(number), list(Split)[number % 2], images=2 + number % 4) for number in range(60)]


def test_every_phrasing_of_an_edit_turns_the_pixels_before_into_the_pixels_after(look, follow):
    for chain in CHAINS:
        views = [look(paint(scene, 176, 208)) for scene in chain.scenes]
        for before, edit, after in zip(views, chain.edits, views[1:], strict=False):
            for instruction in phrasings(edit):
                assert follow(before, instruction) == after, (before, instruction)


def test_every_kind_of_edit_happens():
    assert {type(edit) for chain in CHAINS for edit in chain.edits} == {Add, Move, Recolour, Remove, Resize}


@pytest.mark.parametrize("split", Split)
def test_all_scenes_of_a_chain_belong_to_the_split_of_the_chain(split):
    chains = [chain for number, chain in enumerate(CHAINS) if list(Split)[number % 2] is split]
    assert all(scene.split is split for chain in chains for scene in chain.scenes)


def test_a_chain_never_runs_empty_or_full():
    assert all(1 <= len(scene.shapes) <= MAX_SHAPES for chain in CHAINS for scene in chain.scenes)


def test_a_chain_has_as_many_scenes_as_asked_for():
    assert [len(chain.scenes) for chain in CHAINS[:4]] == [2, 3, 4, 5]
    assert all(len(chain.edits) == len(chain.scenes) - 1 for chain in CHAINS)
