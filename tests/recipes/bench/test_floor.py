from collections.abc import Callable
from itertools import islice

from recipes import nodes
from recipes.bench.floor import measure_floor
from recipes.bench.measure import Contestant, counting_decodes, tokenized_runtime


def test_the_floor_decodes_each_image_of_the_packs_once(contestant: Callable[..., Contestant]) -> None:
    one = contestant("data=edit")
    runtime = tokenized_runtime(one)
    with counting_decodes() as decoded:
        floor = measure_floor(nodes.build(one.node), runtime, skip=1, packs=2)
    packs = islice(nodes.build(one.node).build(**runtime).planned_packs(), 1, 3)
    sources = {image.picture.source for pack in packs for layout in pack.layouts for image in layout.images}
    assert len(decoded) == floor.images == len(sources)
    assert floor.seconds.wall > 0
