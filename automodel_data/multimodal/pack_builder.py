"""Where every token of a pack goes: rows, positions, splits, timesteps and labels. No pixel is touched here.

Each sample is laid out by itself, from row 0; a pack is a list of layouts, and assembling it adds the offsets. So a
sample can leave a closed pack again when its images turn out to be broken.
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from automodel_data.errors import DataError, SkipSample
from automodel_data.multimodal.plan import ImageItem, Item, Picture, Sample, TextItem, VaeItem, VitItem
from automodel_data.multimodal.utils import len2weight
from automodel_data.randomness import Randomness

AttentionMode = Literal["causal", "full", "noise"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SpecialTokens:
    """Ids of the tokens around texts and images."""

    bos_token_id: int
    eos_token_id: int
    start_of_image: int
    end_of_image: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutRules:
    """How samples are laid out: special tokens, condition dropout, patches (pixels), position tables (patches)."""

    tokens: SpecialTokens
    text_cond_dropout_prob: float
    vit_cond_dropout_prob: float
    vae_cond_dropout_prob: float
    vae_image_downsample: int
    max_latent_size: int
    vit_patch_size: int
    max_num_patch_per_side: int
    interpolate_pos: bool


@dataclass(frozen=True, slots=True)
class Split:
    """A stretch of rows that attend alike."""

    length: int
    mode: AttentionMode


@dataclass(frozen=True, eq=False, slots=True)
class PlacedImage:
    """A picture on a grid of patches, from its first row in the sample."""

    picture: Picture
    first_row: int
    grid: tuple[int, int]

    @property
    def num_patches(self) -> int:
        return self.grid[0] * self.grid[1]


@dataclass(frozen=True, eq=False, slots=True)
class PlacedLatent(PlacedImage):
    """A picture for the generation side; ``timestep`` is a logit, None for a clean condition."""

    timestep: float | None


@dataclass(frozen=True, slots=True)
class Label:
    """A token to be predicted from ``row``."""

    row: int
    token: int
    weight: float


@dataclass(eq=False, slots=True)
class SampleLayout:
    """One sample's rows, from 0."""

    sample: Sample
    length: int = 0
    text_ids: list[int] = field(default_factory=list)
    text_rows: list[int] = field(default_factory=list)
    positions: list[np.ndarray] = field(default_factory=list)
    splits: list[Split] = field(default_factory=list)
    vit_images: list[PlacedImage] = field(default_factory=list)
    vae_images: list[PlacedLatent] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)

    @property
    def images(self) -> list[PlacedImage]:
        """All images that survived condition dropout."""
        return [*self.vit_images, *self.vae_images]


@dataclass(eq=False, slots=True)
class OpenPack:
    """Samples laid out so far."""

    layouts: list[SampleLayout] = field(default_factory=list)
    num_tokens: int = 0

    def add(self, layout: SampleLayout) -> None:
        """Append a sample."""
        self.layouts.append(layout)
        self.num_tokens += layout.length


def lay_out(sample: Sample, rules: LayoutRules, rng: Randomness) -> SampleLayout:
    """Decide every token of a sample: condition dropout first, then rows, positions and timesteps.

    Raises:
        SkipSample: condition dropout left nothing of it.
    """
    builder = _LayoutBuilder(sample, rules, rng)
    for item in sample.plan:
        match item:
            case TextItem():
                builder.add_text(item)
            case VitItem() | VaeItem():
                builder.add_image(item)
    if builder.layout.length == 0:
        raise SkipSample("nothing left", "every item was dropped as a condition, or there was none")
    return builder.layout


