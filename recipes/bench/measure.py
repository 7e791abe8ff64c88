"""One contestant's stream of packs, measured in the process that calls."""

import gc
import hashlib
import json
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

from PIL import ImageFile
from transformers import AutoTokenizer

from automodel_data import images
from automodel_data.multimodal.utils import add_special_tokens
from recipes import nodes
from recipes.bench.floor import Floor, measure_floor
from recipes.bench.seconds import Seconds, Stopwatch

_KIB_PER_MIB = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Contestant:
    """A dataset config as plain values, with all it takes to build and to measure its stream.

    Args:
        node: Names the dataset config's class by ``_target_``, and its values.
        floor_node: The same rows in our class, which plans what the floor decodes.
        tokenizer: Folder that ``AutoTokenizer.from_pretrained`` loads.
        seed: Of all draws.
        packs: Packs that are timed.
        warmup_packs: Packs before them.
        read_masks: Read every dense mask, as a model would.
    """

    node: Mapping[str, Any]
    floor_node: Mapping[str, Any]
    tokenizer: str
    seed: int
    packs: int
    warmup_packs: int
    read_masks: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """What one stream took.

    Args:
        first_batch_seconds: From the config to the first batch.
        images_decoded: Image files; frames of videos are not among them.
        images_placed: Images in packs, once for each tower that sees them.
        idle_mib: Resident memory before the stream is built.
        peak_mib: Most resident memory since then.
        rows: Tells apart which rows were packed, and in which order.
    """

    tokens: int
    seconds: Seconds
    first_batch_seconds: float
    images_decoded: int
    images_placed: int
    idle_mib: float
    peak_mib: float
    state_bytes: int
    rows: str
    floor: Floor

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds.wall

    @property
    def tokens_per_cpu_second(self) -> float:
        return self.tokens / self.seconds.cpu


def measure(contestant: Contestant) -> Measurement:
    """Build the stream, time its packs, then time their floor."""
    runtime = tokenized_runtime(contestant)
    config = nodes.build(contestant.node)
    gc.collect()
    idle_mib = resident_mib("VmRSS")
    forget_peak()
    with Stopwatch() as until_first:
        dataset = config.build(**runtime)
        packs = map(partial(_read, read_masks=contestant.read_masks), dataset)  # unlike a loop, it holds no pack
        warmup = [next(packs)]
    warmup += islice(packs, contestant.warmup_packs - 1)
    with counting_decodes() as decoded, Stopwatch() as stopwatch:
        timed = list(islice(packs, contestant.packs))
    peak_mib = resident_mib("VmHWM")
    return Measurement(
        tokens=sum(pack.tokens for pack in timed),
        seconds=stopwatch.seconds,
        first_batch_seconds=until_first.seconds.wall,
        images_decoded=len(decoded),
        images_placed=sum(pack.images for pack in timed),
        idle_mib=idle_mib,
        peak_mib=peak_mib,
        state_bytes=state_bytes(dataset.state_dict()),
        rows=hashlib.sha256("".join(pack.rows for pack in [*warmup, *timed]).encode()).hexdigest(),
        floor=measure_floor(nodes.build(contestant.floor_node), runtime, contestant.warmup_packs, contestant.packs),
    )


def tokenized_runtime(contestant: Contestant) -> dict[str, Any]:
    """Return what a dataset config is built with."""
    tokenizer, special_tokens, _ = add_special_tokens(AutoTokenizer.from_pretrained(contestant.tokenizer))
    return {
        "tokenizer": tokenizer,
        "special_tokens": special_tokens,
        "rank": 0,
        "world_size": 1,
        "num_workers": 0,
        "global_seed": contestant.seed,
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pack:
    tokens: int
    images: int
    rows: str


def _read(pack: Mapping[str, Any], read_masks: bool) -> _Pack:
    """Note what counts; the pack itself is let go."""
    if read_masks and "nested_attention_masks" in pack:
        for mask in pack["nested_attention_masks"]:
            mask[-1, -1].item()
    images_placed = sum(
        len(pack[part]) for part in ("patchified_vae_latent_shapes", "vit_token_seqlens") if part in pack
    )
    rows = json.dumps(pack["batch_data_indexes"], sort_keys=True)
    return _Pack(tokens=pack["sequence_length"], images=images_placed, rows=rows)


@contextmanager
def counting_decodes() -> Iterator[list[str]]:
    """Collect an entry for every image file decoded inside the block, by Pillow or by our ``decode_jpeg``."""
    decoded: list[str] = []
    load, decode_jpeg = ImageFile.ImageFile.load, images.decode_jpeg

    def counted_load(self: ImageFile.ImageFile) -> Any:
        if self.tile:  # what is left to decode; it is empty afterwards
            decoded.append("pillow")
        return load(self)

    def counted_decode_jpeg(*arguments: Any, **options: Any) -> Any:
        decoded.append("torchvision")
        return decode_jpeg(*arguments, **options)

    with (
        patch.object(ImageFile.ImageFile, "load", counted_load),
        patch.object(images, "decode_jpeg", counted_decode_jpeg),
    ):
        yield decoded


def state_bytes(state: Mapping[str, Any]) -> int:
    """Return the size of a resume state as JSON; as a pickle where only that can hold it."""
    try:
        return len(json.dumps(state).encode())
    except TypeError:  # tensors or other objects
        return len(pickle.dumps(state))


def resident_mib(line: str) -> float:
    """Return a line of Linux's account of this process: ``VmRSS`` now, ``VmHWM`` at most."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(entry.split()[1]) for entry in status.splitlines() if entry.startswith(line)) / _KIB_PER_MIB


def forget_peak() -> None:
    """Let ``VmHWM`` count from now."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
