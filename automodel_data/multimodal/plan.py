"""What a row asks for, before any pixel is decoded: texts as ids and images by their size, in plan order."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from automodel_data.errors import Harvest
from automodel_data.images import ImageSource, PillowBackend
from automodel_data.multimodal.transforms import ImageTransform
from automodel_data.randomness import Draw


@dataclass(frozen=True, eq=False, slots=True)
class PlannedImage:
    """An image and the transform that will make its tensor; ``height`` and ``width`` are those after resizing."""

    source: ImageSource
    transform: ImageTransform
    height: int
    width: int

    @classmethod
    def of(cls, source: ImageSource, transform: ImageTransform, img_num: int = 1) -> "PlannedImage":
        """Plan ``source``, one of ``img_num`` images that share the transform's pixel limit."""
        height, width = transform.size_for(source.height, source.width, img_num)
        return cls(source, transform, height, width)

    @property
    def num_tokens(self) -> int:
        return self.height * self.width // self.transform.stride**2


@dataclass(frozen=True, eq=False, slots=True)
class TensorImage:
    """An image that comes as its final tensor [3, H, W], from datasets that decode for themselves."""

    pixels_CHW: torch.Tensor

    @property
    def height(self) -> int:
        return self.pixels_CHW.shape[1]

    @property
    def width(self) -> int:
        return self.pixels_CHW.shape[2]


Picture = PlannedImage | TensorImage


@dataclass(frozen=True, kw_only=True, slots=True)
class ClipPosition:
    """Where a frame stands in a clip that shares one split; ``frame_delta`` is the index step to the next frame."""

    starts: bool
    ends: bool
    frame_delta: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TextItem:
    """Token ids; with ``loss`` they are predicted. A closing-token label adds a loss on the closing token."""

    ids: list[int]
    loss: bool
    enable_cfg: bool
    special_token_loss: bool = False
    special_token_label: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class VitItem:
    """An image for the understanding tower."""

    picture: Picture
    enable_cfg: bool
    loss: bool = False
    special_token_loss: bool = False
    special_token_label: int | None = None
    clip: ClipPosition | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class VaeItem:
    """An image for the generation side; with ``loss`` it is noised and predicted, without it is a condition."""

    picture: Picture
    loss: bool
    enable_cfg: bool
    special_token_loss: bool = False
    special_token_label: int | None = None
    clip: ClipPosition | None = None


ImageItem = VitItem | VaeItem
Item = TextItem | ImageItem

_TYPE_NAMES: dict[type, str] = {TextItem: "text", VitItem: "vit_image", VaeItem: "vae_image"}
_ITEM_TYPES: dict[str, type] = {name: cls for cls, name in _TYPE_NAMES.items()}


Position = int | list[int]
"""Where a row lies, as ``data_indexes`` documents it: the number of its path in the reader's list, then its place."""


def split_position(position: Position) -> tuple[int, list[int]]:
    """Return a position's path number and the row's place in that path."""
    return (position, []) if isinstance(position, int) else (position[0], position[1:])


def join_position(number: int, place: list[int]) -> Position:
    """Return the position of a row at ``place`` in path ``number``."""
    return [number, *place] if place else number


NO_WORKER = -1
"""The ``worker_id`` beside a position whose path is numbered among all paths, not among those of one reader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleIndex:
    """Where a sample came from.

    Args:
        position: The documented ``data_indexes``, relative to the reader's own list of paths.
        path: Index of the path among all of the source, whoever reads it.
    """

    position: Position
    worker_id: int
    dataset_name: str
    path: int = 0

    @property
    def place(self) -> list[int]:
        """The row's place in its path."""
        return split_position(self.position)[1]

    def among_all_paths(self) -> "SampleIndex":
        """Name the same row without its reader, whose list of paths nobody else can tell (see ``elastic``)."""
        return replace(self, position=join_position(self.path, self.place), worker_id=NO_WORKER)

    def as_mapping(self) -> dict[str, object]:
        """Return the documented mapping."""
        return {"data_indexes": self.position, "worker_id": self.worker_id, "dataset_name": self.dataset_name}


