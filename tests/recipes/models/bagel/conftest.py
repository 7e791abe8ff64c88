from collections.abc import Callable

import pytest
import torch

from automodel_data.multimodal.pack_builder import LayoutRules, SpecialTokens
from automodel_data.multimodal.plan import Sample, TensorImage, TextItem, VaeItem, VitItem
from recipes.models.bagel import BagelConfig, PackedInputs
from recipes.models.bagel.sample import pack_prompts, sampling_rules
from recipes.models.vae import DctVae, encode_latents

CPU = torch.device("cpu")


@pytest.fixture
def rules(tiny_config: BagelConfig) -> LayoutRules:
    tokens = SpecialTokens(bos_token_id=36, eos_token_id=37, start_of_image=38, end_of_image=39)
    return sampling_rules(tiny_config, tokens)


@pytest.fixture
def pack(rules: LayoutRules) -> Callable[..., PackedInputs]:
    """Return a function that packs samples given as lists of plan items."""

    def pack(*samples: list) -> PackedInputs:
        batch = pack_prompts([Sample(plan=plan) for plan in samples], rules, CPU)
        latents = encode_latents(DctVae(), batch.padded_images) if "padded_images" in vars(batch) else None
        return PackedInputs.from_batch(batch, latents)

    return pack


def text(*ids: int, loss: bool = False) -> TextItem:
    return TextItem(ids=list(ids), loss=loss, enable_cfg=not loss)


def picture(height: int, width: int) -> TensorImage:
    generator = torch.Generator().manual_seed(height * width)
    return TensorImage(torch.rand(3, height, width, generator=generator) * 2 - 1)


def vit(height: int = 28, width: int = 42) -> VitItem:
    return VitItem(picture=picture(height, width), enable_cfg=True)


def vae(height: int = 32, width: int = 48, *, loss: bool) -> VaeItem:
    return VaeItem(picture=picture(height, width), loss=loss, enable_cfg=not loss)


@pytest.fixture
def items() -> dict[str, list]:
    """Return one sample of each kind, as plan items."""
    return {
        "text": [text(1, 2, 3, loss=True)],
        "vlm": [vit(), text(4, 5), text(6, 7, 8, loss=True)],
        "t2i": [text(9, 10), vae(loss=True)],
        "edit": [
            vae(loss=False),
            vit(),
            text(11, 12),
            vae(loss=True),
            vae(loss=False),
            text(13),
            vae(16, 16, loss=True),
        ],
    }


@pytest.fixture
def text_pack(pack) -> PackedInputs:
    """Return two texts, of 5 and 4 rows, that are learned."""
    return pack([text(1, 2, 3, loss=True)], [text(4, 5, loss=True)])


@pytest.fixture
def pictures() -> dict[str, tuple[TextItem, VaeItem]]:
    """Return two captions and their pictures, by name."""

    def plain(level: float) -> VaeItem:
        return VaeItem(picture=TensorImage(torch.full((3, 16, 16), level)), loss=True, enable_cfg=False)

    return {"dark": (text(1, 2), plain(-0.7)), "light": (text(3), plain(0.7))}


@pytest.fixture
def questions() -> list[tuple[list, TextItem]]:
    """Return what is asked, about a picture or not, and the answers."""
    return [([vit(), text(4)], text(6, 7, loss=True)), ([text(5)], text(8, loss=True))]
