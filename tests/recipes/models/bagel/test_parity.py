import pytest
import torch

from recipes.models.bagel import PackedInputs

CANCELS = "k_proj.bias"  # a shift of all scores of a query: its gradient is zero but for rounding


@pytest.mark.parametrize("form", ["flex", "nested"])
def test_losses_and_gradients_are_those_of_the_reference(parity, form):
    model = parity.model()
    inputs = PackedInputs.from_batch(parity.batch(form), parity.latents)

    ce, mse = model(inputs, noise_GF=parity.noise)
    (ce.mean() + mse.mean()).backward()

    torch.testing.assert_close(ce, torch.tensor(parity.expected["ce"]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(mse.mean(-1), torch.tensor(parity.expected["mse_per_token"]), rtol=1e-4, atol=1e-5)
    assert (ce.mean() + mse.mean()).item() == pytest.approx(parity.expected["loss"], rel=1e-5)
    norms = {name: parameter.grad.norm().item() for name, parameter in model.named_parameters()}
    expected = {name: norm for name, norm in parity.expected["grad_norms"].items() if norm is not None}
    assert norms.keys() == expected.keys()
    for name, norm in norms.items():
        assert norm == pytest.approx(expected[name], rel=1e-4, abs=1e-7 if CANCELS in name else 1e-12), name


def test_the_two_forms_of_a_pack_give_the_same_losses(parity):
    model = parity.model()
    flex, nested = (
        model(PackedInputs.from_batch(parity.batch(form), parity.latents), noise_GF=parity.noise)
        for form in ("flex", "nested")
    )
    assert torch.equal(flex.ce, nested.ce)
    assert torch.equal(flex.mse, nested.mse)


def test_noise_comes_from_the_generator_that_is_passed(parity, seeded):
    model, inputs = parity.model(), PackedInputs.from_batch(parity.batch("flex"), parity.latents)
    before = torch.random.get_rng_state()

    first, again, other = (model(inputs, generator=seeded(seed)).mse for seed in (1, 1, 2))

    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(before, torch.random.get_rng_state())


def test_bfloat16_autocast_stays_near_float32(parity):
    model, inputs = parity.model(), PackedInputs.from_batch(parity.batch("flex"), parity.latents)
    exact = model(inputs, noise_GF=parity.noise)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = model(inputs, noise_GF=parity.noise)
    (rounded.ce.mean() + rounded.mse.mean()).backward()

    assert rounded.ce.dtype == rounded.mse.dtype == torch.float32
    assert rounded.ce.mean().item() == pytest.approx(exact.ce.mean().item(), rel=1e-2)
    assert rounded.mse.mean().item() == pytest.approx(exact.mse.mean().item(), rel=1e-2)


def test_a_bfloat16_model_runs_without_autocast(parity):
    model, inputs = parity.model().bfloat16(), PackedInputs.from_batch(parity.batch("flex"), parity.latents)

    ce, mse = model(inputs, noise_GF=parity.noise)
    (ce.mean() + mse.mean()).backward()

    assert (ce.mean() + mse.mean()).item() == pytest.approx(parity.expected["loss"], rel=2e-2)
    assert all(parameter.grad is not None for parameter in model.parameters())
