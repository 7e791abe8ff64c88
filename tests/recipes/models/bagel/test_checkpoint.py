import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from transformers import Qwen2Config, Qwen2ForCausalLM, SiglipVisionConfig, SiglipVisionModel

from recipes.mistakes import ConfigError
from recipes.models.bagel import DenseWeights, PublishedWeights, load_published, published_state_dict


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "published"
    folder.mkdir()
    return folder


@pytest.fixture
def weights(tiny_config, seeded):
    """Return what a published file of the tiny model holds, no two values alike."""
    model = tiny_config.build(generator=seeded(0))
    for parameter in model.parameters():
        nn.init.normal_(parameter, generator=seeded(parameter.numel()))
    return published_state_dict(model)


def assert_loaded(model, weights):
    assert all(torch.equal(parameter, weights[name]) for name, parameter in model.named_parameters())


def test_a_published_file_fills_every_parameter(tiny_config, folder, weights):
    save_file(weights, folder / "ema.safetensors")
    assert_loaded(replace(tiny_config, pretrained=PublishedWeights(folder=str(folder))).build(), weights)


def test_a_file_may_be_named_itself(tiny_config, folder, weights):
    file = folder / "mine.safetensors"
    save_file(weights, file)
    assert_loaded(replace(tiny_config, pretrained=PublishedWeights(folder=str(file))).build(), weights)


def test_a_published_file_holds_the_two_fixed_tables(tiny_config, weights):
    assert weights["vit_pos_embed.pos_embed"].shape == (4**2, 32)
    assert weights["latent_pos_embed.pos_embed"].shape == (8**2, 32)


def test_the_fixed_tables_of_a_file_may_have_another_size(tiny_config, folder, weights):
    save_file(weights, folder / "ema.safetensors")
    larger = replace(tiny_config, max_latent_size=16, pretrained=PublishedWeights(folder=str(folder)))
    assert_loaded(larger.build(), weights)


def test_shards_with_an_index_are_read_together(tiny_config, folder, weights):
    names = sorted(weights)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for shard, own in shards.items():
        save_file({name: weights[name] for name in own}, folder / shard)
    weight_map = {name: shard for shard, own in shards.items() for name in own}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert_loaded(replace(tiny_config, pretrained=PublishedWeights(folder=str(folder))).build(), weights)


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda w: w.pop("llm2vae.bias"), r"no tensor for llm2vae.bias \(1 parameters are missing\)"),
        (lambda w: w.update(surplus=torch.zeros(1)), r"ema.safetensors: surplus fits no parameter"),
        (
            lambda w: w.update({"llm2vae.bias": torch.zeros(3)}),
            r"ema.safetensors: llm2vae.bias has shape \[3\].*\[64\]",
        ),
    ],
)
def test_what_does_not_fit_is_named_by_file_and_key(tiny_config, folder, weights, damage, named):
    damage(weights)
    save_file(weights, folder / "ema.safetensors")
    with pytest.raises(ConfigError, match=named):
        load_published(tiny_config.build(), folder)


def test_a_folder_without_weights_and_a_broken_file_are_named(tiny_config, folder):
    model = tiny_config.build()
    with pytest.raises(ConfigError, match=r"published has none of ema.safetensors, model.safetensors"):
        load_published(model, folder)
    (folder / "ema.safetensors").write_bytes(b"no header")
    with pytest.raises(ConfigError, match=r"ema.safetensors cannot be read"):
        load_published(model, folder)


@pytest.fixture
def qwen2(tmp_path, seeded):
    """Write a tiny Qwen2 as transformers does, and return its folder and weights."""

    def write(tied: bool):
        config = Qwen2Config(
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            vocab_size=40,
            tie_word_embeddings=tied,
        )
        model = Qwen2ForCausalLM(config)
        for parameter in model.parameters():
            nn.init.normal_(parameter, generator=seeded(parameter.numel()))
        model.save_pretrained(tmp_path / "qwen2")
        return tmp_path / "qwen2", model.state_dict()

    return write


