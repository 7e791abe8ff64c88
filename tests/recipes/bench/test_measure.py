import io
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from PIL import Image

from automodel_data.images import ImagePolicy, PillowBackend, TorchvisionBackend
from recipes import nodes
from recipes.bench.measure import Contestant, counting_decodes, measure, state_bytes, tokenized_runtime

Make = Callable[..., Contestant]


def test_tokens_and_images_are_those_of_the_packs_behind_the_warm_up(contestant: Make) -> None:
    one = contestant("data=bagel", warmup_packs=3)
    measured = measure(one)
    stream = iter(nodes.build(one.node).build(**tokenized_runtime(one)))
    packs = [next(stream) for _ in range(5)][3:]
    assert measured.tokens == sum(pack["sequence_length"] for pack in packs)
    in_towers = sum(len(pack["patchified_vae_latent_shapes"]) + len(pack["vit_token_seqlens"]) for pack in packs)
    assert measured.images_placed == in_towers
    assert measured.tokens_per_second == measured.tokens / measured.seconds.wall
    assert measured.tokens_per_cpu_second == measured.tokens / measured.seconds.cpu


def test_an_image_for_two_towers_is_decoded_once_and_the_floor_knows_it(contestant: Make) -> None:
    measured = measure(contestant("data=edit", packs=4))
    assert measured.images_decoded == measured.floor.images < measured.images_placed
    assert 0 < measured.floor.seconds.cpu < measured.seconds.cpu


def test_backends_pack_the_same_rows_and_another_seed_packs_others(contestant: Make) -> None:
    pillow, torchvision = contestant("data=t2i"), contestant("data=t2i", name="torchvision")
    assert measure(pillow).rows == measure(torchvision).rows != measure(replace(pillow, seed=7)).rows


def test_the_peak_counts_from_before_the_stream_is_built(contestant: Make) -> None:
    before = np.ones(2**26, dtype=np.uint8)  # a peak of earlier days
    del before
    measured = measure(contestant("data=t2i"))
    assert 0 < measured.idle_mib <= measured.peak_mib < measured.idle_mib + 64
    assert measured.first_batch_seconds > 0


def test_dense_masks_are_made_only_where_they_are_read(contestant: Make, monkeypatch) -> None:
    made: list[int] = []
    fill = torch.full
    monkeypatch.setattr(torch, "full", lambda size, *rest, **options: made.append(size) or fill(size, *rest, **options))
    measure(contestant("data=t2i", "data.dataset_config.use_flex=false"))
    assert not made
    measure(contestant("data=t2i", "data.dataset_config.use_flex=false", read_masks=True))
    assert made


def test_decodes_are_counted_headers_are_not() -> None:
    file = io.BytesIO()
    Image.new("RGB", (40, 30)).save(file, "JPEG")
    with counting_decodes() as decoded:
        source = ImagePolicy().open(file.getvalue(), "here")
        assert decoded == []
        PillowBackend().decode(source)
        TorchvisionBackend().decode(source)
    PillowBackend().decode(source)
    assert decoded == ["pillow", "torchvision"]


def test_a_state_is_weighed_as_json_or_else_as_a_pickle() -> None:
    assert state_bytes({"cursor": [1, 2]}) == len('{"cursor": [1, 2]}')
    assert state_bytes({"image": torch.zeros(3, 100, 100)}) > 3 * 100 * 100 * 4
