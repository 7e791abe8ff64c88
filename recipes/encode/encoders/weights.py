"""Load text encoders from local folders, and choose the type they compute in; nothing is ever downloaded."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForTextEncoding, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from recipes.mistakes import ConfigError, require_at_least

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def dtype_of(name: str, device: torch.device) -> torch.dtype:
    """Return the type that an encoder computes in; ``auto`` is bfloat16 on GPUs and float32 elsewhere.

    Raises:
        ConfigError: there is no such type.
    """
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if name not in _DTYPES:
        raise ConfigError(f"encoder.dtype ({name}) must be one of auto, {', '.join(_DTYPES)}")
    return _DTYPES[name]


def require_path(key: str, path: str) -> None:
    """Refuse a path that is not there.

    Raises:
        ConfigError: there is no such file or folder.
    """
    if not Path(path).exists():
        raise ConfigError(f"{key} ({path}): no such file or folder; weights are read from local paths only")


@dataclass(frozen=True, kw_only=True, slots=True)
class TextTower:
    """A tokenizer and an encoder, which has ``positions`` for so many tokens; None: for any number."""

    tokenizer: PreTrainedTokenizerBase
    model: PreTrainedModel
    max_tokens: int
    positions: int | None
    pad: bool

    @torch.no_grad()
    def __call__(self, text: str) -> Any:
        """Return the model's output for one text."""
        tokens = self.tokenizer(
            text,
            truncation=True,
            max_length=self.max_tokens,
            padding="max_length" if self.pad else False,
            return_tensors="pt",
        ).to(self.model.device)
        return self.model(tokens.input_ids, attention_mask=None if self.pad else tokens.attention_mask)


@dataclass(frozen=True, kw_only=True, slots=True)
class TextTowerConfig:
    """A text encoder's local transformers folder (T5, CLIP, BERT, ...).

    Args:
        path: Folder of the encoder.
        tokenizer: Folder of its tokenizer; null: ``path``.
        max_tokens: Longer texts are cut. An encoder with a table of positions takes no more than that and its tokenizer
            allow, whatever is set here: 77 for CLIP.
        pad_to_max_tokens: Encode every text padded to ``max_tokens``, padding and all, as FLUX was trained.
    """

    path: str
    tokenizer: str | None = None
    max_tokens: int = 512
    pad_to_max_tokens: bool = False

    def __post_init__(self) -> None:
        """Refuse texts of nothing."""
        require_at_least(1, max_tokens=self.max_tokens)

    def build(self, key: str, device: torch.device, dtype: torch.dtype) -> TextTower:
        """Load it; ``key`` names its node in messages.

        Raises:
            ConfigError: a folder is not there, or holds something else.
        """
        require_path(f"{key}.path", self.path)
        try:
            model = AutoModelForTextEncoding.from_pretrained(self.path, dtype=dtype, local_files_only=True)
            tokenizer = AutoTokenizer.from_pretrained(self.tokenizer or self.path, local_files_only=True)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{key} ({self.path}): {str(error).splitlines()[0]}") from error
        positions = getattr(model.config, "max_position_embeddings", None)  # relative ones, as T5's, have no end
        limits = () if positions is None else (positions, tokenizer.model_max_length)
        return TextTower(
            tokenizer=tokenizer,
            model=model.to(device).eval(),
            max_tokens=min((self.max_tokens, *limits)),
            positions=positions,
            pad=self.pad_to_max_tokens,
        )
