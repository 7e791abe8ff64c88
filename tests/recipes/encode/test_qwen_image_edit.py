"""With a real, tiny Qwen-Image-Edit pipeline written to disk."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from diffusers import (
    AutoencoderKLQwenImage,
    FlowMatchEulerDiscreteScheduler,
    QwenImageEditPipeline,
    QwenImageEditPlusPipeline,
    QwenImageTransformer2DModel,
)
from PIL import Image
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2Tokenizer,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
)

from automodel_data.errors import SkipSample
from recipes.encode.encoders.qwen_image_edit import QwenImageEditEncoder, QwenImageEditEncoderConfig
from recipes.mistakes import ConfigError

CPU = torch.device("cpu")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"]
PADS = ["<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"]


def tokenizer() -> Qwen2Tokenizer:
    """Return a tokenizer of single bytes and the special tokens."""
    vocabulary = {byte: i for i, byte in enumerate(sorted(ByteLevel.alphabet()))}
    made = Qwen2Tokenizer(vocab=vocabulary, merges=[])
    made.add_special_tokens({"additional_special_tokens": SPECIAL[1:] + PADS})
    return made


def text_encoder(words: Qwen2Tokenizer) -> Qwen2_5_VLForConditionalGeneration:
    ids = {name: words.convert_tokens_to_ids(f"<|{name}|>") for name in ("image_pad", "video_pad", "vision_start")}
    torch.manual_seed(0)
    return Qwen2_5_VLForConditionalGeneration(
        Qwen2_5_VLConfig(
            text_config={
                "vocab_size": len(words),
                "hidden_size": 16,
                "intermediate_size": 16,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "num_key_value_heads": 2,
                "rope_parameters": {"rope_type": "default", "mrope_section": [2, 1, 1], "rope_theta": 10000.0},
            },
            vision_config={
                "depth": 1,
                "hidden_size": 16,
                "intermediate_size": 16,
                "num_heads": 2,
                "out_hidden_size": 16,
                "window_size": 56,
                "fullatt_block_indexes": [0],
            },
            image_token_id=ids["image_pad"],
            video_token_id=ids["video_pad"],
            vision_start_token_id=ids["vision_start"],
        )
    )


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write both pipelines, of which the transformer is not read."""
    words = tokenizer()
    pictures = Qwen2VLImageProcessor(min_pixels=28 * 28, max_pixels=112 * 112)
    parts = {
        "vae": AutoencoderKLQwenImage(
            base_dim=8, z_dim=4, num_res_blocks=1, latents_mean=[0.5] * 4, latents_std=[2.0] * 4
        ),
        "scheduler": FlowMatchEulerDiscreteScheduler(),
        "tokenizer": words,
        "processor": Qwen2VLProcessor(pictures, words, Qwen2VLVideoProcessor()),
        "text_encoder": text_encoder(words),
        "transformer": QwenImageTransformer2DModel(
            num_layers=1, num_attention_heads=1, attention_head_dim=16, axes_dims_rope=(8, 4, 4), joint_attention_dim=16
        ),
    }
    root = tmp_path_factory.mktemp("qwen")
    for pipeline in (QwenImageEditPipeline, QwenImageEditPlusPipeline):
        pipeline(**parts).save_pretrained(root / pipeline.__name__)
    return {"edit": root / "QwenImageEditPipeline", "plus": root / "QwenImageEditPlusPipeline"}


@pytest.fixture(scope="module", params=["edit", "plus"])
def encoder(folders: dict[str, Path], request: pytest.FixtureRequest) -> QwenImageEditEncoder:
    return QwenImageEditEncoderConfig(path=str(folders[request.param]), condition_pixels=56 * 56).build(CPU)


def test_a_latent_is_normalized_channel_by_channel(encoder: QwenImageEditEncoder) -> None:
    pixels = torch.rand(3, 32, 48) * 2 - 1
    with torch.no_grad():
        mode = encoder.pipeline.vae.encode(pixels[None, :, None]).latent_dist.mean[0, :, 0]
    latent = encoder.encode_image(pixels)
    assert latent.shape == (4, 4, 6)
    torch.testing.assert_close(latent, (mode - 0.5) / 2)


def test_a_decoded_latent_is_a_picture_of_the_same_size(encoder: QwenImageEditEncoder) -> None:
    assert encoder.decode_image(encoder.encode_image(torch.zeros(3, 32, 32))).shape == (3, 32, 32)


def test_the_text_is_read_together_with_the_picture(encoder: QwenImageEditEncoder) -> None:
    red, blue = Image.new("RGB", (64, 64), "red"), Image.new("RGB", (64, 64), "blue")
    first, again, other = (encoder.encode_text("make it green", [image]) for image in (red, red, blue))
    assert first.embeddings.shape == (len(first.mask), 16)
    assert torch.equal(first.embeddings, again.embeddings)
    assert not torch.equal(first.embeddings, other.embeddings)


def test_the_pictures_that_the_text_encoder_sees_have_their_own_size(folders: dict[str, Path]) -> None:
    config = QwenImageEditEncoderConfig(path=str(folders["edit"]))
    picture = Image.new("RGB", (112, 112), "red")
    whole = config.build(CPU).encode_text("x", [picture])
    small = replace(config, condition_pixels=32 * 32).build(CPU).encode_text("x", [picture])
    assert len(small.mask) < len(whole.mask)


def test_plus_takes_several_contexts_and_the_first_one_says_no(folders: dict[str, Path]) -> None:
    pictures = [Image.new("RGB", (64, 64), colour) for colour in ("red", "blue")]
    plus = QwenImageEditEncoderConfig(path=str(folders["plus"])).build(CPU)
    assert len(plus.encode_text("x", pictures).mask) > len(plus.encode_text("x", pictures[:1]).mask)
    with pytest.raises(SkipSample, match="too many contexts: 2"):
        QwenImageEditEncoderConfig(path=str(folders["edit"])).build(CPU).encode_text("x", pictures)


def test_the_identity_names_pipeline_weights_and_options(folders: dict[str, Path]) -> None:
    config = QwenImageEditEncoderConfig(path=str(folders["edit"]))
    identities = [
        config.build(CPU).identity(),
        replace(config, condition_pixels=100).build(CPU).identity(),
        replace(config, path=str(folders["plus"])).build(CPU).identity(),
    ]
    assert config.build(CPU).identity() == identities[0]
    assert identities[0] != identities[1]
    assert (identities[0]["name"], identities[2]["name"]) == ("QwenImageEditPipeline", "QwenImageEditPlusPipeline")


def test_a_folder_of_something_else_is_refused(folders: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match=r"encoder.path \(/nowhere\): no such file or folder"):
        QwenImageEditEncoderConfig(path="/nowhere").build(CPU)
    with pytest.raises(ConfigError, match=r"encoder.path \(.*vae\)"):
        QwenImageEditEncoderConfig(path=str(folders["edit"] / "vae")).build(CPU)
