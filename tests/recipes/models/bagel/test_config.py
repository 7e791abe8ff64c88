import json
from dataclasses import replace
from pathlib import Path

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from recipes.mistakes import ConfigError
from recipes.models.bagel import BagelConfig

CONF = Path(__file__).parents[4] / "conf" / "model"
LLM = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 40,
    "rope_theta": 500000.0,
    "rms_norm_eps": 1e-5,
    "model_type": "qwen2",
}
VIT = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": 56,
    "patch_size": 14,
    "model_type": "siglip_vision_model",
}
TOP = {
    "max_latent_size": 32,
    "latent_patch_size": 2,
    "vit_max_num_patch_per_side": 4,
    "vae_config": {"z_channels": 16, "downsample": 8},
    "visual_gen": True,
}


def write(folder, llm=LLM, vit=VIT, top=TOP):
    for name, values in (("llm_config", llm), ("vit_config", vit), ("config", top)):
        (folder / f"{name}.json").write_text(json.dumps(values))
    return folder


def test_sizes_are_read_from_a_published_folder(tmp_path):
    config = BagelConfig.from_pretrained_config(write(tmp_path))
    assert config.llm.rope_theta == 500000.0
    assert config.llm.rms_norm_eps == 1e-5
    assert config.vision.layers_built == 2
    assert (config.max_latent_size, config.image_stride, config.latent_features) == (32, 16, 64)


def test_what_the_files_leave_open_is_as_in_the_published_model(tmp_path):
    config = BagelConfig.from_pretrained_config(write(tmp_path, top={}))
    assert config.llm.qk_norm
    assert (config.max_latent_size, config.timestep_shift) == (64, 1.0)


def test_theta_is_also_found_among_rope_parameters(tmp_path):
    llm = {name: value for name, value in LLM.items() if name != "rope_theta"} | {
        "rope_parameters": {"rope_theta": 7.0}
    }
    assert BagelConfig.from_pretrained_config(write(tmp_path, llm=llm)).llm.rope_theta == 7.0


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ({"llm": {"hidden_size": 32}}, "llm_config.json lacks intermediate_size"),
        ({"llm": LLM | {"layer_module": "Qwen2DecoderLayer"}}, "llm_config.json: layer_module is Qwen2DecoderLayer"),
        ({"vit": VIT | {"rope": True}}, "vit_config.json: rope is True"),
        ({"top": {"vit_max_num_patch_per_side": 5}}, r"/config.json: vit_max_num_patch_per_side is 5, and only 4"),
    ],
)
def test_folders_of_another_flavour_are_refused_by_file_and_key(tmp_path, parts, named):
    with pytest.raises(ConfigError, match=named):
        BagelConfig.from_pretrained_config(write(tmp_path, **parts))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"llm_config.json of a published BAGEL folder cannot be read"):
        BagelConfig.from_pretrained_config(tmp_path)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"attention": "flash"}, r"attention \(flash\) must be auto or sdpa"),
        ({"timestep_shift": 0.0}, r"timestep_shift \(0.0\) must be above 0"),
    ],
)
def test_choices_that_do_not_exist_are_refused_by_name(tiny_config, wrong, named):
    with pytest.raises(ConfigError, match=named):
        replace(tiny_config, **wrong)


def test_the_tiny_preset_is_a_model_of_about_a_million_parameters(seeded):
    config = instantiate(OmegaConf.load(CONF / "bagel_tiny.yaml"), _convert_="all")
    model = config.build(generator=seeded(0))
    assert 1.0e6 < sum(parameter.numel() for parameter in model.parameters()) < 1.5e6
    assert config.image_stride * config.max_latent_size == 256
    assert config.vision.image_size == 224


def test_the_large_preset_has_the_parameters_of_the_published_model():
    preset = OmegaConf.load(CONF / "bagel_7b.yaml")
    config = instantiate(OmegaConf.merge(preset, {"pretrained": {"folder": "unused"}}), _convert_="all")
    model = config.build(device="meta")
    tables = (config.vision.max_patches_per_side**2 + config.max_latent_size**2) * config.llm.hidden_size
    assert len(list(model.parameters())) + 2 == 1223
    assert sum(parameter.numel() for parameter in model.parameters()) + tables == pytest.approx(14.607e9, rel=1e-4)
