import io
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from diffusers import AutoencoderKL, AutoencoderKLQwenImage
from PIL import Image, UnidentifiedImageError
from safetensors.torch import save_file

from recipes.mistakes import ConfigError
from recipes.models.vae import (
    DctVae,
    decode_latents,
    encode_latents,
    encode_modes,
    latent_channels,
    load_autoencoder_kl,
    load_vae,
)

PARITY = Path(__file__).parents[2] / "data" / "parity" / "inputs"


@pytest.fixture
def images() -> torch.Tensor:
    """Return two pictures of soft shapes on a gradient, [2, 3, 64, 48]."""
    y, x = torch.meshgrid(torch.linspace(-1, 1, 64), torch.linspace(-1, 1, 48), indexing="ij")
    disc = torch.sigmoid(20 * (0.5 - (x**2 + y**2).sqrt()))
    first = torch.stack([disc, 0.5 * x, y]) * 1.6 - 0.6
    return torch.stack([first, -first.flip(0)]).clamp(-1, 1)


def test_pictures_come_back_from_the_cosine_transform(images):
    vae = DctVae()
    latents = encode_latents(vae, images)
    assert latents.shape == (2, vae.config.latent_channels, 8, 6)
    psnr = -10 * ((decode_latents(vae, latents) - images) / 2).square().mean().log10()
    assert psnr > 30


def test_the_cosine_basis_is_orthonormal_so_latents_survive_a_round_trip(seeded):
    vae = DctVae()
    flat = vae.basis.flatten(1)
    torch.testing.assert_close(flat @ flat.T, torch.eye(16), rtol=0, atol=1e-5)
    latents = torch.randn(1, 16, 4, 4, generator=seeded(0))
    torch.testing.assert_close(encode_latents(vae, decode_latents(vae, latents)), latents, rtol=1e-4, atol=1e-4)


def test_a_grey_picture_has_one_channel_and_it_is_its_brightness():
    latents = encode_latents(DctVae(), torch.full((1, 3, 8, 8), 0.5))[0, :, 0, 0]
    assert latents[0] > 0.1
    assert latents[1:].abs().max() < 1e-5


def test_the_cosine_vae_draws_nothing(images, seeded):
    posterior = DctVae().encode(images).latent_dist
    generator = seeded(0)
    before = generator.get_state()
    assert torch.equal(posterior.sample(generator), posterior.mode())
    assert torch.equal(generator.get_state(), before)


def test_latents_of_encoded_files_have_about_unit_spread():
    rows = pq.read_table(PARITY / "t2i" / "part-0.parquet").to_pylist()
    pictures = []
    for row in rows:
        with suppress(UnidentifiedImageError, OSError):
            picture = Image.open(io.BytesIO(row["image"])).convert("RGB").resize((128, 128))
            pictures.append(torch.from_numpy(np.array(picture)).permute(2, 0, 1) / 127.5 - 1)
    latents = encode_latents(DctVae(), torch.stack(pictures))
    assert 0.5 < latents.std() < 1.5
    assert latents.std((0, 2, 3)).min() > 0.1


@pytest.fixture
def autoencoder(seeded) -> AutoencoderKL:
    """Return a diffusers VAE with the blocks of the published one, in small."""
    vae = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(32, 32, 64, 64),
        layers_per_block=2,
        latent_channels=16,
        use_quant_conv=False,
        use_post_quant_conv=False,
        scaling_factor=0.3611,
        shift_factor=0.1159,
    )
    for parameter in vae.parameters():
        torch.nn.init.normal_(parameter, std=0.1, generator=seeded(parameter.numel()))
    return vae.eval()


def test_encoding_samples_with_the_generator_then_shifts_and_scales(autoencoder, images, seeded):
    posterior = autoencoder.encode(images).latent_dist
    expected = 0.3611 * (posterior.sample(seeded(0)) - 0.1159)
    latents = encode_latents(autoencoder, images, seeded(0))
    torch.testing.assert_close(latents, expected)
    assert not latents.requires_grad


def test_decoding_undoes_shift_and_scale(autoencoder, seeded):
    latents = torch.randn(1, 16, 4, 4, generator=seeded(0))
    expected = autoencoder.decode(latents / 0.3611 + 0.1159).sample
    torch.testing.assert_close(decode_latents(autoencoder, latents), expected)


def test_a_vae_without_shift_is_only_scaled(autoencoder, images, seeded):
    autoencoder.register_to_config(shift_factor=None)
    latents = torch.randn(1, 16, 4, 4, generator=seeded(0))
    torch.testing.assert_close(decode_latents(autoencoder, latents), autoencoder.decode(latents / 0.3611).sample)
    mode = autoencoder.encode(images).latent_dist.mode()
    torch.testing.assert_close(encode_modes(autoencoder, images), 0.3611 * mode)


@pytest.fixture
def qwen() -> AutoencoderKLQwenImage:
    """Return Qwen-Image's video VAE in small, each channel with statistics of its own."""
    torch.manual_seed(0)
    statistics = {"latents_mean": [0.1, -0.2, 0.3, 0.5], "latents_std": [2.0, 0.5, 1.0, 4.0]}
    return AutoencoderKLQwenImage(base_dim=8, z_dim=4, num_res_blocks=1, **statistics).eval()


