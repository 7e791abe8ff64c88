"""A user's mistake becomes one line that names the key and the way out."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from recipes import config, launch
from recipes.mistakes import explain

CONF = Path(__file__).parents[2] / "conf"
CACHES = Path(__file__).parents[1] / "data/parity/inputs"


@pytest.fixture(autouse=True)
def hydra() -> Iterator[None]:
    config.register()
    launch.register_resolvers()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield


def line_of(*overrides: str) -> str | None:
    with pytest.raises(Exception) as caught:
        config.load(compose("train", list(overrides)))
    return explain(caught.value)


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("trian.max_steps=3", "trian: no such key. Did you mean 'train'?"),
        ("max_steps=3", "max_steps: no such key. Did you mean 'train.max_steps'?"),
        ("recpe=t2i", "recpe: no such key. Did you mean 'recipe'?"),
        ("optimizer.lr=-1", "optimizer: Invalid learning rate: -1"),
        ("optimizer.lr=fast", "optimizer: '<=' not supported between instances of 'float' and 'str'"),
        ("optimizer.betas=3", "optimizer: 'int' object is not subscriptable"),
        ("data.num_workers=-1", "data: num_workers (-1) must not be negative; 0 loads in the process itself"),
        ("data.prefetch_factor=0", "data: prefetch_factor (0) must be at least 1: batches read ahead by each worker"),
        ("train.max_step=3", "train.max_step: no such key. Did you mean 'train.max_steps'?"),
        ("+train.max_step=3", "train.max_step: no such key. Did you mean 'train.max_steps'?"),
        ("train.max_steps=many", "train.max_steps: Value 'many' of type 'str' could not be converted to Integer"),
        ("model.llm.hidden_sise=64", "model.llm.hidden_sise: no such key. Did you mean 'model.llm.hidden_size'?"),
        ("+model.llm.hidden_sise=64", "model.llm.hidden_sise: no such key. Did you mean 'model.llm.hidden_size'?"),
        ("+model.hidden_size=64", "model.hidden_size: no such key. Did you mean 'model.vision.hidden_size'?"),
        ("optimizer.learning=1", "optimizer.learning: no such key. There are: betas, eps, lr, weight_decay."),
        ("+data.worker=2", "data.worker: no such key. Did you mean 'data.num_workers'?"),
        ("data.num_workers=two", "data.num_workers ('two') must be int"),
        ("data.pin_memory=3", "data.pin_memory (3) must be bool"),
        ("recipe=bagle", "recipe=bagle: no such option. Did you mean 'bagel'?"),
        ("optimizer=zzz", "optimizer=zzz: no such option. There are: adamw, sgd."),
        (
            "optimizer._target_=torch.optim.AdmW",
            "optimizer._target_ (torch.optim.AdmW): there is no such thing. Did you mean 'AdamW'?",
        ),
        ("sources.tokenizer=null", "task.tokenizer has no value; it must be str"),
        ("sources.tokenizer=${nowhere}", "sources.tokenizer: Interpolation key 'nowhere' not found"),
        ("train.accumulation_steps=0", "train.accumulation_steps (0) must be at least 1"),
        ("train.precision=half", "train.precision (half) must be one of auto, float32, bfloat16"),
        (
            "train.clip_gradient_norm=-1",
            "train.clip_gradient_norm (-1.0) must be positive, or null for no clipping",
        ),
        ("train.ema_decay=1.5", "train.ema_decay (1.5) must lie between 0 and 1, or be null for none"),
        ("lr_schedule.warmup_steps=-1", "lr_schedule.warmup_steps (-1) must not be negative"),
        (
            "resume=outputs/a/checkpoints/step-2",
            "resume=outputs/a/checkpoints/step-2: no such option; to go on from that checkpoint set "
            "resume.path=outputs/a/checkpoints/step-2",
        ),
        (
            "model=null",
            "Config group override must be a string or a list. Got NoneType: write group=option, as packing=",
        ),
        ("model=7", "Config group override must be a string or a list. Got int: write group=option, as packing=tiny"),
        ("resume=aut", "resume=aut: no such option; to go on from that checkpoint set resume.path=aut"),
        ("checkpoint.keep=0", "checkpoint.keep (0) must be at least 1"),
        ("callbacks.validation.every_steps=0", "callbacks.validation: every_steps (0) must be at least 1"),
        ("task.ce_weight=-1", "task.ce_weight (-1) and task.mse_weight (1.0) must be >= 0"),
        (
            "packing.max_num_tokens=1000",
            "data.dataset_config: expected_num_tokens (1536) must not exceed max_num_tokens (1000): "
            "lower the one or raise the other",
        ),
        (
            "images.max_latent_size=8",
            "data.dataset_config.max_latent_size (8) must be the model's (16); choose the images= for this model=",
        ),
        (
            "+callbacks.mine.every=3",
            "callbacks.mine is no callback: it needs a _target_, or null to switch it off",
        ),
        ("model=flux_tiny", "model (FluxConfig) does not learn task=packed; choose a recipe that has both"),
        ("data=image_edit", "data (ImageEditDataloaderConfig) does not feed task=packed: its build() takes dp_rank"),
        ("launch.nproc_per_node=0", "launch.nproc_per_node (0) must be at least 1, or null for this process alone"),
        ("hydra/launcher=torchrn", "hydra/launcher=torchrn: no such option. Did you mean 'torchrun'?"),
        ("train.max_steps=???", "train.max_steps has no value; give it one: train.max_steps=..."),
        ("train.max_steps", "cannot read the override 'train.max_steps': "),
    ],
)
def test_the_line_names_the_key_and_the_way_out(override: str, line: str) -> None:
    told = line_of(override)
    assert told is not None
    assert told.startswith(line)
    assert "\n" not in told


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("data.batch_size=4", "data.batch_size: no such key. Did you mean 'task.batch_size'?"),
        ("train.lr=1e-4", "train.lr: no such key. Did you mean 'optimizer.lr'?"),
    ],
)
def test_a_key_of_another_section_is_told_by_its_name(override: str, line: str) -> None:
    assert line_of("recipe=image_edit", f"+{override}") == line


def test_edits_refuse_batches_sized_by_pixels_in_one_line() -> None:
    overrides = ["recipe=image_edit", "data.dynamic_batch_size=true", f"data.cache_dir={CACHES / 'edit_cache'}"]
    settings, _ = config.load(compose("train", overrides))
    with pytest.raises(ValueError, match=r"dynamic_batch_size \(True\) is not possible with image-edit") as caught:
        settings.data.build(dp_rank=0, dp_world_size=1, batch_size=2)
    assert "\n" not in str(caught.value)


def test_batches_of_captioned_images_are_sized_by_pixels_if_asked() -> None:
    keys = ["data.dynamic_batch_size=true", "data.base_resolution=[512,256]", f"data.cache_dir={CACHES / 't2i_cache'}"]
    settings, _ = config.load(compose("train", ["recipe=t2i_cached", *keys]))
    sampler = settings.data.build(dp_rank=0, dp_world_size=1, batch_size=8).sampler
    sizes = [plan.batch_size for plan in sampler.plans]
    pixels = [sampler.dataset.bucket_groups[key]["pixels"] for key in sampler.dataset.sorted_bucket_keys]
    assert sizes == [max(1, int(8 * 512 * 256 / one)) for one in pixels]
    assert len(set(sizes)) > 1


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("name: mine\n", "recipe=...: the first line of that file must be '# @package _global_', or its keys go below"),
        ("# @package _global_\nname: [x\n", r"{file}, line 3, is no YAML: expected ',' or ']', but got"),
        ("a:\n\tb: 1\n", r"{file}, line 2, is no YAML: found character '\t' that cannot start any token"),
    ],
)
def test_a_recipe_that_cannot_be_read_is_named_with_the_line(text: str, line: str, tmp_path: Path) -> None:
    file = tmp_path / "recipe" / "mine.yaml"
    file.parent.mkdir()
    file.write_text(text)
    told = line_of(f"hydra.searchpath=[file://{tmp_path}]", "recipe=mine")
    assert told is not None
    assert told.startswith(line.format(file=file))


def test_what_a_target_refuses_comes_with_its_key() -> None:
    assert line_of("model.llm.hidden_size=130").startswith("model.llm: hidden_size (130) must be")


def test_a_cache_that_no_source_names_has_no_value() -> None:
    needed = ["recipe=image_edit", "sources.train_cache=null"]
    assert line_of(*needed) == "data.cache_dir has no value; it must be str"


def test_without_a_held_out_cache_nothing_is_validated() -> None:
    built, _ = config.load(compose("train", ["recipe=image_edit", "sources.heldout_cache=null"]))
    assert built.validation.data is None


def test_a_missing_part_of_a_target_is_named() -> None:
    assert (
        line_of("~model.llm.hidden_size") == "model.llm.hidden_size is missing: recipes.models.bagel.LlmConfig needs it"
    )


def test_a_full_disk_is_the_users_matter() -> None:
    error = OSError(errno.ENOSPC, "No space left on device", "outputs/run/metrics.jsonl")
    assert explain(error) == (
        "cannot write outputs/run/metrics.jsonl: No space left on device; make room and go on with resume=auto"
    )
    assert explain(OSError(errno.ENOENT, "No such file or directory", "model.py")) is None


def test_an_error_of_the_program_is_not_explained_away() -> None:
    assert explain(KeyError("steps")) is None
    assert explain(ValueError("shapes differ")) is None
