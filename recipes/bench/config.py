"""What the benchmark measures: a data choice as in training, and what each contestant changes in it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf

from automodel_data.diffusion.manifest import METADATA
from recipes import nodes
from recipes.bench.caches import CacheContestant
from recipes.bench.measure import Contestant
from recipes.bench.peer import known_by_peer, with_row_groups
from recipes.config import ImagesConfig, PackingConfig, SourcesConfig, TrainConfig, ValidationConfig
from recipes.mistakes import ConfigError, require_at_least

PEER = "peer"


@dataclass(kw_only=True, slots=True)
class BenchConfig:
    """The benchmark's settings.

    Args:
        name: Of the run; its directory lies in ``output_dir/name``.
        output_dir: Where the results are written.
        packs: Timed in each round.
        warmup_packs: Before them.
        rounds: In which the contestants alternate.
        read_masks: Read every dense mask, as a model would (``use_flex=false``).
        batches, batch_size: Of a latent cache, read five times in each round.
        workers: Numbers of them to read a latent cache with.
        train, packing, images, sources: What the data points at, as in a run's config.
        data: Makes what is timed; ``data=`` chooses a mixture or a cache.
        contestants: What each changes in ``data.dataset_config``.
        peer: Another class with the interface of ``data.dataset_config``.
        validation: Comes with every choice of data; it is not measured.
    """

    name: str = "bench"
    output_dir: str = "outputs"
    packs: int = 8
    warmup_packs: int = 1
    rounds: int = 3
    read_masks: bool = False
    batches: int = 32
    batch_size: int = 8
    workers: list[int] = field(default_factory=list)
    train: TrainConfig = field(default_factory=TrainConfig)
    packing: PackingConfig = field(default_factory=PackingConfig)
    images: ImagesConfig = field(default_factory=ImagesConfig)
    sources: SourcesConfig = field(default_factory=SourcesConfig)
    data: Any = MISSING
    contestants: dict[str, dict[str, Any]] = field(default_factory=dict)
    peer: dict[str, Any] = field(default_factory=dict)
    validation: ValidationConfig = field(default_factory=ValidationConfig)

    @property
    def is_cached(self) -> bool:
        """Tell whether ``data`` is a latent cache, and not packs."""
        return "cache_dir" in self.data

    @property
    def has_peer(self) -> bool:
        return self.peer.get("_target_") is not None


def register() -> None:
    """Make the settings the schema that ``conf/bench.yaml`` is composed against."""
    ConfigStore.instance().store("bench_schema", BenchConfig)


def load(composed: DictConfig) -> tuple[BenchConfig, dict[str, Any]]:
    """Return the settings, with the whole node of every contestant and of the peer, and the same as plain values.

    Raises:
        ConfigError: For keys that nothing reads, wrong types, and data that is neither packs nor a cache.
    """
    settings: BenchConfig = OmegaConf.to_object(composed)
    for name in ("packs", "warmup_packs", "rounds", "batches", "batch_size"):
        require_at_least(1, **{name: getattr(settings, name)})
    if settings.is_cached:
        return _load_cached(settings, composed)
    if not settings.contestants:
        raise ConfigError("contestants is empty; name at least one, e.g. +contestants.pillow={image_backend: pillow}")
    if "dataset_config" not in settings.data:
        raise ConfigError("data has no dataset_config: choose data=bagel, t2i, edit or vlm_sft, or a cache")
    ours = settings.data["dataset_config"]
    nodes_by_name = {name: ours | changes for name, changes in settings.contestants.items()}
    peer = known_by_peer(ours, settings.peer) if settings.has_peer else settings.peer
    plain = OmegaConf.to_container(composed, resolve=True) | {"contestants": nodes_by_name, "peer": peer}
    nodes.check(plain, BenchConfig)
    return replace(settings, contestants=nodes_by_name, peer=peer), plain


def _load_cached(settings: BenchConfig, composed: DictConfig) -> tuple[BenchConfig, dict[str, Any]]:
    if not settings.workers:
        raise ConfigError("workers is empty; name numbers of worker processes, e.g. workers=[0,2]")
    if not Path(settings.data["cache_dir"], METADATA).is_file():
        raise ConfigError(
            f"data.cache_dir ({settings.data['cache_dir']}) has no {METADATA}; make the cache with "
            "scripts/encode_cache.py (docs/latent_caches.md), or name another: data.cache_dir=FOLDER"
        )
    nodes_by_name = {f"{count} workers": settings.data | {"num_workers": count} for count in settings.workers}
    plain = OmegaConf.to_container(composed, resolve=True) | {"contestants": nodes_by_name}
    nodes.check(plain, BenchConfig)
    return replace(settings, contestants=nodes_by_name), plain


def cache_contestants(settings: BenchConfig) -> dict[str, CacheContestant]:
    """Return the loaders that are measured, by name."""
    return {
        name: CacheContestant(node=node, batch_size=settings.batch_size, batches=settings.batches)
        for name, node in settings.contestants.items()
    }


def contestants(settings: BenchConfig, directory: Path) -> dict[str, Contestant]:
    """Return who is measured, by name; ``directory`` takes what a peer needs to have written down."""
    ours = {name: _contestant(settings, node) for name, node in settings.contestants.items()}
    if not settings.has_peer:
        return ours
    row_groups = {"dataset_info": with_row_groups(settings.peer["dataset_info"], directory)}
    return ours | {PEER: replace(next(iter(ours.values())), node=settings.peer | row_groups)}


def _contestant(settings: BenchConfig, node: Mapping[str, Any]) -> Contestant:
    return Contestant(
        node=node,
        floor_node=node,
        tokenizer=str(settings.sources.tokenizer),
        seed=settings.train.seed,
        packs=settings.packs,
        warmup_packs=settings.warmup_packs,
        read_masks=settings.read_masks,
    )
