import random
from typing import Any

import pytest
from PIL import Image

from automodel_data.diffusion.multi_tier_bucketing import MultiTierBucketCalculator

PRESETS = [f"{side}p/{grid}" for side in (256, 512, 768, 1024, 1536) for grid in (64, 32, 16)]


def calculator(name: str) -> MultiTierBucketCalculator:
    preset, grid = name.split("/")
    return MultiTierBucketCalculator.from_preset(preset, int(grid))


@pytest.mark.parametrize("name", PRESETS)
def test_tables_are_those_of_the_documented_system(golden: dict[str, Any], name: str) -> None:
    buckets = calculator(name).get_all_buckets()
    table = [[b["id"], *b["resolution"], b["aspect_ratio"], b["pixels"]] for b in buckets]
    assert table == golden["bucket_calculator"][name]["buckets"]


@pytest.mark.parametrize("name", PRESETS)
def test_images_and_batch_sizes_are_those_of_the_documented_system(golden: dict[str, Any], name: str) -> None:
    table = golden["bucket_calculator"][name]
    ours = calculator(name)
    for size, resolution in table["images"].items():
        assert list(ours.get_bucket_for_image(*map(int, size.split("x")))["resolution"]) == resolution
    for size, batch in table["dynamic"].items():
        width, height = map(int, size.split("x"))
        assert ours.get_dynamic_batch_size((width, height)) == batch


@pytest.mark.parametrize("grid", [1, 7, 16, 64, 100])
@pytest.mark.parametrize("budget", [10_000, 65_537, 1_000_003])
def test_every_bucket_is_within_the_budget_and_on_the_grid(grid: int, budget: int) -> None:
    for bucket in MultiTierBucketCalculator(grid, budget).get_all_buckets():
        assert bucket["pixels"] <= budget
        assert all(side % grid == 0 and side > 0 for side in bucket["resolution"])


def test_a_bucket_is_found_by_id_and_by_resolution() -> None:
    ours = MultiTierBucketCalculator.from_preset("512p")
    for bucket in ours.get_all_buckets():
        assert ours.get_bucket_by_id(bucket["id"]) == bucket
        assert ours.get_bucket_by_resolution(*bucket["resolution"]) == bucket
    assert ours.get_bucket_by_resolution(1, 1) is None


@pytest.mark.parametrize(("size", "target"), [((200, 100), (64, 64)), ((100, 333), (64, 128)), ((10, 10), (64, 32))])
def test_a_centre_crop_covers_the_target_and_says_where_it_lies(size: tuple[int, int], target: tuple[int, int]) -> None:
    image = Image.linear_gradient("L").resize(size).convert("RGB")
    cropped, (left, top) = MultiTierBucketCalculator().resize_and_crop(image, *target)
    assert cropped.size == target
    scale = max(target[0] / size[0], target[1] / size[1])
    assert (left, top) == ((round(size[0] * scale) - target[0]) // 2, (round(size[1] * scale) - target[1]) // 2)


def test_a_random_crop_is_decided_by_its_generator() -> None:
    image = Image.linear_gradient("L").resize((300, 100)).convert("RGB")
    ours = MultiTierBucketCalculator()
    corners = [ours.resize_and_crop(image, 64, 64, "random", random.Random(seed))[1] for seed in (1, 1, 2)]
    assert corners[0] == corners[1] != corners[2]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: MultiTierBucketCalculator(quantization=0), r"quantization \(0\)"),
        (lambda: MultiTierBucketCalculator(64, max_pixels=4095), r"max_pixels \(4095\) must hold one square"),
        (lambda: MultiTierBucketCalculator.from_preset("300p"), r"preset \('300p'\) must be one of 256p"),
        (
            lambda: MultiTierBucketCalculator().resize_and_crop(Image.new("RGB", (9, 9)), 64, 64, "top"),
            r"crop_mode \('top'\)",
        ),
    ],
)
def test_an_impossible_option_is_refused(make: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()
