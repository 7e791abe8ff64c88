"""The ranks of a run: start, stop, add up, wrap the model. One process is a world of size one, by the same code."""

import datetime
import functools
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._composable import checkpoint
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from recipes.mistakes import ConfigError

Dealt = TypeVar("Dealt")


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """This rank among the others, and the device it computes on.

    Args:
        store: What they met in; counts for all of them.
        group: What their messages go through; None: the default, which the main thread alone may use.
    """

    rank: int
    size: int
    device: torch.device
    store: dist.Store = field(default_factory=dist.HashStore)
    group: dist.ProcessGroup | None = None

    @property
    def leads(self) -> bool:
        """Tell whether this is rank 0, which alone writes what all share."""
        return self.rank == 0

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Add up ``values`` over the ranks, in place; every rank must call it."""
        dist.all_reduce(values, group=self.group)
        return values

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's ``value``, in the order of ranks, on every rank."""
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self.group)
        return values

    def share(self, value: Any) -> Any:
        """Return rank 0's ``value`` on every rank."""
        values = [value]
        dist.broadcast_object_list(values, src=0, group=self.group)
        return values[0]

    def barrier(self) -> None:
        """Wait until every rank is here."""
        self.gather(None)

    def deal(self, tasks: Sequence[Dealt]) -> Iterator[Dealt]:
        """Deal out what all ranks have before them: each takes the next one as soon as it is ready for it.

        So ranks end at about the same time, however long each task takes. Every rank must call it with the same tasks.
        """
        counter = self.share(f"deal-{uuid.uuid4().hex}")

        def dealt() -> Iterator[Dealt]:
            while (turn := self.store.add(counter, 1) - 1) < len(tasks):
                yield tasks[turn]

        return dealt()

    def apart(self) -> "World":
        """Return the same ranks with a group of their own, for another thread; every rank must call it."""
        return replace(self, group=dist.new_group(backend="gloo"))


def start(timeout_minutes: float) -> World:
    """Join the other ranks (gloo for CPU tensors, nccl for GPU tensors) and choose this rank's device."""
    timeout = datetime.timedelta(minutes=timeout_minutes)
    store = meeting_place()
    store.set_timeout(timeout)  # ranks also wait there: for one another's addresses, and for what a rank sets
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if not dist.is_initialized():  # the jobs of a sweep under torchrun share one group: made anew it hangs at job two
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            store=store,
            rank=rank,
            world_size=size,
            timeout=timeout,
        )
    world = World(rank=rank, size=size, device=device, store=store)
    world.barrier()  # a rank that fails at once must not break the others' connecting
    return world


@functools.cache
def meeting_place() -> dist.Store:
    """Return the one store of all ranks, which is there before any process group."""
    if "RANK" not in os.environ:
        return dist.HashStore()
    store, _, _ = next(dist.rendezvous("env://"))
    return store


def stop() -> None:
    """Leave the other ranks; once, at the end of the process, which may abort otherwise."""
    if dist.is_initialized():
        dist.destroy_process_group()
    meeting_place.cache_clear()


@dataclass(kw_only=True, slots=True)
class Ddp:
    """Every rank holds the whole model; gradients are averaged while they are computed.

    Args:
        timeout_minutes: How long a rank waits for the others before the run ends.
        bucket_mib: Gradients are exchanged in buckets of about this size, in MiB.
    """

    timeout_minutes: float = 10.0
    bucket_mib: float = 25.0

    def wrap(self, model: nn.Module, world: World, precision: torch.dtype) -> nn.Module:
        """Return ``model`` with its gradients tied to those of the other ranks; autocast sees to ``precision``."""
        del world, precision
        return DistributedDataParallel(
            model,
            bucket_cap_mb=self.bucket_mib,
            gradient_as_bucket_view=True,
        )

    def synchronised(self, model: nn.Module, last: bool) -> AbstractContextManager[None]:
        """Exchange gradients only in the ``last`` micro-batch of a step."""
        return nullcontext() if last else model.no_sync()


@dataclass(kw_only=True, slots=True)
class Fsdp2:
    """Parameters, gradients and optimizer state are sharded; one unit per decoder layer, the rest is the root's.

    Method: PyTorch FSDP2 (``fully_shard``).

    Args:
        timeout_minutes: How long a rank waits for the others before the run ends.
        layers: Module lists whose members are units; names that a model does not have are passed over.
        activation_checkpointing: Compute each layer again in the backward pass instead of keeping its activations.
        reshard_after_forward: Give the gathered weights of a layer back between forward and backward.
    """

    timeout_minutes: float = 10.0
    layers: list[str] = field(
        default_factory=lambda: [
            "language_model.model.layers",
            "transformer.transformer_blocks",
            "transformer.single_transformer_blocks",
        ]
    )
    activation_checkpointing: bool = True
    reshard_after_forward: bool = True

    def wrap(self, model: nn.Module, world: World, precision: torch.dtype) -> nn.Module:
        """Shard ``model``, which may be on the meta device; it computes in ``precision``, gradients reduce in float32.

        Raises:
            ConfigError: When the model has none of the named module lists.
        """
        mesh = dist.init_device_mesh(world.device.type, (world.size,))
        policy = MixedPrecisionPolicy(param_dtype=precision, reduce_dtype=torch.float32)
        options = {"mesh": mesh, "mp_policy": policy, "reshard_after_forward": self.reshard_after_forward}
        found = [m for name, m in model.named_modules() if name in self.layers]
        if not found:
            raise ConfigError(f"distributed.layers ({self.layers}): the model has none of these; name its layer lists")
        for layers in found:
            for layer in layers:
                if self.activation_checkpointing:
                    checkpoint(layer)
                fully_shard(layer, **options)
        return fully_shard(model, **options)

    def synchronised(self, model: FSDPModule, last: bool) -> AbstractContextManager[None]:
        """Reduce gradients only in the ``last`` micro-batch of a step."""
        model.set_requires_gradient_sync(last)
        return nullcontext()
