import pytest
import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

from recipes.models.bagel import PackedInputs, decoder, load_published, published_state_dict
from recipes.models.bagel.decoder import rotate


@pytest.fixture
def mesh():
    if dist.is_initialized():  # an earlier test of this process has left its own
        dist.destroy_process_group()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def shard(model, mesh, **options):
    for layer in model.language_model.model.layers:
        fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def test_a_sharded_model_loads_and_gives_the_same_losses_and_gradients(parity, mesh, tmp_path):
    whole = parity.model()
    save_file(published_state_dict(whole), tmp_path / "ema.safetensors")
    sharded = shard(parity.config.build(device="meta"), mesh).to_empty(device="cpu")
    load_published(sharded, tmp_path)
    inputs = PackedInputs.from_batch(parity.batch("flex"), parity.latents)

    losses = []
    for model in (whole, sharded):
        ce, mse = model(inputs, noise_GF=parity.noise)
        (ce.mean() + mse.mean()).backward()
        losses.append(ce.mean() + mse.mean())

    torch.testing.assert_close(losses[0], losses[1])
    expected = {name: parameter.grad for name, parameter in whole.named_parameters()}
    for name, parameter in sharded.named_parameters():
        torch.testing.assert_close(parameter.grad.full_tensor(), expected[name], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("cast_inputs", [True, False])
def test_sharded_in_bfloat16_layers_rotate_in_float32(parity, mesh, monkeypatch, cast_inputs):
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=cast_inputs
    )
    model = shard(parity.model(), mesh, mp_policy=policy)
    seen = []

    def spied(x, rope):
        seen.append((x.dtype, rope[0].dtype, rotate(x, rope).dtype))
        return rotate(x, rope)

    monkeypatch.setattr(decoder, "rotate", spied)
    ce, mse = model(PackedInputs.from_batch(parity.batch("flex"), parity.latents), noise_GF=parity.noise)

    assert set(seen) == {(torch.bfloat16, torch.float32, torch.float32)}
    assert (ce.mean() + mse.mean()).item() == pytest.approx(parity.expected["loss"], rel=2e-2)


def test_layers_computed_again_in_the_backward_pass_give_the_same_gradients(parity):
    inputs = PackedInputs.from_batch(parity.batch("flex"), parity.latents)
    norms = []
    for again in (False, True):
        model = parity.model()
        for layer in model.language_model.model.layers if again else ():
            layer.forward = _checkpointed(layer.forward)
        ce, mse = model(inputs, noise_GF=parity.noise)
        (ce.mean() + mse.mean()).backward()
        norms.append([parameter.grad.norm().item() for parameter in model.parameters()])
    assert norms[0] == pytest.approx(norms[1], rel=1e-5, abs=1e-8)


def _checkpointed(forward):
    return lambda *inputs: checkpoint(forward, *inputs, use_reentrant=False)
