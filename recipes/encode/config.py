"""The typed config of ``scripts/encode_cache.py``, composed by Hydra and checked before any file is read."""

from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf

from recipes import nodes
from recipes.mistakes import ConfigError, require_at_least

ACTIONS = ("encode", "verify", "preview")
ENCODERS = ("demo", "autoencoder_kl", "qwen_image_edit")  # of conf/encoder


@dataclass(kw_only=True, slots=True)
class PreviewConfig:
    """The contact sheet.

    Args:
        samples: How many.
        width: Of each picture, in pixels.
    """

    samples: int = 12
    width: int = 256

    def __post_init__(self) -> None:
        """Refuse a sheet of nothing."""
        require_at_least(1, **{"preview.samples": self.samples, "preview.width": self.width})


@dataclass(kw_only=True, slots=True)
class EncodeConfig:
    """One run of the encoder.

    Args:
        name: Of the run; its log lies in ``output_dir/name``.
        output_dir: Where logs are written.
        action: ``encode``, ``verify`` or ``preview``; the options ``--verify`` and ``--preview`` set it.
        source: A folder, or parquet files, of what is encoded.
        cache_dir: Folder of the cache.
        encode: The kind of cache.
        encoder: What makes latents of images and embeddings of texts.
        transform: How images are scaled and cut to their bucket.
        dtype: Of latents and embeddings in the files.
        items_per_shard: Entries in each file of the cache's table of contents.
        threads: Read, decode and scale images ahead of the encoder, on each rank.
        delete_orphans: With ``action=verify``, delete payloads that no entry names.
        preview: See the section of this name.
        timeout_minutes: How long ranks wait for the slowest.
    """

    name: str = "encode_cache"
    output_dir: str = "outputs"
    action: str = "encode"
    source: str | None = None
    cache_dir: str = MISSING
    encode: Any = MISSING
    encoder: Any = MISSING
    transform: Any = MISSING
    dtype: str = "bfloat16"
    items_per_shard: int = 4096
    threads: int = 4
    delete_orphans: bool = False
    preview: PreviewConfig = field(default_factory=PreviewConfig)
    timeout_minutes: float = 60.0


def register() -> None:
    """Make it the schema that ``conf/encode_cache.yaml`` is composed against."""
    ConfigStore.instance().store("encode_schema", EncodeConfig)


def load(composed: DictConfig) -> EncodeConfig:
    """Return the built config.

    Raises:
        ConfigError: For keys that nothing reads, wrong types and broken rules.
    """
    if OmegaConf.is_missing(composed, "encoder"):
        raise ConfigError(f"encoder has no value; choose one: encoder={' | '.join(ENCODERS)}")
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
    require_at_least(1, items_per_shard=config.items_per_shard, threads=config.threads)
    if config.dtype not in ("bfloat16", "float16", "float32"):
        raise ConfigError(f"dtype ({config.dtype}) must be bfloat16, float16 or float32")
