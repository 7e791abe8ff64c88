"""diffusers' transformers behind one call."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from diffusers import FluxTransformer2DModel, QwenImageTransformer2DModel
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from recipes import config, launch, nodes
from recipes.mistakes import ConfigError
from recipes.models.flow.flux import Flux
from recipes.models.flow.inputs import FlowInputs, to_latents, to_tokens
from recipes.models.flow.qwen_image import QwenImage, QwenImageConfig

CONF = Path(__file__).parents[4] / "conf"


@pytest.fixture(params=["qwen_image_tiny", "flux_tiny"])
def model(request) -> torch.nn.Module:
    config.register()
    launch.register_resolvers()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        node = compose("train", [f"model={request.param}"]).model
    torch.manual_seed(0)
    return nodes.build(OmegaConf.to_container(node, resolve=True)).build()


def inputs(contexts: int, text: int = 5) -> FlowInputs:
    generator = torch.Generator().manual_seed(contexts)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    return FlowInputs(
        noisy_BCHW=draw(2, 16, 8, 12),
        contexts=[draw(2, 16, 4, 6) for _ in range(contexts)],
        text_BSD=draw(2, text, 64),
        mask_BS=torch.ones(2, text, dtype=torch.bool),
        pooled_BD=draw(2, 64),
        time_B=torch.tensor([0.2, 0.9]),
    )


def test_tokens_are_patches_in_raster_order_with_the_channel_slowest() -> None:
    latents = torch.arange(2 * 4 * 6).reshape(1, 2, 4, 6)
    tokens = to_tokens(latents)
    assert tokens.shape == (1, 6, 8)
    assert tokens[0, 1].tolist() == [2, 3, 8, 9, 26, 27, 32, 33]  # channel 0's patch, then channel 1's
    assert torch.equal(to_latents(tokens, (2, 3)), latents)


def test_the_target_comes_first_then_the_contexts() -> None:
    some = inputs(contexts=2)
    tokens, grids = some.tokens()
    assert grids == [(4, 6), (2, 3), (2, 3)]
    assert torch.equal(tokens[:, :24], to_tokens(some.noisy_BCHW))
    assert torch.equal(tokens[:, 30:], to_tokens(some.contexts[1]))


@pytest.mark.parametrize("contexts", [0, 2])
def test_the_velocity_has_the_shape_of_the_target_and_every_trained_weight_a_gradient(model, contexts) -> None:
    velocity = model(inputs(contexts))
    assert velocity.shape == (2, 16, 8, 12)
    velocity.square().sum().backward()
    missing = [name for name, one in model.named_parameters() if one.requires_grad and one.grad is None]
    assert missing == []


def test_contexts_and_their_order_matter(model) -> None:
    some = inputs(contexts=2)
    swapped = FlowInputs(**{name: getattr(some, name) for name in some.__slots__} | {"contexts": some.contexts[::-1]})
    with torch.no_grad():
        assert not torch.allclose(model(some), model(swapped))


def test_qwen_image_does_not_see_masked_text() -> None:
    torch.manual_seed(0)
    model = QwenImageConfig(
        transformer=lambda: QwenImageTransformer2DModel(
            num_layers=2,
            num_attention_heads=2,
            attention_head_dim=32,
            joint_attention_dim=64,
            axes_dims_rope=(8, 12, 12),
        )
    ).build()
    some = inputs(contexts=1, text=6)
    values = {name: getattr(some, name) for name in some.__slots__}
    mask, changed = some.mask_BS.clone(), some.text_BSD.clone()
    mask[:, 4:] = False
    changed[:, 4:] += 100
    with torch.no_grad():
        ours = model(FlowInputs(**values | {"mask_BS": mask}))
        theirs = model(FlowInputs(**values | {"mask_BS": mask, "text_BSD": changed}))
    torch.testing.assert_close(ours, theirs)


def tiny_flux(**changes: object) -> FluxTransformer2DModel:
    sizes = {"num_layers": 1, "num_single_layers": 1, "num_attention_heads": 2, "attention_head_dim": 32}
    widths = {"joint_attention_dim": 64, "pooled_projection_dim": 64, "axes_dims_rope": (8, 12, 12)}
    torch.manual_seed(0)
    return FluxTransformer2DModel(in_channels=64, **sizes, **widths, **changes)


@pytest.mark.parametrize(
    ("conditioning", "says"),
    [
        ((), "FLUX needs pooled prompts, and the cache has no conditioning tensors: encode it with encoder.pooled"),
        (("clip", "size"), r"task.pooled chooses none of the cache's .*, task.pooled=clip \| size; or encode"),
    ],
)
def test_flux_without_pooled_prompts_says_what_is_missing(conditioning: tuple[str, ...], says: str) -> None:
    some = replace(inputs(contexts=0), pooled_BD=None, conditioning=conditioning)
    with pytest.raises(ConfigError, match=says):
        Flux(tiny_flux(), guidance=1.0)(some)


def test_only_a_transformer_that_embeds_guidance_is_told_of_it() -> None:
    some = inputs(contexts=1)
    with torch.no_grad():
        schnell = [Flux(tiny_flux(), guidance)(some) for guidance in (1.0, 4.0)]
        dev = [Flux(tiny_flux(guidance_embeds=True), guidance)(some) for guidance in (1.0, 4.0)]
    assert torch.equal(*schnell)
    assert not torch.allclose(*dev)


class Recording(torch.nn.Module):
    """Stands for a transformer; keeps what it is called with."""

    config = SimpleNamespace(guidance_embeds=False)

    def forward(self, **given: Any) -> tuple[torch.Tensor]:
        self.given = given
        return (given["hidden_states"],)


def unequal() -> FlowInputs:
    """Return inputs with a target of 4 x 6 tokens, and contexts of 2 x 3 and of 3 x 1."""
    some = inputs(contexts=1)
    return replace(some, contexts=[*some.contexts, torch.randn(2, 16, 6, 2)])


def test_flux_numbers_images_and_places_their_tokens_by_row_and_column() -> None:
    transformer = Recording()
    Flux(transformer, guidance=1.0)(unequal())
    expected = [
        [image, row, column]
        for image, (height, width) in enumerate([(4, 6), (2, 3), (3, 1)])
        for row in range(height)
        for column in range(width)
    ]
    assert transformer.given["img_ids"].tolist() == expected


def test_qwen_image_is_told_the_grid_of_every_image_height_first() -> None:
    transformer = Recording()
    QwenImage(transformer)(unequal())
    assert transformer.given["img_shapes"] == [[(1, 4, 6), (1, 2, 3), (1, 3, 1)]] * 2
