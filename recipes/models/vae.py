"""The frozen VAE: from disk in diffusers' or in the published BAGEL layout, or a fixed one that needs no download.

Every VAE here has the interface of diffusers' ``AutoencoderKL``: ``encode(x).latent_dist.sample(generator)``,
``decode(z).sample`` and ``config.{latent_channels, scaling_factor, shift_factor}``; or that of its video VAEs, of which
Qwen-Image's is one: frames [B, C, T, H, W] and ``config.{z_dim, latents_mean, latents_std}``. Images are [B, 3, H, W]
in [-1, 1]. ``encode_latents``, ``encode_modes`` and ``decode_latents`` are the only places that know the difference.
"""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from recipes.mistakes import ConfigError

if TYPE_CHECKING:
    from diffusers import AutoencoderKL

_BLOCK = 8
_LUMA_SCALES = (5.5, 0.8, 0.5, 0.35)
_CHROMA_SCALES = (1.6, 0.5)


@torch.no_grad()
def encode_latents(vae: nn.Module, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Encode images to normalized latents [B, C, H / 8, W / 8], which ``generator`` draws from the posterior."""
    return _normalized(vae, vae.encode(_frames(vae, images)).latent_dist.sample(generator))


@torch.no_grad()
def encode_modes(vae: nn.Module, images: Tensor) -> Tensor:
    """Encode images to normalized latents, those that are most likely; nothing is drawn."""
    return _normalized(vae, vae.encode(_frames(vae, images)).latent_dist.mode())


@torch.no_grad()
def decode_latents(vae: nn.Module, latents: Tensor) -> Tensor:
    """Undo ``encode_latents``, within what the VAE keeps."""
    if not _is_video(vae):
        return vae.decode(latents / vae.config.scaling_factor + _shift(vae)).sample
    mean, std = _statistics(vae, latents.device)
    frames = _frames(vae, latents.float() * std + mean)
    return vae.decode(frames.to(next(vae.parameters()).dtype)).sample[:, :, 0]


def latent_channels(vae: nn.Module) -> int:
    """Return the channels of a latent."""
    return vae.config.z_dim if _is_video(vae) else vae.config.latent_channels


def _is_video(vae: nn.Module) -> bool:
    return getattr(vae.config, "z_dim", None) is not None  # the classes themselves take seconds to import


def _frames(vae: nn.Module, images: Tensor) -> Tensor:
    """Return what the VAE takes: an image is a video of one frame."""
    return images[:, :, None] if _is_video(vae) else images


def _normalized(vae: nn.Module, latents: Tensor) -> Tensor:
    if not _is_video(vae):
        return (latents - _shift(vae)) * vae.config.scaling_factor
    mean, std = _statistics(vae, latents.device)
    return (latents[:, :, 0].float() - mean) / std


def _shift(vae: nn.Module) -> float:
    return vae.config.shift_factor or 0.0  # None in the configs of older models


def _statistics(vae: nn.Module, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return mean and spread of each channel, [C, 1, 1]."""
    values = (vae.config.latents_mean, vae.config.latents_std)
    mean, std = (torch.tensor(one, dtype=torch.float32, device=device)[:, None, None] for one in values)
    return mean, std


def load_vae(path: str | Path) -> nn.Module:
    """Load Qwen-Image's VAE from a diffusers folder, or what ``load_autoencoder_kl`` loads.

    Args:
        path: The ``vae`` folder of a diffusers pipeline, or a published ``ae.safetensors``.

    Raises:
        ConfigError: There is neither; or it cannot be read or is of another kind.
    """
    if _class_name(Path(path)) != "AutoencoderKLQwenImage":
        return load_autoencoder_kl(path)
    from diffusers import AutoencoderKLQwenImage

    return _from_folder(AutoencoderKLQwenImage, Path(path))


def load_autoencoder_kl(path: str | Path) -> "AutoencoderKL":
    """Load a VAE from a diffusers folder, or from BAGEL's ``ae.safetensors`` or the folder that holds it.

    Args:
        path: That folder or file.

    Raises:
        ConfigError: There is neither; or the file cannot be read or is of another layout.
    """
    from diffusers import AutoencoderKL  # seconds to import, and most runs do without

    path = Path(path)
    if (path / "config.json").exists() and not (path / "ae.safetensors").exists():
        return _from_folder(AutoencoderKL, path)
    file = path / "ae.safetensors" if path.is_dir() else path
    try:
        tensors = load_file(file)
    except (FileNotFoundError, SafetensorError) as error:
        raise ConfigError(
            f"no VAE in {path} ({error}): name a diffusers folder with config.json, or a published ae.safetensors"
        ) from error
    return _from_flux_layout(file, tensors)


def _class_name(folder: Path) -> str | None:
    """Return the class that a diffusers folder was saved from, None where it does not say."""
    file = folder / "config.json"
    return json.loads(file.read_text(encoding="utf-8")).get("_class_name") if file.exists() else None


def _from_folder(kind: Any, folder: Path) -> Any:
    """Load a diffusers folder as the class ``kind``.

    Raises:
        ConfigError: It is of another class, or its weights are not there.
    """
    found = _class_name(folder)
    if found not in (None, kind.__name__):
        raise ConfigError(f"the VAE in {folder} is a {found}, not the {kind.__name__} that is asked for")
    try:
        return kind.from_pretrained(folder, local_files_only=True)
    except OSError as error:
        raise ConfigError(f"no VAE in {folder}: {str(error).splitlines()[0]}") from error


def _from_flux_layout(file: Path, tensors: dict[str, Tensor]) -> "AutoencoderKL":
    """Convert the published layout; all sizes follow from the tensors, the scale and shift are those of FLUX."""
    from diffusers import AutoencoderKL
    from diffusers.loaders.single_file_utils import convert_ldm_vae_checkpoint

    last_convolutions = [key for key in tensors if re.fullmatch(r"encoder\.down\.\d+\.block\.\d+\.conv2\.weight", key)]
    if not last_convolutions:
        raise ConfigError(f"{file} has no encoder.down.*: it is no VAE in the layout of a published ae.safetensors")
    widths = [len(tensors[key]) for key in sorted(last_convolutions) if ".block.0." in key]
    vae = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * len(widths),
        up_block_types=("UpDecoderBlock2D",) * len(widths),
        block_out_channels=tuple(widths),
        layers_per_block=len(last_convolutions) // len(widths),
        latent_channels=tensors["decoder.conv_in.weight"].shape[1],
        use_quant_conv=False,
        use_post_quant_conv=False,
        scaling_factor=0.3611,
        shift_factor=0.1159,
    )
    try:
        vae.load_state_dict(convert_ldm_vae_checkpoint(tensors, vae.config))
    except RuntimeError as error:
        raise ConfigError(f"{file}: {error}") from error
    return vae


