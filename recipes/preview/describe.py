"""From a batch to the view of its pack: texts spelled token by token, images in place, rows named."""

import base64
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image

from automodel_data.multimodal.collate_fns import SimpleCustomBatch
from recipes.pictures.tiles import MARKERS, Tokenizer
from recipes.pictures.unpack import PackedImage, PackedSample, Split, TextToken, unpack
from recipes.preview.mask import draw_mask
from recipes.preview.views import ImageView, PackView, SampleView, SplitView, TokenView

PACK_MASK_EDGE, SAMPLE_MASK_EDGE = 720, 208  # pixels
MOST_TOKENS_OF_A_CHARACTER = 4
UNFINISHED = "\ufffd"


@dataclass(frozen=True, kw_only=True, slots=True)
class Describer:
    """Describes packs.

    Args:
        tokenizer: Spells tokens.
        origin: Names the file and row of a data index.
        capacity: Tokens that a pack can hold.
        image_edge: Longest edge of a picture, in pixels.
    """

    tokenizer: Tokenizer
    origin: Callable[[Mapping[str, Any]], str]
    capacity: int
    image_edge: int

    def describe(self, number: int, batch: SimpleCustomBatch) -> PackView:
        """Return the view of a batch on the CPU."""
        pack = unpack(batch)
        rows = _Rows.of(batch)
        samples = [
            self._sample(place, sample, self.origin(index), rows)
            for place, (sample, index) in enumerate(zip(pack.samples, batch.batch_data_indexes, strict=True), 1)
        ]
        return PackView(
            number=number,
            length=pack.length,
            capacity=self.capacity,
            samples=samples,
            learned=stretches(rows.learned),
            mask=data_uri(draw_mask(pack.samples, PACK_MASK_EDGE), "PNG"),
        )

    def _sample(self, number: int, sample: PackedSample, origin: str, rows: "_Rows") -> SampleView:
        noised = [image for split in sample.splits for image in split.images if image.time_logit is not None]
        splits = [self._split(split, rows) for split in sample.splits]
        return SampleView(
            number=number,
            dataset=sample.dataset,
            origin=origin,
            start=splits[0].start,
            length=sample.length,
            learned=sum(split.learned for split in splits),
            noised=sum(image.tokens for image in noised),
            splits=splits,
            mask=data_uri(draw_mask([sample], SAMPLE_MASK_EDGE), "PNG"),
        )

    def _split(self, split: Split, rows: "_Rows") -> SplitView:
        weights = [rows.weights[token.row] for token in split.texts if token.label is not None]
        positions = rows.positions[split.start : split.start + split.length]
        return SplitView(
            mode=split.mode,
            start=split.start,
            length=split.length,
            positions=(min(positions), max(positions)),
            learned=len(weights),
            weights=list(dict.fromkeys(weights)),
            tokens=[] if split.images and not weights else list(self._tokens(split.texts, rows)),
            images=[self._image(image) for image in split.images],
        )

    def _tokens(self, tokens: Sequence[TextToken], rows: "_Rows") -> Iterator[TokenView]:
        for text, run in self._spelled(tokens):
            yield TokenView(
                text=MARKERS.get(text, text),
                about="\n".join(self._about(token, rows) for token in run),
                learned=any(token.label is not None for token in run),
                marker=text in MARKERS,
            )

    def _spelled(self, tokens: Sequence[TextToken]) -> Iterator[tuple[str, list[TextToken]]]:
        """Yield texts with their tokens: one each, but for characters that take several."""
        run: list[TextToken] = []
        for token in tokens:
            run.append(token)
            text = self.tokenizer.decode([one.id for one in run])
            if UNFINISHED not in text or len(run) == MOST_TOKENS_OF_A_CHARACTER:
                yield text, run
                run = []
        if run:
            yield self.tokenizer.decode([one.id for one in run]), run

    def _about(self, token: TextToken, rows: "_Rows") -> str:
        where = f"row {token.row}, position {rows.positions[token.row]}, id {token.id}"
        if token.label is None:
            return where
        predicted = self.tokenizer.decode([token.label])
        return f"{where}; predicts {predicted!r} (id {token.label}), weight {rows.weights[token.row]:.3g}"

    def _image(self, image: PackedImage) -> ImageView:
        picture = Image.fromarray(image.pixels_HWC)
        picture.thumbnail((self.image_edge, self.image_edge), Image.Resampling.LANCZOS)
        return ImageView(
            source=data_uri(picture, "WEBP", quality=86),
            width=picture.width,
            height=picture.height,
            label=f"{image.tower}, {image.grid[0]} × {image.grid[1]} tokens",
            time=image.time,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rows:
    """What a batch says of single rows: position ids, weights of labels, and which rows have a loss (sorted)."""

    positions: list[int]
    weights: dict[int, float]
    learned: list[int]

    @classmethod
    def of(cls, batch: SimpleCustomBatch) -> "_Rows":
        parts = vars(batch)
        none = torch.empty(0)
        labelled = parts.get("ce_loss_indexes", none).tolist()
        weights = dict(zip(labelled, parts.get("ce_loss_weights", none).tolist(), strict=True))
        noised = parts.get("mse_loss_indexes", none).tolist()
        return cls(positions=parts["packed_position_ids"].tolist(), weights=weights, learned=sorted(labelled + noised))


def stretches(rows: Sequence[int]) -> list[tuple[int, int]]:
    """Return sorted ``rows`` as ``(first, how many)`` of those that follow each other."""
    found: list[tuple[int, int]] = []
    for row in rows:
        if found and row == sum(found[-1]):
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((row, 1))
    return found


def data_uri(picture: Image.Image, kind: str, **options: Any) -> str:
    """Return a picture as a URI that holds its bytes."""
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"
