"""From a run's config to the page of its first packs."""

from collections.abc import Mapping, Sequence
from itertools import islice

from automodel_data.multimodal.checks import read_groups
from automodel_data.multimodal.config import BagelDatasetConfig
from automodel_data.multimodal.loader import BagelDataloaderConfig
from automodel_data.multimodal.utils import add_special_tokens
from recipes.mistakes import ConfigError
from recipes.preview.config import PreviewRun
from recipes.preview.describe import Describer
from recipes.preview.views import GroupView, PackView, PageView


def preview(run: PreviewRun) -> PageView:
    """Draw the first packs that rank 0 would train on, alone, and describe them.

    Raises:
        ConfigError: The data does not come in packs.
        DataError: It gives none.
    """
    if run.sources.prepare is not None:
        run.sources.prepare()
    data = run.validation.data if run.preview.heldout else run.data
    match data:
        case BagelDataloaderConfig(dataset_config=BagelDatasetConfig()):
            return _preview_packs(run, data)
    raise ConfigError(
        f"data ({type(data).__name__}): preview.py shows packs; scripts/encode_cache.py --preview shows a cache"
    )


def _preview_packs(run: PreviewRun, data: BagelDataloaderConfig) -> PageView:
    tokenizer, special_tokens, _ = add_special_tokens(run.task.load_tokenizer(run.model))
    build = data.build(tokenizer, special_tokens, rank=0, world_size=1, batch_size=1, global_seed=run.train.seed)
    describer = Describer(
        tokenizer=tokenizer,
        origin=build.dataset.origin,
        capacity=data.dataset_config.max_num_tokens,
        image_edge=run.preview.image_edge,
    )
    batches = islice(build.dataloader, run.preview.packs)
    packs = [describer.describe(number, batch) for number, batch in enumerate(batches, 1)]
    rows = "held-out rows" if run.preview.heldout else "training rows"
    return PageView(
        title=f"{len(packs)} pack{'s' if len(packs) > 1 else ''} of {rows}",
        facts=_facts(run, data),
        groups=_groups(data.dataset_config, packs),
        lost=_lost(build.dataloader.drops()),
        packs=packs,
    )


def _facts(run: PreviewRun, data: BagelDataloaderConfig) -> list[tuple[str, str]]:
    packing = data.dataset_config
    return [
        ("full from", f"{packing.expected_num_tokens:,} tokens"),
        ("never above", f"{packing.max_num_tokens:,} tokens"),
        ("longest sample", f"{packing.max_num_tokens_per_sample:,} tokens"),
        ("buffer", f"{packing.max_buffer_size:,} samples, used first below {packing.prefer_buffer_before:,} tokens"),
        ("attention", "flex splits" if packing.use_flex else "dense masks"),
        (
            "left out as conditions",
            f"texts {packing.text_cond_dropout_prob:.0%}, ViT {packing.vit_cond_dropout_prob:.0%}, "
            f"VAE {packing.vae_cond_dropout_prob:.0%}",
        ),
        ("images by", packing.image_backend),
        ("seed", f"{run.train.seed}, workers {data.num_workers}"),
    ]


def _groups(config: BagelDatasetConfig, packs: Sequence[PackView]) -> list[GroupView]:
    samples = [sample for pack in packs for sample in pack.samples]
    groups = read_groups(config)
    weights, tokens = sum(group.weight for group in groups), sum(sample.length for sample in samples)
    views = []
    for group in groups:
        own = [sample for sample in samples if sample.dataset == group.name]
        views.append(
            GroupView(
                name=group.name,
                weight=group.weight / weights,
                is_mandatory=group.is_mandatory,
                samples=len(own),
                by_samples=len(own) / len(samples),
                by_tokens=sum(sample.length for sample in own) / tokens,
            )
        )
    return views


def _lost(drops: Mapping[str, Mapping[str, int]]) -> list[tuple[str, str, int]]:
    return [(group, reason, count) for group, reasons in drops.items() for reason, count in reasons.items()]
