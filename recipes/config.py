"""The typed run config: composed by Hydra, checked as a whole, then built; no DictConfig goes past this file.

    conf/*.yaml + overrides --compose--> DictConfig --> plain values --check keys--> RunConfig --check rules-->

Nodes typed ``Any`` are open-ended: a ``_target_`` names what they build, and its signature is their schema.
"""

from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf

from recipes import nodes, published
from recipes.callbacks.base import Callback
from recipes.heldout import heldout
from recipes.mistakes import ConfigError, require_at_least
from recipes.optim import build_optimizer
from recipes.resume import ResumeConfig


@dataclass(kw_only=True, slots=True)
class TrainConfig:
    """How long and how a model is trained, whatever it is.

    Args:
        max_steps: Optimizer steps of the whole run, resumed or not.
        accumulation_steps: Micro-batches per optimizer step, on each rank.
        clip_gradient_norm: Gradients are scaled down to this L2 norm over all parameters; null: they are not.
        ema_decay: Of an exponential moving average of the weights, kept and saved beside them; null: none.
        precision: ``float32``, ``bfloat16``, or ``auto``: bfloat16 autocast on GPUs.
        log_every_steps: Optimizer steps between two lines of metrics, which are means over those steps.
        seed: Decides fresh weights, noise and the order of the data.
    """

    max_steps: int = 1000
    accumulation_steps: int = 1
    clip_gradient_norm: float | None = 1.0
    ema_decay: float | None = None
    precision: str = "auto"
    log_every_steps: int = 1
    seed: int = 42


@dataclass(kw_only=True, slots=True)
class PackingConfig:
    """Token budgets of one pack; the data nodes point here.

    Args:
        expected_num_tokens: A pack with this many tokens is full, and closed.
        max_num_tokens_per_sample: Longer samples are dropped, and counted, in tokens.
        max_num_tokens: No pack holds more tokens.
        prefer_buffer_before: Below this many tokens a pack takes from the buffer first.
        max_buffer_size: Most samples set aside because they did not fit.
    """

    expected_num_tokens: int = MISSING
    max_num_tokens_per_sample: int = MISSING
    max_num_tokens: int = MISSING
    prefer_buffer_before: int = MISSING
    max_buffer_size: int = MISSING


@dataclass(kw_only=True, slots=True)
class ImagesConfig:
    """How large images are, and the position tables that must hold them; the data nodes point here.

    Args:
        generate: Stride and largest and smallest sides of images that are generated or conditions of it, in pixels.
        understand: The same for the understanding tower.
        frames: Fewest and most frames that are taken of a video.
        max_latent_size: Side of the latents' position table, in tokens.
        max_num_patch_per_side: Side of the understanding tower's position table, in patches.
    """

    generate: dict[str, int] = field(default_factory=dict)
    understand: dict[str, int] = field(default_factory=dict)
    frames: dict[str, int] = field(default_factory=dict)
    max_latent_size: int = MISSING
    max_num_patch_per_side: int = MISSING


@dataclass(kw_only=True, slots=True)
class SourcesConfig:
    """Where the rows lie; the only machine-specific part.

    Args:
        root: Folder that the other paths of the file start with.
        tokenizer: Folder that ``AutoTokenizer.from_pretrained`` loads.
        train, heldout: ``{group: {dataset: {data_dir, jsonl_path?, parquet_info_path?}}}`` of the rows; without
            held-out rows nothing is validated.
        num_used_data: For ``train`` and ``heldout``, by group: parquet files or JSON lines to use of each dataset; all
            where it is omitted.
        train_cache, heldout_cache: Folders of latent caches, which ``scripts/encode_cache.py`` writes.
        train_pairs, heldout_pairs: Folders of what such caches are encoded from.
        prepare: Called before the first use, e.g. to make the demo data; null: nothing.
    """

    root: str | None = None
    tokenizer: str | None = None
    train: dict[str, Any] = field(default_factory=dict)
    heldout: dict[str, Any] = field(default_factory=dict)
    num_used_data: dict[str, Any] = field(default_factory=dict)
    train_cache: str | None = "${below:${sources.root},cache/train}"
    heldout_cache: str | None = "${below:${sources.root},cache/heldout}"
    train_pairs: str | None = None
    heldout_pairs: str | None = None
    prepare: Any = None


@dataclass(kw_only=True, slots=True)
class ValidationConfig:
    """What of ``data`` is different for the held-out rows: an overlay in the file, the merged whole once loaded.

    Args:
        data: Keys of ``data`` with their values for held-out rows; null: there are none.
    """

    data: Any = None


@dataclass(kw_only=True, slots=True)
class LaunchConfig:
    """How plain ``python`` starts the ranks; torchrun's own options win under torchrun.

    Args:
        nproc_per_node: Ranks to start on this machine; null: one, this process; in a sweep one for each job.
    """

    nproc_per_node: int | None = None


