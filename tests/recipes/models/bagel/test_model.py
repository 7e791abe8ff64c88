from dataclasses import replace

import pytest
import torch

from recipes.models.bagel import Bagel

KINDS = ["text", "vlm", "t2i", "edit"]


@pytest.fixture
def model(tiny_config, seeded) -> Bagel:
    model, generator = tiny_config.build(generator=seeded(0)), seeded(1)
    torch.nn.init.normal_(model.llm2vae.weight, std=0.1, generator=generator)
    return model


def loss_of(output) -> torch.Tensor:
    return output.ce.sum() + output.mse.mean(-1).sum()


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_gets_a_gradient_whatever_a_pack_lacks(model, pack, items, kind, seeded):
    loss_of(model(pack(items[kind]), generator=seeded(2))).backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


@pytest.mark.parametrize(
    ("kind", "idle"),
    [
        ("text", ("vit_model", "connector", "vae2llm", "time_embedder", "llm2vae", "_moe_gen")),
        ("vlm", ("vae2llm", "time_embedder", "llm2vae", "_moe_gen")),
        ("t2i", ("vit_model", "connector", "lm_head")),
    ],
)
def test_the_gradient_of_an_absent_branch_is_zero(model, pack, items, kind, idle, seeded):
    loss_of(model(pack(items[kind]), generator=seeded(2))).backward()
    for name, parameter in model.named_parameters():
        if any(part in name for part in idle):
            assert not parameter.grad.any(), name


@pytest.mark.parametrize(("kind", "labels", "noised"), [("text", 4, 0), ("vlm", 4, 0), ("t2i", 0, 6), ("edit", 0, 7)])
def test_losses_are_one_per_label_and_one_per_noised_token(model, pack, items, kind, labels, noised, seeded):
    ce, mse = model(pack(items[kind]), generator=seeded(2))
    assert ce.shape == (labels,)
    assert mse.shape == (noised, 64)


def test_samples_lose_the_same_alone_and_packed_together(model, pack, items, seeded):
    packed = pack(*items.values())
    noise = torch.randn(len(packed.latents.rows), 64, generator=seeded(3))
    alone, used = [], 0
    for kind in KINDS:
        own = pack(items[kind])
        size = 0 if own.latents is None else len(own.latents.rows)
        alone.append(model(own, noise_GF=noise[used : used + size]))
        used += size

    together = model(packed, noise_GF=noise)

    torch.testing.assert_close(together.ce, torch.cat([output.ce for output in alone]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(together.mse, torch.cat([output.mse for output in alone]), rtol=1e-4, atol=1e-5)


def test_a_fresh_model_predicts_no_velocity(tiny_config, pack, items, seeded):
    inputs = pack(items["t2i"])
    noise = torch.randn(6, 64, generator=seeded(0))
    model = tiny_config.build(generator=seeded(0))
    mse = model(inputs, noise_GF=noise).mse
    torch.testing.assert_close(mse, (noise - model.clean_tokens(inputs.latents)).square())


def test_the_squared_error_is_of_the_velocity_from_data_to_noise(model, pack, items, seeded):
    inputs = pack(items["edit"])
    noise = torch.randn(len(inputs.latents.rows), 64, generator=seeded(4))
    clean = model.clean_tokens(inputs.latents)
    time = inputs.latents.time_logits.sigmoid()
    noised = inputs.latents.time_logits.isfinite()

    velocity = model.velocity(inputs, (1 - time[:, None]) * clean + time[:, None] * noise, time)

    expected = (velocity - (noise - clean)).square()[noised]
    torch.testing.assert_close(model(inputs, noise_GF=noise).mse, expected)


def test_a_shifted_schedule_noises_more(tiny_config, pack, items, seeded):
    inputs = pack(items["t2i"])
    seen = []
    for shift in (1.0, 4.0):
        model = replace(tiny_config, timestep_shift=shift).build(generator=seeded(0))
        model.time_embedder.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
        model(inputs, generator=seeded(0))
    assert (seen[0] < seen[1]).all()


def test_positions_matter_and_the_place_of_a_sample_in_the_pack_does_not(model, text_pack):
    moved = replace(text_pack, positions=text_pack.positions * 3)
    shifted = replace(text_pack, positions=text_pack.positions + 7)
    ce = model(text_pack).ce
    assert not torch.allclose(model(moved).ce, ce)
    torch.testing.assert_close(model(shifted).ce, ce, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["vlm", "t2i", "edit"])
def test_with_freeze_und_nothing_of_the_understanding_expert_learns(tiny_config, pack, items, kind, seeded):
    model = replace(tiny_config, freeze_und=True).build(generator=seeded(0))
    loss_of(model(pack(items[kind]), generator=seeded(2))).backward()
    learned = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    for name, parameter in model.named_parameters():
        trains = "_moe_gen" in name or name.startswith(
            ("time_embedder", "vae2llm", "llm2vae", "language_model.lm_head")
        )
        assert parameter.requires_grad == trains, name
        assert (name in learned) == trains, name


def test_freeze_und_changes_no_value_and_stops_gradients_through_understanding_rows(tiny_config, pack, items, seeded):
    inputs = pack(items["edit"], items["vlm"])
    outputs, gradients = [], []
    for freeze in (False, True):
        model = replace(tiny_config, freeze_und=freeze).build(generator=seeded(0))
        torch.nn.init.normal_(model.llm2vae.weight, std=0.1, generator=seeded(1))
        outputs.append(model(inputs, generator=seeded(2)))
        loss_of(outputs[-1]).backward()
        gradients.append(model.language_model.model.layers[0].self_attn.v_proj_moe_gen.weight.grad)
    assert torch.equal(outputs[0].ce, outputs[1].ce)
    assert torch.equal(outputs[0].mse, outputs[1].mse)
    assert gradients[1].any()
    assert not torch.allclose(gradients[0], gradients[1])


def test_text_after_a_condition_teaches_the_generation_expert_unless_understanding_is_frozen(
    tiny_config, pack, seeded, items
):
    condition, answer = items["edit"][0], items["vlm"][-1]
    taught = {}
    for freeze in (False, True):
        model = replace(tiny_config, freeze_und=freeze).build(generator=seeded(0))
        loss_of(model(pack([condition, answer]), generator=seeded(2))).backward()
        taught[freeze] = bool(model.vae2llm.weight.grad.any())
    assert taught == {False: True, True: False}


def test_the_padding_token_stays_zero_and_learns_nothing(tiny_config, pack, seeded, items):
    llm = replace(tiny_config.llm, pad_token_id=2)
    model = replace(tiny_config, llm=llm).build(generator=seeded(0))
    loss_of(model(pack(items["text"]), generator=seeded(0))).backward()
    embedding = model.language_model.model.embed_tokens.weight
    assert not embedding[2].any()
    assert not embedding.grad[2].any()
    assert embedding.grad[1].any()


def test_the_same_seed_gives_the_same_weights_and_no_global_draw(tiny_config, seeded):
    before = torch.random.get_rng_state()
    first, again, other = (tiny_config.build(generator=seeded(seed)).state_dict() for seed in (5, 5, 6))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["vae2llm.weight"], other["vae2llm.weight"])
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_model_on_the_meta_device_is_whole_after_init(tiny_config, seeded, pack, items):
    model = tiny_config.build(device="meta").to_empty(device="cpu")
    model.init_weights(seeded(5))
    assert list(model.buffers()) == []
    expected = tiny_config.build(generator=seeded(5)).state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())