@dataclass(frozen=True, slots=True)
class DctConfig:
    """The facts that users of a VAE read."""

    latent_channels: int = 16
    scaling_factor: float = 1.0
    shift_factor: float = 0.0


@dataclass(frozen=True, slots=True)
class Exact:
    """A posterior without spread."""

    latents: Tensor

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Return the latents; nothing is drawn."""
        return self.latents

    def mode(self) -> Tensor:
        """Return the latents."""
        return self.latents


@dataclass(frozen=True, slots=True)
class Encoded:
    """What ``encode`` returns."""

    latent_dist: Exact


@dataclass(frozen=True, slots=True)
class Decoded:
    """What ``decode`` returns."""

    sample: Tensor


class DctVae(nn.Module):
    """A VAE without weights: the lowest frequencies of an 8 x 8 cosine transform, as JPEG keeps them.

    16 channels: 10 of brightness and 3 of each of two colour axes, an orthonormal basis that decodes by its own
    transpose. Pictures of shapes come back at about 35 dB. Scaled to about unit variance over all channels; detail
    is left smaller than the averages of blocks, as it matters less to the eye.
    """

    def __init__(self) -> None:
        super().__init__()
        self.config = DctConfig()
        basis, scales = _dct_basis()
        self.register_buffer("basis", basis, persistent=False)
        self.register_buffer("scales", scales, persistent=False)

    def encode(self, images: Tensor) -> Encoded:
        """Transform [B, 3, H, W], both divisible by 8, to [B, 16, H / 8, W / 8]."""
        return Encoded(Exact(F.conv2d(images, self.basis, stride=_BLOCK) / self.scales))

    def decode(self, latents: Tensor) -> Decoded:
        """Transform back."""
        return Decoded(F.conv_transpose2d(latents * self.scales, self.basis, stride=_BLOCK))


def _dct_basis() -> tuple[Tensor, Tensor]:
    """Return orthonormal kernels [16, 3, 8, 8] and what each coefficient is divided by, [16, 1, 1]."""
    frequency, place = torch.arange(_BLOCK)[:, None], torch.arange(_BLOCK)[None, :]
    waves = torch.cos(math.pi * frequency * (2 * place + 1) / (2 * _BLOCK)) * math.sqrt(2 / _BLOCK)
    waves[0] /= math.sqrt(2)
    axes = F.normalize(torch.tensor([[1.0, 1, 1], [1, 0, -1], [1, -2, 1]]), dim=1)  # grey, red-blue, green-purple
    kernels, scales = [], []
    for axis, by_order in zip(axes, (_LUMA_SCALES, _CHROMA_SCALES, _CHROMA_SCALES), strict=True):
        for order, scale in enumerate(by_order):
            for row in range(order + 1):
                kernels.append(torch.einsum("c,y,x->cyx", axis, waves[row], waves[order - row]))
                scales.append(scale)
    return torch.stack(kernels), torch.tensor(scales)[:, None, None]
