import pytest
import torch
from torch import nn
from transformers import SiglipVisionConfig, SiglipVisionModel

from automodel_data.multimodal.utils import get_flattened_position_ids_extrapolate, patchify
from recipes.mistakes import ConfigError
from recipes.models.bagel import VisionConfig
from recipes.models.bagel.vision import SiglipTower

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": 56,
}


@pytest.fixture
def tower(seeded) -> SiglipTower:
    tower, generator = SiglipTower(VisionConfig(**SIZES)), seeded(0)
    for parameter in tower.parameters():
        nn.init.normal_(parameter, mean=0.5 if parameter.ndim == 1 else 0.0, std=0.2, generator=generator)
    return tower


def encode(tower: SiglipTower, images: list[torch.Tensor]) -> torch.Tensor:
    patches = [patchify(image, 14) for image in images]
    ids = [get_flattened_position_ids_extrapolate(*image.shape[1:], 14, 4) for image in images]
    return tower(torch.cat(patches), torch.cat(ids), [len(rows) for rows in patches])


def test_a_full_sized_image_is_encoded_as_by_the_stock_model(tower, seeded):
    stock = SiglipVisionModel(SiglipVisionConfig(**SIZES, patch_size=14, vision_use_head=False)).eval()
    weights = {name.removeprefix("vision_model."): value for name, value in tower.state_dict().items()}
    linear = weights["embeddings.patch_embedding.weight"]
    weights["embeddings.patch_embedding.weight"] = linear.view(32, 14, 14, 3).permute(0, 3, 1, 2)
    left_out = stock.load_state_dict(weights, strict=False)
    assert all("layers.2" in name for name in left_out.missing_keys)
    image = torch.rand(3, 56, 56, generator=seeded(1))

    with torch.no_grad():
        second_to_last = stock(image[None], output_hidden_states=True).hidden_states[-2]
        expected = stock.post_layernorm(second_to_last)[0]
        torch.testing.assert_close(encode(tower, [image]), expected, rtol=1e-4, atol=1e-5)


def test_images_of_a_pack_do_not_see_each_other(tower, seeded):
    wide, tall = torch.rand(3, 28, 56, generator=seeded(1)), torch.rand(3, 42, 14, generator=seeded(2))
    with torch.no_grad():
        together = encode(tower, [wide, tall])
        torch.testing.assert_close(together, torch.cat([encode(tower, [wide]), encode(tower, [tall])]))


def test_layers_after_the_selected_one_are_not_built():
    assert VisionConfig(**SIZES).layers_built == 2
    assert VisionConfig(**SIZES, select_layer=-1).layers_built == 3


def test_the_table_of_positions_has_the_side_of_the_largest_image():
    assert VisionConfig(**SIZES).max_patches_per_side == 4


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"hidden_size": 31}, r"hidden_size \(31\).*num_attention_heads \(2\)"),
        ({"select_layer": 0}, r"select_layer \(0\) must count from the end"),
        ({"select_layer": -4}, r"select_layer \(-4\).*-num_hidden_layers \(-3\)"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_by_name(wrong, named):
    with pytest.raises(ConfigError, match=named):
        VisionConfig(**SIZES | wrong)