def test_a_video_vae_takes_an_image_as_one_frame_and_normalizes_each_channel(qwen, images):
    mode = qwen.encode(images[:, :, None]).latent_dist.mode()[:, :, 0]
    latents = encode_modes(qwen, images)
    assert latents.shape == (2, 4, 8, 6)
    torch.testing.assert_close(latents[:, 1], (mode[:, 1] + 0.2) / 0.5)
    torch.testing.assert_close(latents[:, 3], (mode[:, 3] - 0.5) / 4)


def test_decoding_undoes_the_normalization_of_a_video_vae(qwen, images):
    expected = qwen.decode(qwen.encode(images[:, :, None]).latent_dist.mode()).sample[:, :, 0]
    decoded = decode_latents(qwen, encode_modes(qwen, images))
    assert decoded.shape == images.shape
    torch.testing.assert_close(decoded, expected, rtol=1e-4, atol=1e-4)


def test_every_vae_tells_its_channels(qwen, autoencoder):
    assert [latent_channels(vae) for vae in (DctVae(), autoencoder, qwen)] == [16, 16, 4]


def test_the_class_of_a_folder_decides_what_is_loaded(qwen, autoencoder, images, tmp_path):
    for vae in (qwen, autoencoder):
        vae.save_pretrained(tmp_path / type(vae).__name__)
        loaded = load_vae(tmp_path / type(vae).__name__)
        assert torch.equal(encode_modes(loaded, images), encode_modes(vae, images))
    with pytest.raises(ConfigError, match=r"the VAE in .* is a AutoencoderKLQwenImage, not the AutoencoderKL that is"):
        load_autoencoder_kl(tmp_path / "AutoencoderKLQwenImage")
    (tmp_path / "AutoencoderKLQwenImage" / "diffusion_pytorch_model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"no VAE in .*AutoencoderKLQwenImage: "):
        load_vae(tmp_path / "AutoencoderKLQwenImage")


def test_a_diffusers_folder_is_loaded(autoencoder, images, tmp_path, seeded):
    autoencoder.save_pretrained(tmp_path)
    loaded = load_autoencoder_kl(tmp_path)
    assert torch.equal(encode_latents(loaded, images, seeded(0)), encode_latents(autoencoder, images, seeded(0)))


def in_flux_layout(vae: AutoencoderKL) -> dict[str, torch.Tensor]:
    """Rename a diffusers VAE's tensors as the published file names them."""
    renamed = {}
    for name, value in vae.state_dict().items():
        for ours, theirs in (
            *((f"encoder.down_blocks.{i}.resnets", f"encoder.down.{i}.block") for i in range(4)),
            *((f"encoder.down_blocks.{i}.downsamplers.0", f"encoder.down.{i}.downsample") for i in range(4)),
            *((f"decoder.up_blocks.{i}.resnets", f"decoder.up.{3 - i}.block") for i in range(4)),
            *((f"decoder.up_blocks.{i}.upsamplers.0", f"decoder.up.{3 - i}.upsample") for i in range(4)),
            ("mid_block.resnets.0", "mid.block_1"),
            ("mid_block.resnets.1", "mid.block_2"),
            ("mid_block.attentions.0.group_norm", "mid.attn_1.norm"),
            *((f"mid_block.attentions.0.to_{p}.", f"mid.attn_1.{p}.") for p in "qkv"),
            ("mid_block.attentions.0.to_out.0", "mid.attn_1.proj_out"),
            ("conv_shortcut", "nin_shortcut"),
            ("conv_norm_out", "norm_out"),
        ):
            name = name.replace(ours, theirs)
        is_projection = "attn_1" in name and value.ndim == 2
        renamed[name] = value[:, :, None, None].contiguous() if is_projection else value
    return renamed


def test_the_published_layout_is_loaded_from_a_file_or_its_folder(autoencoder, images, tmp_path, seeded):
    save_file(in_flux_layout(autoencoder), tmp_path / "ae.safetensors")
    for path in (tmp_path, tmp_path / "ae.safetensors"):
        loaded = load_autoencoder_kl(path)
        assert (loaded.config.scaling_factor, loaded.config.shift_factor) == (0.3611, 0.1159)
        assert torch.equal(encode_latents(loaded, images, seeded(0)), encode_latents(autoencoder, images, seeded(0)))


def test_what_is_no_vae_is_named(tmp_path, autoencoder):
    with pytest.raises(ConfigError, match=r"no VAE in .*: name a diffusers folder"):
        load_autoencoder_kl(tmp_path)
    save_file({"weight": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(ConfigError, match=r"other.safetensors has no encoder.down"):
        load_autoencoder_kl(tmp_path / "other.safetensors")
    incomplete = in_flux_layout(autoencoder)
    del incomplete["decoder.conv_out.bias"]
    save_file(incomplete, tmp_path / "ae.safetensors")
    with pytest.raises(ConfigError, match=r"(?s)ae.safetensors: .*decoder.conv_out.bias"):
        load_autoencoder_kl(tmp_path)
