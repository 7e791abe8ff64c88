"""Rows of texts and images in any order, from parquet row groups: the base to write new datasets on."""

import logging
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from PIL import Image

from automodel_data.errors import DataError, SkipSample
from automodel_data.images import DecodedImage, ImageSource
from automodel_data.multimodal.distributed_iterable import DistributedIterableDataset, RowT
from automodel_data.multimodal.parquet_utils import (
    ParquetRow,
    get_parquet_data_paths,
    read_footers,
    read_parquet_row,
    read_row_group,
)
from automodel_data.multimodal.plan import (
    ClipPosition,
    PlannedImage,
    Position,
    Sample,
    TextItem,
    VaeItem,
    VitItem,
    sample_from_mapping,
)
from automodel_data.multimodal.sharded_paths import PathT
from automodel_data.multimodal.transforms import ImageTransform

log = logging.getLogger(__name__)

_MERGE_PROBABILITY = 0.5
_MOST_IMAGES = 3

RowGroup = tuple[str, int]
"""A parquet file and the number of one of its row groups."""


class InterleavedBaseIterableDataset(DistributedIterableDataset[PathT, RowT]):
    """Builds a sample item by item: texts, images for either side, clips."""

    transform: ImageTransform
    vit_transform: ImageTransform
    tokenizer: Any

    def _init_data(self) -> Sample:
        """Return an empty sample."""
        return Sample()

    def _add_text(self, data: Sample, text: str, need_loss: bool, enable_cfg: bool = True) -> Sample:
        """Append a text; with ``need_loss`` it is predicted."""
        data.add(TextItem(ids=self.tokenizer.encode(text), loss=need_loss, enable_cfg=enable_cfg))
        return data

    def _add_image(
        self,
        data: Sample,
        image: ImageSource | Image.Image,
        need_loss: bool,
        need_vae: bool,
        need_vit: bool,
        enable_cfg: bool = True,
    ) -> Sample:
        """Append an image: to be predicted, as a clean latent, for the understanding tower, in that order."""
        source = as_source(image)
        if need_loss:
            data.add(VaeItem(picture=PlannedImage.of(source, self.transform), loss=True, enable_cfg=False))
        if need_vae:
            data.add(VaeItem(picture=PlannedImage.of(source, self.transform), loss=False, enable_cfg=enable_cfg))
        if need_vit:
            data.add(VitItem(picture=PlannedImage.of(source, self.vit_transform), enable_cfg=enable_cfg))
        return data

    def _add_video(
        self,
        data: Sample,
        frames: Sequence[ImageSource | Image.Image],
        frame_indexes: Sequence[int],
        need_loss: bool,
        need_vae: bool,
        enable_cfg: bool = True,
    ) -> Sample:
        """Append a clip as one split, to be predicted, then as clean latents; ``frame_indexes`` count source frames."""
        sources = [as_source(frame) for frame in frames]
        for loss in [True] * need_loss + [False] * need_vae:
            for number, source in enumerate(sources):
                last = number == len(sources) - 1
                delta = None if last else frame_indexes[number + 1] - frame_indexes[number]
                position = ClipPosition(starts=number == 0, ends=last, frame_delta=delta)
                picture = PlannedImage.of(source, self.transform)
                data.add(VaeItem(picture=picture, loss=loss, enable_cfg=enable_cfg and not loss, clip=position))
        return data


def as_source(image: ImageSource | Image.Image) -> ImageSource:
    """Take an image that may be decoded already."""
    return DecodedImage(image) if isinstance(image, Image.Image) else image


