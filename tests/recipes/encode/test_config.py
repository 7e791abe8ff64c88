from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from recipes import launch
from recipes.encode import config
from recipes.encode.layouts import ImageEditLayout, TextToImageLayout
from recipes.mistakes import ConfigError

CONF = Path(__file__).parents[3] / "conf"
NAMED = {
    "demo": [],
    "autoencoder_kl": ["encoder.vae=v", "encoder.text.path=t"],
    "qwen_image_edit": ["encoder.path=p"],
}


def composed_without_encoder(*overrides: str) -> DictConfig:
    config.register()
    launch.register_resolvers()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("encode_cache", ["source=s", "cache_dir=c", *overrides])


def composed(*overrides: str) -> DictConfig:
    return composed_without_encoder("encoder=demo", *overrides)


@pytest.mark.parametrize("encode", sorted(path.stem for path in (CONF / "encode").glob("*.yaml")))
@pytest.mark.parametrize("encoder", sorted(path.stem for path in (CONF / "encoder").glob("*.yaml")))
def test_every_choice_of_files_makes_a_config_or_is_refused(encode: str, encoder: str) -> None:
    choice = composed_without_encoder(f"encode={encode}", f"encoder={encoder}", *NAMED[encoder])
    if (encode, encoder) == ("t2i", "qwen_image_edit"):
        with pytest.raises(ConfigError, match=r"encode \(t2i\) has no context images, which this encoder looks at"):
            config.load(choice)
        return
    made = config.load(choice)
    assert isinstance(made.encode, ImageEditLayout | TextToImageLayout)
    assert made.encode.name == encode
    assert callable(made.encoder.build)


def test_the_demo_encoder_brings_small_pictures() -> None:
    assert config.load(composed()).transform.max_pixels == 128 * 128
    full = config.load(composed("encoder=qwen_image_edit", "encoder.path=p"))
    assert full.transform.max_pixels == 1024 * 1024


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["action=encrypt"], r"action \(encrypt\) must be one of encode, verify, preview"),
        (["source=null"], "source has no value"),
        (["threads=0"], r"threads \(0\) must be at least 1"),
        (["items_per_shard=0"], r"items_per_shard \(0\) must be at least 1"),
        (["preview.samples=0"], r"preview.samples \(0\) must be at least 1"),
        (["preview.width=0"], r"preview.width \(0\) must be at least 1"),
        (["encoder.max_words=0"], r"encoder: max_words \(0\) must be at least 1"),
        (["encoder.text_size=0"], r"encoder: text_size \(0\) must be at least 1"),
        (["dtype=int8"], r"dtype \(int8\) must be bfloat16"),
        (["+transform.max_pixel=1"], r"transform.max_pixel: no such key. Did you mean 'transform.max_pixels'"),
        (["encoder.text_size=big"], r"encoder.text_size \('big'\) must be int"),
        (["transform.quantization=0"], r"quantization \(0\) must be at least 1"),
        (["transform.max_pixels=100"], r"max_pixels \(100\) must hold one square of quantization \(16\)"),
    ],
)
def test_a_wrong_setting_is_refused_before_any_file_is_read(overrides: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        config.load(composed(*overrides))


@pytest.mark.parametrize(
    ("encoder", "override", "says"),
    [
        ("autoencoder_kl", "encoder.text.max_tokens=0", r"encoder.text: max_tokens \(0\) must be at least 1"),
        ("qwen_image_edit", "encoder.condition_pixels=0", r"encoder: condition_pixels \(0\) must be at least 1"),
    ],
)
def test_texts_and_pictures_of_nothing_are_refused(encoder: str, override: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        config.load(composed_without_encoder(f"encoder={encoder}", *NAMED[encoder], override))


def test_looking_at_a_cache_needs_no_source() -> None:
    assert config.load(composed("source=null", "action=preview")).source is None


def test_the_encoder_must_be_chosen_among_those_of_conf() -> None:
    with pytest.raises(ConfigError, match=r"encoder has no value; choose one: encoder=demo \| autoencoder_kl \| qwen"):
        config.load(composed_without_encoder())
    assert sorted(config.ENCODERS) == sorted(path.stem for path in (CONF / "encoder").glob("*.yaml"))