class _LayoutBuilder:
    """The pen that lays out one sample: ``rope`` is the next position, ``split_start`` where the open split began."""

    def __init__(self, sample: Sample, rules: LayoutRules, rng: Randomness) -> None:
        self.layout = SampleLayout(sample)
        self._rules = rules
        self._rng = rng
        self._rope = 0
        self._split_start = 0
        self._split_mode: AttentionMode = "causal"
        self._split_timestep: float | None = None
        self._clip_dropped = False

    def add_text(self, item: TextItem) -> None:
        if self._drops(item, self._rules.text_cond_dropout_prob):
            return
        layout, tokens = self.layout, self._rules.tokens
        first = layout.length
        self._write([tokens.bos_token_id, *item.ids, tokens.eos_token_id])
        layout.positions.append(np.arange(self._rope, self._rope + layout.length - first))
        self._rope += layout.length - first
        if item.loss:
            targets = [*item.ids, tokens.eos_token_id]
            weight = len2weight(len(targets))
            layout.labels += [Label(first + i, token, weight) for i, token in enumerate(targets)]
        self._label_closing_token(item)
        layout.splits.append(Split(layout.length - first, "causal"))

    def add_image(self, item: ImageItem) -> None:
        if self._image_dropped(item):
            self._rope += 1
            return
        starts, ends = (True, True) if item.clip is None else (item.clip.starts, item.clip.ends)
        delta = None if item.clip is None else item.clip.frame_delta
        if starts:
            self._open_split(item, noised=isinstance(item, VaeItem) and item.loss and delta is None)
        layout, tokens = self.layout, self._rules.tokens
        first = layout.length
        self._write([tokens.start_of_image])
        self._place(item)
        self._write([tokens.end_of_image])
        self._label_closing_token(item)
        layout.positions.append(np.full(layout.length - first, self._rope))
        if isinstance(item, VitItem):
            self._rope += 1
        elif delta is not None:
            self._rope += delta
        elif not item.loss:
            self._rope += 1
        if ends:
            layout.splits.append(Split(layout.length - self._split_start, self._split_mode))

    def _open_split(self, item: ImageItem, noised: bool) -> None:
        self._split_start = self.layout.length
        self._split_mode = "noise" if noised else "full"
        self._split_timestep = self._rng.normal() if isinstance(item, VaeItem) and item.loss else None

    def _place(self, item: ImageItem) -> None:
        layout, rules = self.layout, self._rules
        match item:
            case VitItem(picture=picture):
                grid = _grid(
                    picture, rules.vit_patch_size, rules.max_num_patch_per_side, rules, "max_num_patch_per_side"
                )
                placed = PlacedImage(picture, layout.length, grid)
                layout.vit_images.append(placed)
            case VaeItem(picture=picture):
                grid = _grid(picture, rules.vae_image_downsample, rules.max_latent_size, rules, "max_latent_size")
                placed = PlacedLatent(picture, layout.length, grid, self._split_timestep)
                layout.vae_images.append(placed)
        layout.length += placed.num_patches

    def _write(self, ids: list[int]) -> None:
        layout = self.layout
        layout.text_ids += ids
        layout.text_rows += range(layout.length, layout.length + len(ids))
        layout.length += len(ids)

    def _label_closing_token(self, item: Item) -> None:
        if item.special_token_loss:
            assert item.special_token_label is not None
            self.layout.labels.append(Label(self.layout.length - 1, item.special_token_label, 1.0))

    def _image_dropped(self, item: ImageItem) -> bool:
        rules = self._rules
        probability = rules.vit_cond_dropout_prob if isinstance(item, VitItem) else rules.vae_cond_dropout_prob
        if item.clip is not None and not item.clip.starts:
            return self._clip_dropped  # one draw decides for the whole clip
        self._clip_dropped = self._drops(item, probability)
        return self._clip_dropped

    def _drops(self, item: Item, probability: float) -> bool:
        return item.enable_cfg and self._rng.uniform() < probability


def _grid(picture: Picture, patch: int, table: int, rules: LayoutRules, key: str) -> tuple[int, int]:
    rows, columns = picture.height // patch, picture.width // patch
    if rows * patch != picture.height or columns * patch != picture.width:
        raise DataError(f"an image of {picture.height}x{picture.width} does not divide into patches of {patch} pixels")
    if max(rows, columns) > table and not rules.interpolate_pos:
        raise DataError(f"an image of {rows}x{columns} patches exceeds the position table: {key} is {table}")
    return rows, columns
