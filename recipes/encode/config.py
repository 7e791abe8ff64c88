"""The typed config of ``scripts/encode_cache.py``, composed by Hydra and checked before any file is read."""

from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf

from recipes import nodes
from recipes.mistakes import ConfigError

ACTIONS = ("encode", "verify", "preview")


@dataclass(kw_only=True, slots=True)
class PreviewConfig:
    """The contact sheet: how many samples, and how wide each picture is shown, in pixels."""

    samples: int = 12
    width: int = 256


@dataclass(kw_only=True, slots=True)
class EncodeConfig:
    """One run of the encoder."""

    name: str = "encode_cache"
    output_dir: str = "outputs"
    action: str = "encode"
    source: str | None = None
    cache_dir: str = MISSING
    encode: Any = MISSING  # the kind of cache
    encoder: Any = MISSING
    transform: Any = MISSING
    dtype: str = "bfloat16"  # of latents and embeddings in the files
    items_per_shard: int = 4096
    threads: int = 4  # read, decode and scale images ahead of the encoder, on each rank
    delete_orphans: bool = False  # with action=verify
    preview: PreviewConfig = field(default_factory=PreviewConfig)
    timeout_minutes: float = 60.0  # how long ranks wait for the slowest


def register() -> None:
    """Make it the schema that ``conf/encode_cache.yaml`` is composed against."""
    ConfigStore.instance().store("encode_schema", EncodeConfig)


def load(composed: DictConfig) -> EncodeConfig:
    """Return the built config.

    Raises:
        ConfigError: For keys that nothing reads, wrong types and broken rules.
    """
    plain = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    nodes.check(plain, EncodeConfig)
    config = nodes.build(plain, EncodeConfig)
    check(config)
    return config


def check(config: EncodeConfig) -> None:
    """Refuse settings that cannot work."""
    if config.action not in ACTIONS:
        raise ConfigError(f"action ({config.action}) must be one of {', '.join(ACTIONS)}")
    if config.action == "encode" and config.source is None:
        raise ConfigError("source has no value: name the folder or parquet file to encode, source=...")
    if config.encoder.needs_contexts and not config.encode.has_contexts:
        raise ConfigError(
            f"encode ({config.encode.name}) has no context images, which this encoder looks at: use another"
        )
    for name in ("items_per_shard", "threads"):
        if getattr(config, name) < 1:
            raise ConfigError(f"{name} ({getattr(config, name)}) must be at least 1")
    if config.dtype not in ("bfloat16", "float16", "float32"):
        raise ConfigError(f"dtype ({config.dtype}) must be bfloat16, float16 or float32")
