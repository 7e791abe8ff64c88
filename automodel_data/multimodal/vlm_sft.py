"""Conversations about images or a video, one JSON line each."""

import json
from collections.abc import Iterator, Mapping, MutableSequence, Sequence
from typing import Any

from automodel_data.errors import SkipSample
from automodel_data.images import ImagePolicy, ImageSource
from automodel_data.multimodal.conversation import Piece, TextPiece, check_tags, cut_at_tags, read_turns, with_frames
from automodel_data.multimodal.distributed_iterable import DistributedIterableDataset
from automodel_data.multimodal.jsonl import JsonlLines
from automodel_data.multimodal.plan import PlannedImage, Position, Sample, TextItem, VitItem
from automodel_data.multimodal.transforms import ImageTransform
from automodel_data.multimodal.video import FrameSampler
from automodel_data.randomness import Randomness
from automodel_data.storage import join

Line = tuple[str, str]
"""A line of a JSONL file, and the directory that its image names start from."""


class SftJSONLIterableDataset(DistributedIterableDataset[Line, Line]):
    """Conversations about images or a video, one JSON line each; the answers are learnt (BAGEL's ``vlm_sft``).

    Args:
        transform: For the images.
        frame_sampler: For videos; None where there are none.
        jsonl_path_list: Files of rows.
        data_dir_list: For each file the directory that its image names start from.
        num_used_data: For each file how many lines to use.
        data_status: Positions to resume behind, one for each worker.
        shuffle_lines: Shuffle each file's lines before the first ``num_used_data`` are taken.
        shuffle_seed: Seed of that.
    """

    transform_is_for_vit = True
    data_paths: JsonlLines

    def __init__(
        self,
        dataset_name: str,
        transform: ImageTransform,
        tokenizer: Any,
        frame_sampler: FrameSampler | None,
        jsonl_path_list: Sequence[str],
        data_dir_list: Sequence[str],
        num_used_data: Sequence[int],
        local_rank: int = 0,
        world_size: int = 1,
        num_workers: int = 8,
        data_status: Sequence[Position | None] | None = None,
        shuffle_lines: bool = False,
        shuffle_seed: int = 0,
    ) -> None:
        super().__init__(dataset_name, local_rank, world_size, num_workers)
        self.transform = transform
        self.tokenizer = tokenizer
        self.frame_sampler = frame_sampler
        self.set_data_status(data_status)
        self.data_paths = self.get_data_paths(
            jsonl_path_list, data_dir_list, num_used_data, shuffle_lines, shuffle_seed
        )
        self.set_epoch()

    def adopt(self, rng: Randomness, images: ImagePolicy) -> None:
        super().adopt(rng, images)
        if self.frame_sampler is not None:
            self.frame_sampler.rng, self.frame_sampler.images = rng, images

    def get_data_paths(
        self,
        jsonl_path_list: Sequence[str],
        data_dir_list: Sequence[str],
        num_used_data: Sequence[int],
        shuffle_lines: bool,
        shuffle_seed: int,
    ) -> JsonlLines:
        """Return the selected lines as ``(line, image directory)``."""
        return JsonlLines.take(jsonl_path_list, data_dir_list, num_used_data, shuffle_seed if shuffle_lines else None)

    def sorted_order(self) -> MutableSequence[int]:
        return self.data_paths.sorted_order()

    def digest(self) -> str:
        return self.data_paths.digest()

    def reordered(self, order: Sequence[int]) -> JsonlLines:
        return self.data_paths.reordered(order)

    def read_path(self, path: Line, after: list[int] | None) -> Iterator[tuple[list[int], Line]]:
        if after is None:  # a path is a row
            yield [], path

    def read_row(self, path: Line, place: list[int]) -> Line:
        return path

    def where(self, path_index: int, place: list[int]) -> str:
        return self.data_paths.where(path_index)

    def change_format(self, data: Mapping[str, Any], num_images: int) -> list[Piece]:
        """Cut a row's conversation into texts and images in reading order."""
        return cut_at_tags(read_turns(data), num_images)

    def parse(self, row: Line) -> Sample:
        line, image_dir = row
        try:
            content = json.loads(line)
        except ValueError as error:
            raise SkipSample("broken JSON", str(error)) from error
        if not isinstance(content, dict):
            raise SkipSample("broken JSON", f"{line!r:.60} is no object")
        turns = read_turns(content)
        sources = self._sources(content, image_dir)
        if "image" not in content and "video" in content:
            turns = with_frames(turns, len(sources))
        check_tags(turns, len(sources))
        return self._sample(cut_at_tags(turns, len(sources)), sources)

    def _sources(self, content: Mapping[str, Any], image_dir: str) -> list[ImageSource]:
        if "image" in content:
            names = content["image"] if isinstance(content["image"], list) else [content["image"]]
            return [self.images.open(path, path) for path in (join(image_dir, str(name)) for name in names)]
        if "video" in content:
            if self.frame_sampler is None:
                raise SkipSample("video without frame sampler", "the group's config has no frame_sampler_args")
            return self.frame_sampler.plan(join(image_dir, str(content["video"])))[0]
        return []

    def _sample(self, pieces: Sequence[Piece], sources: Sequence[ImageSource]) -> Sample:
        sample = Sample()
        left = iter(sources)
        for piece in pieces:
            if isinstance(piece, TextPiece):
                ids = self.tokenizer.encode(piece.text)
                if ids:
                    sample.add(TextItem(ids=ids, loss=piece.loss, enable_cfg=False))
            else:
                picture = PlannedImage.of(next(left), self.transform, img_num=len(sources))
                sample.add(VitItem(picture=picture, enable_cfg=False))
        if not any(item.loss for item in sample.plan):
            raise SkipSample("nothing to learn", "the conversation has no answer")
        return sample
