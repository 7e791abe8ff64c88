"""Weights from files: a published BAGEL folder, or a dense Qwen2 and a SigLIP to start from.

Tensors are read one at a time and copied into the parameters that exist, whole or sharded (DTensor), so a model that
was sharded on the meta device loads without ever being whole. A tensor without a parameter, a parameter without a
tensor and a wrong shape each name their file and key.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from recipes.mistakes import ConfigError
from recipes.models.bagel.embeddings import sincos_2d

if TYPE_CHECKING:
    from recipes.models.bagel.model import Bagel

_GEN = "_moe_gen"
_VISION = "vit_model.vision_model."
_WEIGHT_FILES = ("ema.safetensors", "model.safetensors")
_POSITION_TABLES = {"vit_pos_embed.pos_embed", "latent_pos_embed.pos_embed"}


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedWeights:
    """All weights from a published BAGEL folder, or from a file that ``published_state_dict`` was saved to.

    Attributes:
        folder: That folder or file.
    """

    folder: str

    def load(self, model: "Bagel") -> None:
        """Fill every parameter."""
        load_published(model, self.folder)


@dataclass(frozen=True, kw_only=True, slots=True)
class DenseWeights:
    """A dense Qwen2 for the decoder and a SigLIP for the tower; what joins them stays as freshly drawn.

    Attributes:
        llm: Folder of a Qwen2 checkpoint.
        vision: Folder of a SigLIP checkpoint whose position table has the size of ``vision.image_size``.
        copy_init_moe: Start the generation expert as a copy of the understanding expert.
    """

    llm: str
    vision: str
    copy_init_moe: bool = True

    def load(self, model: "Bagel") -> None:
        """Fill the decoder and the vision tower of a model with fresh weights."""
        load_dense_llm(model, self.llm)
        load_siglip(model, self.vision)
        if self.copy_init_moe:
            copy_und_to_gen(model)


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor and where it was read."""

    file: Path
    key: str
    value: Tensor


def load_published(model: "Bagel", folder: str | Path) -> None:
    """Fill every parameter from a file, or a folder's ``ema.safetensors``, ``model.safetensors`` or indexed shards.

    The two fixed position tables are dropped: they follow from the configuration, which may ask for other sizes.
    """
    stored = ((t.key, t) for t in stored_tensors(Path(folder)) if t.key not in _POSITION_TABLES)
    _require(model, _fill(model, stored), folder)


def load_dense_llm(model: "Bagel", folder: str | Path) -> None:
    """Fill the understanding expert from a dense Qwen2; its head is the embedding where the two are tied.

    Query and key norms, which Qwen2 has not, keep their weights of one.
    """
    filled = _fill(model, ((f"language_model.{t.key}", t) for t in stored_tensors(Path(folder))))
    head, embedding = model.language_model.lm_head, model.language_model.model.embed_tokens
    if "language_model.lm_head.weight" not in filled:
        with torch.no_grad():
            head.weight.copy_(embedding.weight)
        filled.add("language_model.lm_head.weight")
    _require(model, filled, folder, prefix="language_model.", optional=(_GEN, "q_norm", "k_norm"))


def load_siglip(model: "Bagel", folder: str | Path) -> None:
    """Fill the vision tower from a stock SigLIP, with or without its ``vision_model.`` prefix and text tower.

    The patch convolution becomes the linear layer over (row, column, channel) that packed patches are laid out for; the
    pooling head and the layers past the selected one are left out.
    """
    built = set(dict(model.named_parameters()))

    def wanted() -> Iterator[tuple[str, StoredTensor]]:
        for tensor in stored_tensors(Path(folder)):
            name = _VISION + tensor.key.removeprefix("vision_model.")
            if tensor.key.endswith("patch_embedding.weight") and tensor.value.ndim == 4:
                linear = tensor.value.permute(0, 2, 3, 1).flatten(1)
                tensor = StoredTensor(tensor.file, tensor.key, linear)
            if name in built:
                yield name, tensor

    _require(model, _fill(model, wanted()), folder, prefix=_VISION)


def copy_und_to_gen(model: nn.Module) -> None:
    """Make every weight of the generation expert a copy of its sibling."""
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, parameter in parameters.items():
            if _GEN in name:
                parameter.copy_(parameters[name.replace(_GEN, "")])


def published_state_dict(model: "Bagel") -> dict[str, Tensor]:
    """Return all tensors that a published ``ema.safetensors`` holds, the two fixed position tables among them."""
    config, device = model.config, model.llm2vae.weight.device

    def table(side: int) -> Tensor:
        return sincos_2d(torch.arange(side**2, device=device), side, config.llm.hidden_size)

    vit, latent = table(config.vision.max_patches_per_side), table(config.max_latent_size)
    return model.state_dict() | {"vit_pos_embed.pos_embed": vit, "latent_pos_embed.pos_embed": latent}


def stored_tensors(folder: Path) -> Iterator[StoredTensor]:
    """Yield the tensors of a checkpoint folder, whichever way it is cut into files, or of one file; one by one."""
    for file in _weight_files(folder):
        try:
            with safe_open(file, framework="pt") as opened:
                for key in opened.keys():  # noqa: SIM118 - not a mapping
                    yield StoredTensor(file, key, opened.get_tensor(key))
        except (OSError, SafetensorError) as error:
            raise ConfigError(f"{file} cannot be read as safetensors: {error}") from error


def _weight_files(folder: Path) -> list[Path]:
    if folder.is_file():
        return [folder]
    for name in _WEIGHT_FILES:
        if (folder / name).exists():
            return [folder / name]
    for index in sorted(folder.glob("*.safetensors.index.json")):
        return [folder / shard for shard in sorted(set(json.loads(index.read_text())["weight_map"].values()))]
    raise ConfigError(f"{folder} has none of {', '.join(_WEIGHT_FILES)} and no *.safetensors.index.json")


def _fill(model: nn.Module, named: Iterable[tuple[str, StoredTensor]]) -> set[str]:
    parameters, filled = dict(model.named_parameters()), set()
    for name, stored in named:
        if name not in parameters:
            raise ConfigError(f"{stored.file}: {stored.key} fits no parameter of the model; is it of another flavour?")
        parameter = parameters[name]
        if stored.value.shape != parameter.shape:
            raise ConfigError(
                f"{stored.file}: {stored.key} has shape {list(stored.value.shape)}, the model needs "
                f"{list(parameter.shape)}; take the sizes from the checkpoint's own configuration"
            )
        _copy(parameter, stored.value)
        filled.add(name)
    return filled


def _copy(parameter: Tensor, value: Tensor) -> None:
    if isinstance(parameter, DTensor):
        value = value.to(parameter.device)
        value = distribute_tensor(value, parameter.device_mesh, parameter.placements, src_data_rank=None)
    with torch.no_grad():
        parameter.copy_(value)


def _require(
    model: nn.Module, filled: set[str], folder: str | Path, prefix: str = "", optional: tuple[str, ...] = ()
) -> None:
    names = [name for name, _ in model.named_parameters() if name.startswith(prefix)]
    missing = [name for name in names if name not in filled and not any(part in name for part in optional)]
    if missing:
        raise ConfigError(f"{folder} has no tensor for {missing[0]} ({len(missing)} parameters are missing)")
