"""Images get the published sizes on the patch grid, and become normalised tensors."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image

from automodel_data.multimodal.transforms import ImageTransform, MaxLongEdgeMinShortEdgeResize

PUBLISHED = {  # (width, height), images in the row -> (width, height), with max 100, min 50, stride 14, 5000 pixels
    (200, 100): {1: (84, 56), 2: (42, 28)},
    (30, 20): {1: (70, 56), 2: (42, 42)},
    (500, 10): {1: (84, 14), 2: (42, 14)},
    (10, 500): {1: (14, 84), 2: (14, 42)},
    (100, 100): {1: (56, 56), 2: (28, 28)},
    (7, 7): {1: (56, 56), 2: (42, 42)},
    (64, 64): {1: (70, 70), 2: (42, 42)},
    (33, 90): {1: (42, 84), 2: (14, 42)},
}


@pytest.mark.parametrize(("size", "wanted"), PUBLISHED.items())
def test_sizes_are_the_published_ones(size: tuple[int, int], wanted: dict[int, tuple[int, int]]) -> None:
    resize = MaxLongEdgeMinShortEdgeResize(max_size=100, min_size=50, stride=14, max_pixels=5000)
    width, height = size
    assert {number: resize.size_for(height, width, number)[::-1] for number in wanted} == wanted


@pytest.mark.parametrize(("size", "wanted"), PUBLISHED.items())
def test_a_resized_image_has_the_size_that_was_foretold(
    size: tuple[int, int], wanted: dict[int, tuple[int, int]]
) -> None:
    resize = MaxLongEdgeMinShortEdgeResize(max_size=100, min_size=50, stride=14, max_pixels=5000)
    image = Image.new("RGB", size)
    assert {number: resize(image, img_num=number).size for number in wanted} == wanted
    tensor = torch.zeros(3, size[1], size[0], dtype=torch.uint8)
    assert tuple(resize(tensor).shape[1:]) == wanted[1][::-1]


def test_the_longest_edge_yields_never_and_sizes_lie_on_the_grid() -> None:
    rng = np.random.default_rng(0)
    for max_size, min_size, stride in ((980, 378, 14), (1024, 512, 16), (106, 50, 14), (64, 64, 16)):
        transform = ImageTransform(max_size, min_size, stride, max_pixels=600_000)
        for height, width in rng.integers(1, 3000, (300, 2)).tolist():
            edges = transform.size_for(height, width, img_num=1)
            assert all(edge % stride == 0 and stride <= edge <= transform.largest_edge for edge in edges)


def test_pixels_become_x_minus_mean_over_std() -> None:
    transform = ImageTransform(32, 16, 16, image_mean=(0.5, 0.25, 0.0), image_std=(0.5, 0.5, 2.0))
    pixels = np.array([0, 128, 255], dtype=np.uint8).reshape(1, 1, 3).repeat(16, 0).repeat(16, 1)
    tensor = transform.normalize(pixels)
    assert (tensor.shape, tensor.dtype) == ((3, 16, 16), torch.float32)
    assert tensor[:, 3, 5].tolist() == pytest.approx([-1.0, (128 / 255 - 0.25) / 0.5, 0.5])


def test_a_transform_gives_the_tensor_of_pillows_bicubic_resize(photo: Callable[..., Image.Image]) -> None:
    image = photo(90, 60)
    tensor = ImageTransform(64, 16, 16)(image)
    wanted = np.array(image.resize((64, 48), Image.Resampling.BICUBIC))
    assert torch.equal(tensor, torch.from_numpy(wanted).permute(2, 0, 1).float().div(255).sub(0.5).div(0.5))
