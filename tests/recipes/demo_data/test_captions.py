from random import Random

from recipes.demo_data.captions import captions
from recipes.demo_data.scenes import Split, draw_scene, paint


def test_every_caption_is_true_of_the_pixels(look, judge_caption):
    for number in range(100):
        scene = draw_scene(Random(number), Split.TRAIN)
        view = look(paint(scene, 192, 160))
        for caption in captions(scene).values():
            assert judge_caption(view, caption), (caption, view)


def test_the_full_captions_of_different_scenes_differ():
    scenes = {draw_scene(Random(number), Split.TRAIN) for number in range(300)}
    assert len({captions(scene)["full"] for scene in scenes}) == len(scenes)


def test_a_caption_is_not_true_of_another_scene(look, judge_caption):
    one, other = (draw_scene(Random(number), Split.TRAIN) for number in (1, 2))
    assert not judge_caption(look(paint(one, 160, 160)), captions(other)["full"])
