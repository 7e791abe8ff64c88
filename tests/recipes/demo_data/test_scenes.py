from random import Random

from recipes.demo_data.scenes import Scene, Split, draw_scene, paint


def described(scene: Scene) -> set[tuple[str, ...]]:
    return {(shape.size, shape.colour, shape.kind, shape.cell) for shape in scene.shapes}


def test_a_painted_scene_shows_its_shapes_and_nothing_else(look):
    for number in range(120):
        rng = Random(number)
        scene = draw_scene(rng, Split.TRAIN)
        view = look(paint(scene, rng.randint(128, 256), rng.randint(128, 256)))
        seen = {(shape.size, shape.colour, shape.kind, shape.cell) for shape in view.shapes}
        assert (view.ground, seen) == (scene.ground, described(scene))


def test_no_two_shapes_of_a_scene_share_a_cell_or_a_name():
    for number in range(200):
        scene = draw_scene(Random(number), Split.TRAIN)
        assert (
            len({shape.cell for shape in scene.shapes})
            == len({shape.name for shape in scene.shapes})
            == len(scene.shapes)
        )


def test_a_scene_belongs_to_one_split_whatever_order_its_shapes_were_drawn_in():
    scenes = {split: {draw_scene(Random(number), split) for number in range(150)} for split in Split}
    assert not scenes[Split.TRAIN] & scenes[Split.HELDOUT]
    for split, members in scenes.items():
        assert all(scene.with_shapes(*reversed(scene.shapes)).split is split for scene in members)


def test_the_same_seed_draws_the_same_scene():
    assert draw_scene(Random(7), Split.HELDOUT) == draw_scene(Random(7), Split.HELDOUT)