@dataclass(eq=False, slots=True, kw_only=True)
class Sample(Mapping[str, Any]):
    """One row, parsed: its items in order, where it came from, and the random decisions made for it.

    It is also the documented mapping (``sequence_plan``, ``text_ids_list``, ``image_tensor_list``, ``num_tokens``,
    ``data_indexes``); reading ``image_tensor_list`` decodes the images.
    """

    plan: list[Item] = field(default_factory=list)
    num_tokens: int = 0
    index: SampleIndex | None = None
    draws: list[Draw] = field(default_factory=list)
    harvest: Harvest = field(default_factory=Harvest, repr=False)

    @property
    def length(self) -> int:
        """The tokens that the packer budgets: those of the items, and two special tokens for each."""
        return self.num_tokens + 2 * len(self.plan)

    def add(self, item: Item) -> None:
        """Append an item and count its tokens."""
        self.plan.append(item)
        match item:
            case TextItem(ids=ids):
                self.num_tokens += len(ids)
            case VitItem(picture=PlannedImage() as picture) | VaeItem(picture=PlannedImage() as picture):
                self.num_tokens += picture.num_tokens

    def __getitem__(self, key: str) -> Any:
        return _SAMPLE_KEYS[key](self)

    def __iter__(self) -> Iterator[str]:
        return iter(_SAMPLE_KEYS)

    def __len__(self) -> int:
        return len(_SAMPLE_KEYS)


def _images(sample: Sample) -> list[torch.Tensor]:
    return [tensor_of(item.picture) for item in sample.plan if not isinstance(item, TextItem)]


_SAMPLE_KEYS: dict[str, Callable[[Sample], Any]] = {
    "image_tensor_list": _images,
    "text_ids_list": lambda sample: [item.ids for item in sample.plan if isinstance(item, TextItem)],
    "sequence_plan": lambda sample: [_item_as_mapping(item) for item in sample.plan],
    "num_tokens": lambda sample: sample.num_tokens,
    "data_indexes": lambda sample: sample.index.as_mapping() if sample.index is not None else None,
}


def _item_as_mapping(item: Item) -> dict[str, object]:
    mapping: dict[str, object] = {
        "type": _TYPE_NAMES[type(item)],
        "enable_cfg": int(item.enable_cfg),
        "loss": int(item.loss),
        "special_token_loss": int(item.special_token_loss),
        "special_token_label": item.special_token_label,
    }
    if not isinstance(item, TextItem) and item.clip is not None:
        mapping |= {"split_start": item.clip.starts, "split_end": item.clip.ends}
        if item.clip.frame_delta is not None:
            mapping["frame_delta"] = item.clip.frame_delta
    return mapping


def sample_from_mapping(mapping: Mapping[str, Any]) -> Sample:
    """Take a documented sample mapping, as datasets written for other packers yield it."""
    if isinstance(mapping, Sample):
        return mapping
    texts, images = iter(mapping["text_ids_list"]), iter(mapping["image_tensor_list"])
    items: list[Item] = []
    for entry in mapping["sequence_plan"]:
        common = {
            "loss": bool(entry["loss"]),
            "enable_cfg": bool(entry["enable_cfg"]),
            "special_token_loss": bool(entry["special_token_loss"]),
            "special_token_label": entry["special_token_label"],
        }
        if entry["type"] == "text":
            items.append(TextItem(ids=list(next(texts)), **common))
        else:
            picture = TensorImage(next(images))
            items.append(_ITEM_TYPES[entry["type"]](picture=picture, clip=_clip_of(entry), **common))
    return Sample(plan=items, num_tokens=mapping["num_tokens"], index=_index_of(mapping))


def _index_of(mapping: Mapping[str, Any]) -> SampleIndex | None:
    if "data_indexes" not in mapping:  # the reader adds it
        return None
    where = mapping["data_indexes"]
    return SampleIndex(position=where["data_indexes"], worker_id=where["worker_id"], dataset_name=where["dataset_name"])


def _clip_of(entry: Mapping[str, Any]) -> ClipPosition | None:
    if not {"split_start", "split_end", "frame_delta"} & entry.keys():
        return None
    starts, ends = entry.get("split_start", True), entry.get("split_end", True)
    return ClipPosition(starts=bool(starts), ends=bool(ends), frame_delta=entry.get("frame_delta"))


def tensor_of(picture: Picture) -> torch.Tensor:
    """Decode, resize and normalise one picture to float32 [3, H, W], with Pillow."""
    match picture:
        case TensorImage(pixels_CHW=pixels):
            return pixels
        case PlannedImage(source=source, transform=transform, height=height, width=width):
            backend = PillowBackend()
            return transform.normalize(backend.resize(source.decode(backend), height, width))