class ParquetStandardIterableDataset(DistributedIterableDataset[RowGroup, ParquetRow]):
    """Row groups of parquet files as paths; a subclass turns a row into a sample in ``parse_row``.

    Args:
        transform: For images of the generation side.
        vit_transform: For images of the understanding tower.
        data_dir_list: Directories of parquet files.
        num_used_data: Files to use of each directory.
        parquet_info: ``{path: {"num_row_groups": n}}``; files it does not know are left out. Where it is None or empty
            the files' footers are read.
        data_status: Positions to resume behind, one for each worker.
    """

    def __init__(
        self,
        dataset_name: str,
        transform: ImageTransform,
        tokenizer: Any,
        vit_transform: ImageTransform,
        data_dir_list: Sequence[str],
        num_used_data: Sequence[int],
        parquet_info: Mapping[str, Mapping[str, int]] | None,
        local_rank: int = 0,
        world_size: int = 1,
        num_workers: int = 8,
        data_status: Sequence[Position | None] | None = None,
    ) -> None:
        super().__init__(dataset_name, local_rank, world_size, num_workers)
        self.transform = transform
        self.vit_transform = vit_transform
        self.tokenizer = tokenizer
        self.set_data_status(data_status)
        self.data_paths = self.get_data_paths(data_dir_list, num_used_data, parquet_info)
        self.set_epoch()

    def get_data_paths(
        self,
        data_dir_list: Sequence[str],
        num_used_data: Sequence[int],
        parquet_info: Mapping[str, Mapping[str, int]] | None,
    ) -> list[RowGroup]:
        """List ``(file, row group)`` for every row group of every file."""
        files = get_parquet_data_paths(data_dir_list, num_used_data)
        row_groups: Mapping[str, int]
        if parquet_info:
            row_groups = {path: info["num_row_groups"] for path, info in parquet_info.items()}
            why = f"parquet_info knows others, such as {next(iter(row_groups))}"
        else:
            footers = read_footers(files)
            row_groups, self.left_out = footers.row_groups, footers.unreadable
            why = str(self.left_out[0]) if self.left_out else "they have no rows"
        if missing := [path for path in files if path not in row_groups]:
            what = f"{len(missing)} of {len(files)} parquet files are left out, e.g. {missing[0]}"
            log.warning("%s: %s: %s", self.dataset_name, what, why)
        paths = [(path, group) for path in files if path in row_groups for group in range(row_groups[path])]
        if not paths:
            which = f"none of {len(files)} parquet files, e.g. {files[0]}"
            raise DataError(f"{self.dataset_name}: {which}, has a readable row group: {why}")
        return paths

    def read_path(self, path: RowGroup, after: list[int] | None) -> Iterator[tuple[list[int], ParquetRow]]:
        file, group = path
        start = 0 if after is None else after[0] + 1
        for row, values in read_row_group(file, group, start, self.tally.lose_rows):
            yield [row], values

    def read_row(self, path: RowGroup, place: list[int]) -> ParquetRow:
        file, group = path
        return read_parquet_row(file, group, *place)

    def where(self, path_index: int, place: list[int]) -> str:
        file, group = self.data_paths[path_index]
        return f"{file}, row group {group}, row {place[0]}"

    def parse(self, row: ParquetRow) -> Sample:
        with self.tally.listening() as told:
            sample = self.parse_row(row)
        if not sample:
            raise told[-1] if told else SkipSample("unusable row", "parse_row returned nothing")
        for loss in told:
            self.tally.tell(loss)
        return sample_from_mapping(sample)

    @abstractmethod
    def parse_row(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Turn a row into a sample, or its documented mapping; raise ``SkipSample(reason)`` where it cannot be used."""


class UnifiedEditIterableDataset(InterleavedBaseIterableDataset[RowGroup, ParquetRow], ParquetStandardIterableDataset):
    """Chains of edits: some steps of the chain, from a start image to an end image (BAGEL's ``unified_edit``)."""

    def parse_row(self, row: Mapping[str, Any]) -> Sample:
        """Draw a stretch of the chain, at most three images; its instructions may be merged into one text."""
        images, instructions = row["image_list"] or [], row["instruction_list"] or []
        if len(images) < 2 or len(instructions) != len(images) - 1:
            raise SkipSample("broken edit chain", f"{len(images)} images and {len(instructions)} instructions")
        start = self.rng.choose(len(images) - 1)
        behind = min(start + _MOST_IMAGES, len(images))
        end = start + 1 + self.rng.choose(behind - start - 1)

        data = self._init_data()
        self._add(data, images, start, need_loss=False, need_vae=True, need_vit=True)
        if end - start > 1 and self.rng.uniform() < _MERGE_PROBABILITY:
            if end == len(images) - 1:
                end -= 1
            merged = "".join(self._phrasing(instructions[step]) + ". " for step in range(start, end)).rstrip()
            self._add_text(data, merged, need_loss=False)
            return self._add(data, images, end, need_loss=True, need_vae=False, need_vit=False)
        for step in range(start, end):
            self._add_text(data, self._phrasing(instructions[step]), need_loss=False)
            condition = step + 1 < end
            self._add(data, images, step + 1, need_loss=True, need_vae=condition, need_vit=condition)
        return data

    def _phrasing(self, phrasings: Sequence[str]) -> str:
        if not phrasings or isinstance(phrasings, str):
            raise SkipSample("broken instruction", f"a step has {phrasings!r:.40}, not a list of phrasings")
        phrasing = phrasings[self.rng.choose(len(phrasings))]
        if not isinstance(phrasing, str):
            raise SkipSample("broken instruction", f"a phrasing is {phrasing!r:.40}, not a text")
        return phrasing

    def _add(self, data: Sample, images: Sequence[bytes], number: int, **needs: bool) -> Sample:
        source = self.images.open(images[number], f"image {number} of the chain")
        return self._add_image(data, source, **needs)
