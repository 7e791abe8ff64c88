"""One run of ``scripts/encode_cache.py`` on this rank: encode, verify or preview."""

import logging
import signal
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import torch

from automodel_data.diffusion.base_dataset import BaseMultiresolutionDataset
from automodel_data.diffusion.manifest import METADATA, read_manifest
from automodel_data.errors import DataError
from recipes import distributed
from recipes.distributed import World
from recipes.encode.cache import CacheWriter, encoder_hash
from recipes.encode.config import EncodeConfig
from recipes.encode.encoders.base import Encoder
from recipes.encode.layouts import Layout
from recipes.encode.manifest import LOST, MANIFEST
from recipes.encode.prepare import Hasher
from recipes.encode.preview import draw_sheet
from recipes.encode.sources import Source, open_source
from recipes.encode.verify import Findings, compare_with_source, verify
from recipes.mistakes import ConfigError

log = logging.getLogger(__name__)

PREVIEW = "preview.png"


def run(config: EncodeConfig) -> int:
    """Do what ``config.action`` says.

    Returns:
        The exit code: 1 when ``verify`` finds anything wrong, 130 after Ctrl-C.

    Raises:
        ConfigError, DataError: the configuration or the source cannot make a cache.
    """
    world = distributed.start(config.timeout_minutes)
    try:
        match config.action:
            case "encode":
                _encode(config, world)
            case "verify" if world.leads:
                return _verify(config, world)
            case "preview" if world.leads:
                _preview(config, world)
    except KeyboardInterrupt:
        log.info("stopped; the same command goes on where it was")
        return 128 + signal.SIGINT
    return 0


def _encode(config: EncodeConfig, world: World) -> None:
    source = _source(config)
    _check_cache_dir(Path(config.cache_dir), config.encode)
    encoder = config.encoder.build(world.device)
    _check_grid(config, encoder)
    losses = CacheWriter(
        cache_dir=Path(config.cache_dir),
        source=source,
        source_name=str(config.source),
        layout=config.encode,
        transform=config.transform,
        encoder=encoder,
        encoder_identity=world.share(encoder.identity() if world.leads else None),
        dtype=_dtype(config),
        threads=config.threads,
        items_per_shard=config.items_per_shard,
        world=world,
    ).run()
    if world.leads:
        log.info("%s", _summary(config.cache_dir, config.encode, losses))


def _summary(cache_dir: str, layout: Layout, lost: Mapping[str, int]) -> str:
    """Return what a cache holds and what was lost on the way to it, a bucket a line."""
    buckets = layout.open(cache_dir).get_bucket_info()["buckets"]
    told = ", ".join(f"{count} x {reason}" for reason, count in lost.items())
    told = f"{told}; {cache_dir}/{LOST} names each" if told else "none"
    held = f"{_counted(sum(buckets.values()), 'sample')} in {_counted(len(buckets), 'bucket')}"
    head = f"{cache_dir}: {held}; rows lost: {told}"
    return "\n".join([head, *(f"{count:8,}  {name}" for name, count in buckets.items())])


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _verify(config: EncodeConfig, world: World) -> int:
    dataset = config.encode.open(config.cache_dir)
    findings = verify(dataset, config.threads)
    if config.source is None:
        log.warning("source has no value: stale samples are not looked for")
    else:
        _compare(config, world, dataset, findings)
    for line in findings.lines():
        log.info("%s", line)
    if config.delete_orphans:
        for path in findings.orphaned:
            path.unlink()
        log.info("deleted %s", _counted(len(findings.orphaned), "orphaned file"))
    return 0 if findings.usable else 1


def _compare(config: EncodeConfig, world: World, dataset: BaseMultiresolutionDataset, findings: Findings) -> None:
    source = _source(config)
    identity = config.encoder.build(world.device).identity()
    hasher = Hasher(
        layout=config.encode, transform=config.transform, encoder_hash=encoder_hash(identity, _dtype(config))
    )
    compare_with_source(findings, dataset, source, hasher, config.threads)


def _preview(config: EncodeConfig, world: World) -> None:
    encoder = config.encoder.build(world.device)
    dataset = config.encode.open(config.cache_dir)
    sheet = draw_sheet(dataset, config.encode, encoder, config.preview.samples, config.preview.width)
    path = Path(config.cache_dir) / PREVIEW
    sheet.save(path)
    log.info("wrote %s", path)


def _source(config: EncodeConfig) -> Source:
    layout: Layout = config.encode
    source = open_source(str(config.source), layout.lines_file, layout.columns)
    if not len(source):
        raise DataError(f"source ({config.source}) has no rows")
    return source


def _check_cache_dir(cache_dir: Path, layout: Layout) -> None:
    """Refuse a folder that cannot be written, and one that holds another cache or other files."""
    if (cache_dir / METADATA).exists():
        found = read_manifest(cache_dir).get("layout")
        if found is None or not (cache_dir / MANIFEST).exists():
            raise ConfigError(f"cache_dir ({cache_dir}) holds a cache that was not made here: name another folder")
        if found != layout.name:
            raise ConfigError(
                f"cache_dir ({cache_dir}) holds a cache of encode={found}, which encode={layout.name} would replace: "
                "name another folder"
            )
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=cache_dir, prefix=MANIFEST).close()  # other ranks may see its name
        names = [] if (cache_dir / MANIFEST).exists() else sorted(path.name for path in cache_dir.iterdir())
    except OSError as error:
        raise ConfigError(f"cache_dir ({cache_dir}) cannot be written: {error.strerror}") from error
    stranger = next((name for name in names if not name.startswith(MANIFEST)), None)
    if stranger is not None:
        raise ConfigError(f"cache_dir ({cache_dir}) holds other files ({stranger}): name a new or empty folder")


def _check_grid(config: EncodeConfig, encoder: Encoder) -> None:
    quantization = config.transform.quantization
    if quantization % encoder.grid:
        raise ConfigError(
            f"transform.quantization ({quantization}) must be a multiple of {encoder.grid}: "
            "the encoder's scale times a patch of 2"
        )


def _dtype(config: EncodeConfig) -> torch.dtype:
    dtypes: dict[str, Any] = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
    return dtypes[config.dtype]