@pytest.fixture
def siglip(tmp_path, seeded):
    """Write a tiny SigLIP as transformers does, and return its folder and weights."""
    config = SiglipVisionConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, image_size=56, patch_size=14
    )
    model = SiglipVisionModel(config)
    for parameter in model.parameters():
        nn.init.normal_(parameter, generator=seeded(parameter.numel()))
    model.save_pretrained(tmp_path / "siglip")
    return tmp_path / "siglip", model.state_dict()


@pytest.mark.parametrize("tied", [False, True])
def test_dense_weights_start_both_experts_and_the_tower(tiny_config, qwen2, siglip, seeded, tied):
    (llm_folder, llm), (vision_folder, vision) = qwen2(tied), siglip
    pretrained = DenseWeights(llm=str(llm_folder), vision=str(vision_folder))
    loaded = replace(tiny_config, pretrained=pretrained).build(generator=seeded(1)).state_dict()

    layer = "model.layers.1.self_attn"
    for expert in ("", "_moe_gen"):
        assert torch.equal(loaded[f"language_model.{layer}.q_proj{expert}.bias"], llm[f"{layer}.q_proj.bias"])
        assert (loaded[f"language_model.{layer}.q_norm{expert}.weight"] == 1).all()
    assert torch.equal(loaded["language_model.lm_head.weight"], llm["lm_head.weight"])
    tower = "vit_model.vision_model."
    conv = vision["embeddings.patch_embedding.weight"]
    linear = loaded[f"{tower}embeddings.patch_embedding.weight"].view(16, 14, 14, 3)
    assert torch.equal(linear[:, 5, 7, 2], conv[:, 2, 5, 7])
    fc1 = "encoder.layers.0.mlp.fc1.weight"
    assert torch.equal(loaded[tower + fc1], vision[fc1])
    assert not loaded["llm2vae.weight"].any()


def test_the_generation_expert_stays_fresh_without_copy_init_moe(tiny_config, qwen2, siglip, seeded):
    (llm_folder, _), (vision_folder, _) = qwen2(False), siglip
    pretrained = DenseWeights(llm=str(llm_folder), vision=str(vision_folder), copy_init_moe=False)
    loaded = replace(tiny_config, pretrained=pretrained).build(generator=seeded(1)).state_dict()
    fresh = tiny_config.build(generator=seeded(1)).state_dict()
    name = "language_model.model.layers.0.mlp_moe_gen.up_proj.weight"
    assert torch.equal(loaded[name], fresh[name])


def test_a_siglip_under_its_older_prefix_is_read_too(tiny_config, qwen2, siglip, tmp_path, seeded):
    (llm_folder, _), (_, vision) = qwen2(False), siglip
    old = tmp_path / "old"
    old.mkdir()
    renamed = {f"vision_model.{name}": value.contiguous() for name, value in vision.items()}
    save_file(renamed | {"text_model.final_layer_norm.weight": torch.ones(16)}, old / "model.safetensors")
    pretrained = DenseWeights(llm=str(llm_folder), vision=str(old))
    loaded = replace(tiny_config, pretrained=pretrained).build(generator=seeded(1)).state_dict()
    name = "post_layernorm.bias"
    assert torch.equal(loaded[f"vit_model.vision_model.{name}"], vision[name])


def test_a_tower_with_a_smaller_table_is_refused(tiny_config, qwen2, siglip, seeded):
    (llm_folder, _), (vision_folder, _) = qwen2(False), siglip
    pretrained = DenseWeights(llm=str(llm_folder), vision=str(vision_folder))
    larger = replace(tiny_config, vision=replace(tiny_config.vision, image_size=112), pretrained=pretrained)
    with pytest.raises(
        ConfigError, match=r"position_embedding.weight has shape \[16, 16\], the model needs \[64, 16\]"
    ):
        larger.build(generator=seeded(1))
