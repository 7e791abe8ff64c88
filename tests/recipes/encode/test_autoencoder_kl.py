"""With real, tiny diffusers and transformers models written to disk."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from diffusers import AutoencoderKL
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import CLIPTextConfig, CLIPTextModel, PreTrainedTokenizerFast, T5Config, T5EncoderModel

from recipes.encode.encoders.autoencoder_kl import AutoencoderKlEncoder, AutoencoderKlEncoderConfig
from recipes.encode.encoders.weights import TextTowerConfig
from recipes.mistakes import ConfigError

WORDS = ["<pad>", "<eos>", "<unk>", "make", "it", "red", "green"]
CPU = torch.device("cpu")


def save_tokenizer(folder: Path, **options: object) -> None:
    vocabulary = {word: i for i, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", **options
    ).save_pretrained(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 3,
        up_block_types=("UpDecoderBlock2D",) * 3,
        block_out_channels=(8, 8, 8),
        norm_num_groups=4,
        latent_channels=4,
        scaling_factor=0.5,
        shift_factor=0.25,
    ).save_pretrained(root / "vae")
    T5EncoderModel(
        T5Config(vocab_size=len(WORDS), d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
    ).save_pretrained(root / "t5")
    save_tokenizer(root / "t5")
    CLIPTextModel(
        CLIPTextConfig(
            vocab_size=len(WORDS),
            hidden_size=12,
            intermediate_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=16,
            eos_token_id=1,
        )
    ).save_pretrained(root / "clip")
    save_tokenizer(root / "clip")
    return root


@pytest.fixture
def config(folder: Path) -> AutoencoderKlEncoderConfig:
    return AutoencoderKlEncoderConfig(
        vae=str(folder / "vae"),
        text=TextTowerConfig(path=str(folder / "t5"), max_tokens=6),
        pooled=TextTowerConfig(path=str(folder / "clip"), max_tokens=6),
    )


@pytest.fixture
def encoder(config: AutoencoderKlEncoderConfig) -> AutoencoderKlEncoder:
    return config.build(CPU)


def test_a_latent_is_the_posteriors_mode_shifted_and_scaled(encoder: AutoencoderKlEncoder) -> None:
    pixels = torch.rand(3, 32, 48) * 2 - 1
    with torch.no_grad():
        mode = encoder.vae.encode(pixels[None]).latent_dist.mean[0]
    latent = encoder.encode_image(pixels)
    assert latent.shape == (4, 8, 12)
    torch.testing.assert_close(latent, (mode - 0.25) * 0.5)
    assert torch.equal(latent, encoder.encode_image(pixels)), "nothing is drawn"


def test_a_decoded_latent_is_a_picture_of_the_same_size(encoder: AutoencoderKlEncoder) -> None:
    decoded = encoder.decode_image(encoder.encode_image(torch.zeros(3, 32, 32)))
    assert decoded.shape == (3, 32, 32)
    assert decoded.abs().max() <= 1


def test_the_grid_is_the_vaes_scale_times_a_patch(encoder: AutoencoderKlEncoder) -> None:
    assert encoder.grid == 8


def test_a_text_is_encoded_at_its_own_length(encoder: AutoencoderKlEncoder) -> None:
    text = encoder.encode_text("make it red", [])
    assert text.embeddings.shape == (3, 8)
    assert text.pooled is not None
    assert text.pooled.shape == (12,)


def test_a_text_may_be_padded_as_flux_was_trained(config: AutoencoderKlEncoderConfig) -> None:
    padded = replace(config, text=replace(config.text, pad_to_max_tokens=True)).build(CPU)
    text = padded.encode_text("make it red", [])
    assert text.embeddings.shape == (6, 8)
    assert text.mask.all()


def test_a_long_text_is_cut(encoder: AutoencoderKlEncoder) -> None:
    assert encoder.encode_text("red " * 20, []).embeddings.shape == (6, 8)


@pytest.mark.parametrize("pad", [False, True])
def test_a_text_is_cut_to_the_positions_of_its_encoder(
    config: AutoencoderKlEncoderConfig, folder: Path, pad: bool
) -> None:
    clip = TextTowerConfig(path=str(folder / "clip"), max_tokens=512, pad_to_max_tokens=pad)
    pooled = replace(config, pooled=clip).build(CPU).encode_text("red " * 40, []).pooled
    full = replace(config, pooled=replace(clip, max_tokens=16)).build(CPU).encode_text("red " * 40, []).pooled
    assert torch.equal(pooled, full)


def test_an_encoder_of_relative_positions_has_no_limit_but_the_one_that_is_set(
    config: AutoencoderKlEncoderConfig,
) -> None:
    long = replace(config, text=replace(config.text, max_tokens=600)).build(CPU)
    assert long.encode_text("red " * 700, []).embeddings.shape == (600, 8)


def test_a_tokenizer_may_allow_fewer_tokens_and_only_that_changes_the_identity(
    config: AutoencoderKlEncoderConfig, folder: Path, tmp_path: Path
) -> None:
    def tokens(tokenizer: Path, asked: int) -> object:
        tower = TextTowerConfig(path=str(folder / "clip"), tokenizer=str(tokenizer), max_tokens=asked)
        return replace(config, pooled=tower).build(CPU).identity()["text"][1]["max_tokens"]

    for name, limit in (("long", 1000), ("short", 10)):
        save_tokenizer(tmp_path / name, model_max_length=limit)
    assert [tokens(tmp_path / "long", asked) for asked in (512, 12)] == [512, 12]
    assert [tokens(tmp_path / "short", asked) for asked in (512, 8)] == [10, 8]


def test_latents_of_a_vae_without_shift_are_decoded(encoder: AutoencoderKlEncoder) -> None:
    vae = AutoencoderKL.from_pretrained(encoder.config.vae)
    vae.register_to_config(shift_factor=None)
    latent = torch.randn(4, 8, 8)
    with torch.no_grad():
        expected = vae.decode(latent[None] / 0.5).sample[0].clamp(-1, 1)
    torch.testing.assert_close(replace(encoder, vae=vae).decode_image(latent), expected)


def test_the_identity_follows_the_weights_and_not_where_they_lie(
    config: AutoencoderKlEncoderConfig, folder: Path, tmp_path: Path
) -> None:
    before = config.build(CPU).identity()
    moved = tmp_path / "elsewhere"
    (folder / "vae").rename(moved)
    try:
        assert replace(config, vae=str(moved)).build(CPU).identity() == before
    finally:
        moved.rename(folder / "vae")
    assert replace(config, text=replace(config.text, max_tokens=5)).build(CPU).identity() != before
    assert replace(config, pooled=None).build(CPU).identity() != before


def test_other_weights_of_the_same_shape_are_another_encoder(
    config: AutoencoderKlEncoderConfig, tmp_path: Path
) -> None:
    vae = AutoencoderKL.from_pretrained(config.vae)
    with torch.no_grad():
        next(vae.parameters()).add_(1e-3)
    vae.save_pretrained(tmp_path / "tuned")
    tuned = replace(config, vae=str(tmp_path / "tuned"))
    assert tuned.build(CPU).identity()["vae"] != config.build(CPU).identity()["vae"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"vae": "/nowhere"}, "no VAE in /nowhere"),
        ({"text": TextTowerConfig(path="/nowhere")}, r"encoder.text.path \(/nowhere\): no such file or folder"),
        ({"dtype": "int8"}, r"encoder.dtype \(int8\) must be one of auto, float32"),
    ],
)
def test_weights_that_are_not_there_are_refused(
    config: AutoencoderKlEncoderConfig, change: dict[str, object], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        replace(config, **change).build(CPU)


def test_a_folder_of_something_else_is_refused(config: AutoencoderKlEncoderConfig, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"encoder.text \("):
        replace(config, text=TextTowerConfig(path=str(tmp_path))).build(CPU)
