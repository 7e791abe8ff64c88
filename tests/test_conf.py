"""Every YAML under conf composes with the primary config and builds what it names."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from recipes import config, launch

CONF = Path(__file__).parents[1] / "conf"
OTHER_PROGRAMS = {"encode", "encoder"}  # groups of scripts/encode_cache.py
FOLDER = "model.transformer.pretrained_model_name_or_path=folder"
WEIGHTS = "model.pretrained.folder=weights"
NEEDS = {  # what an option cannot know, or goes together with
    "model=bagel_7b": ["images=full", WEIGHTS],
    "images=full": ["model=bagel_7b", WEIGHTS],
    "recipe=bagel_7b": [WEIGHTS, "task.vae.path=ae.safetensors"],
    **{f"data={name}": ["task=latents", "model=qwen_image_tiny"] for name in ("image_edit", "t2i_cached")},
    "task=latents": ["data=image_edit", "model=flux_tiny"],
    **{f"model={name}": ["task=latents", "data=image_edit"] for name in ("qwen_image_tiny", "flux_tiny")},
    **{f"model={name}": ["task=latents", "data=image_edit", FOLDER] for name in ("qwen_image", "flux")},
}


@pytest.fixture(autouse=True)
def hydra() -> Iterator[None]:
    config.register()
    launch.register_resolvers()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield


def composed(*overrides: str) -> DictConfig:
    return compose("train", list(overrides))


def options() -> list[str]:
    """Return GROUP=OPTION for every file that can be chosen; deeper files and those with an underscore are parts."""
    files = [path.relative_to(CONF) for path in CONF.glob("*/*.yaml") if not path.name.startswith("_")]
    return sorted(f"{path.parent}={path.stem}" for path in files if str(path.parent) not in OTHER_PROGRAMS | {"hydra"})


@pytest.mark.parametrize("option", options())
def test_every_option_composes_and_builds(option: str) -> None:
    built, resolved = config.load(composed(option, *NEEDS.get(option, [])))
    assert isinstance(built, config.RunConfig)
    assert resolved["task"]["_target_"]


def test_parts_of_options_are_all_used() -> None:
    texts = "".join(path.read_text() for path in CONF.glob("*/*.yaml"))
    for part in [*CONF.glob("*/*/*.yaml"), *CONF.glob("*/_*.yaml")]:
        assert part.relative_to(CONF).with_suffix("").as_posix().partition("/")[2] in texts, part


def test_the_jobs_of_a_sweep_can_be_jobs_of_slurm() -> None:
    launcher = compose("train", return_hydra_config=True, overrides=["hydra/launcher=slurm"]).hydra.launcher
    assert (launcher._target_.rpartition(".")[2], launcher.tasks_per_node) == ("SlurmLauncher", 1)


def test_the_hydra_settings_compose() -> None:
    settings = compose("train", return_hydra_config=True, overrides=["hydra.runtime.output_dir=here"]).hydra
    assert settings.job_logging.handlers.file.filename == "here/rank0.log"
    assert settings.run.dir.startswith("outputs/run/2")


@pytest.mark.parametrize("recipe", ["bagel", "t2i", "edit", "vlm_sft"])
@pytest.mark.parametrize("packing", ["8k", "32k"])
def test_recipes_go_with_every_budget(recipe: str, packing: str) -> None:
    built, _ = config.load(composed(f"recipe={recipe}", f"packing={packing}"))
    assert built.data.dataset_config.max_num_tokens == built.packing.max_num_tokens
    assert built.name == recipe


def test_the_command_line_wins_over_the_recipe() -> None:
    assert composed("recipe=bagel", "train.max_steps=7").train.max_steps == 7
    assert composed("recipe=t2i", "packing=8k").packing.expected_num_tokens == 8192


def test_held_out_data_is_the_training_data_but_for_its_overlay() -> None:
    built, _ = config.load(composed("recipe=edit"))
    held_out, trained_on = built.validation.data.dataset_config, built.data.dataset_config
    assert held_out.dataset_info["unified_edit"]["edit"]["data_dir"] == "data/demo/heldout/edit"
    assert trained_on.dataset_info["unified_edit"]["edit"]["data_dir"] == "data/demo/train/edit"
    assert held_out.grouped_datasets["unified_edit"]["image_transform_args"] == {
        "image_stride": 16,
        "max_image_size": 128,
        "min_image_size": 64,
    }
    assert held_out.max_num_tokens == trained_on.max_num_tokens


def test_no_container_of_omegaconf_goes_past_the_config() -> None:
    built, resolved = config.load(composed("recipe=bagel"))
    assert type(built.data.dataset_config.grouped_datasets) is dict
    assert type(built.data.dataset_config.grouped_datasets["t2i_pretrain"]["dataset_names"]) is list
    assert type(resolved["packing"]) is dict


def test_an_overlay_from_a_folder_of_the_users_own_is_found(tmp_path: Path) -> None:
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe/mine.yaml").write_text("# @package _global_\nname: mine\n")
    found = compose("train", [f"hydra.searchpath=[file://{tmp_path}]", "recipe=mine"])
    assert found.name == "mine"