@dataclass(kw_only=True, slots=True)
class RunConfig:
    """Everything one run is made from.

    Args:
        name: Of the run; its directories lie in ``output_dir/name``.
        output_dir: Where all runs write.
        resume: Where the run goes on from; ``resume=auto``: from the newest complete checkpoint of this name.
        objective: The metric whose last value a sweep sees; ``auto``: ``val/loss``, or ``loss`` where that is not
            measured; null: none.
        train, packing, images, sources, validation, launch: See the sections of these names.
        data: Makes the loader; ``data=`` chooses a mixture or a cache.
        dataset: A published ``dataset:`` block in the place of ``data.dataset_config``; see ``recipes/published.py``.
        model: Makes the model.
        task: What is learnt: losses, and what they need beside the model.
        optimizer: Any of ``torch.optim``.
        lr_schedule: What the learning rate is multiplied with in each step.
        distributed: How the model is spread over ranks.
        checkpoint: When checkpoints are saved, and which are kept.
        logger: Callbacks that keep metrics, by name; null switches one off.
        callbacks: All other callbacks, by name; null switches one off.
    """

    name: str = "run"
    output_dir: str = "outputs"
    resume: ResumeConfig = field(default_factory=ResumeConfig)
    objective: str | None = None
    train: TrainConfig = field(default_factory=TrainConfig)
    packing: PackingConfig = field(default_factory=PackingConfig)
    images: ImagesConfig = field(default_factory=ImagesConfig)
    sources: SourcesConfig = field(default_factory=SourcesConfig)
    data: Any = MISSING
    dataset: Any = None
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    model: Any = MISSING
    task: Any = MISSING
    optimizer: Any = MISSING
    lr_schedule: Any = MISSING
    distributed: Any = MISSING
    checkpoint: Any = MISSING
    logger: dict[str, Any] = field(default_factory=dict)
    callbacks: dict[str, Any] = field(default_factory=dict)
    launch: LaunchConfig = field(default_factory=LaunchConfig)


Run = TypeVar("Run", bound=RunConfig)


def register(schema: type[RunConfig] = RunConfig) -> None:
    """Make ``schema``, a program's own keys on top of a run's, what ``conf/train.yaml`` is composed against."""
    ConfigStore.instance().store("schema", schema)


def load(composed: DictConfig, schema: type[Run] = RunConfig) -> tuple[Run, dict[str, Any]]:
    """Return the built run config and the plain values it came from.

    Raises:
        ConfigError: For keys that nothing reads, wrong types and broken rules, before any file or device is touched.
    """
    plain = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    if plain["dataset"] is not None:
        plain = published.taken(plain)
    overlay = plain["validation"].get("data")
    if overlay is not None:
        plain["validation"]["data"] = heldout(plain["data"], overlay)
    nodes.check(plain, schema)
    config = nodes.build(plain, schema)
    check(config)
    return config, plain


def check(config: RunConfig) -> None:
    """Refuse settings that contradict each other."""
    train = config.train
    for name in ("max_steps", "accumulation_steps", "log_every_steps"):
        require_at_least(1, **{f"train.{name}": getattr(train, name)})
    known = ("auto", "float32", "bfloat16")
    _require(train.precision in known, f"train.precision ({train.precision}) must be one of {', '.join(known)}")
    clip, decay = train.clip_gradient_norm, train.ema_decay
    _require(clip is None or clip > 0, f"train.clip_gradient_norm ({clip}) must be positive, or null for no clipping")
    _require(decay is None or 0 < decay < 1, f"train.ema_decay ({decay}) must lie between 0 and 1, or be null for none")
    ranks = config.launch.nproc_per_node
    _require(
        ranks is None or ranks >= 1,
        f"launch.nproc_per_node ({ranks}) must be at least 1, or null for this process alone",
    )
    build_optimizer(config.optimizer, torch.nn.Linear(1, 1, bias=False))  # it refuses options that mean nothing
    config.lr_schedule.check()
    config.checkpoint.check()
    config.task.check(config)
    for path, one in {**_named("logger", config.logger), **_named("callbacks", config.callbacks)}.items():
        known = one is None or isinstance(one, Callback)
        _require(known, f"{path} is no callback: it needs a _target_, or null to switch it off")
    wants_validation = str(config.objective).startswith("val/")
    _require(
        not wants_validation or config.validation.data is not None,
        f"objective ({config.objective}) needs held-out rows: give sources.heldout, or choose objective=auto",
    )


def _named(group: str, entries: dict[str, Any]) -> dict[str, Any]:
    return {f"{group}.{name}": entry for name, entry in entries.items()}


def _require(holds: bool, line: str) -> None:
    if not holds:
        raise ConfigError(line)
