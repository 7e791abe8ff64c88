"""Images with captions, from parquet files."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from automodel_data.errors import SkipSample
from automodel_data.multimodal.distributed_iterable import DistributedIterableDataset
from automodel_data.multimodal.parquet_utils import (
    ParquetRow,
    get_parquet_data_paths,
    read_parquet_file,
    read_parquet_row,
)
from automodel_data.multimodal.plan import PlannedImage, Position, Sample, TextItem, VaeItem
from automodel_data.multimodal.transforms import ImageTransform


class T2IIterableDataset(DistributedIterableDataset[str, ParquetRow]):
    """Images with captions from parquet files; the image is learnt (BAGEL's ``t2i_pretrain``).

    Args:
        transform: For the images.
        data_dir_list: Directories of parquet files with the columns ``image`` (bytes) and ``captions`` (a JSON object).
        num_used_data: Files to use of each directory.
        data_status: Positions to resume behind, one for each worker.
    """

    def __init__(
        self,
        dataset_name: str,
        transform: ImageTransform,
        tokenizer: Any,
        data_dir_list: Sequence[str],
        num_used_data: Sequence[int],
        local_rank: int = 0,
        world_size: int = 1,
        num_workers: int = 8,
        data_status: Sequence[Position | None] | None = None,
    ) -> None:
        super().__init__(dataset_name, local_rank, world_size, num_workers)
        self.transform = transform
        self.tokenizer = tokenizer
        self.set_data_status(data_status)
        self.data_paths = self.get_data_paths(data_dir_list, num_used_data)
        self.set_epoch()

    def get_data_paths(self, data_dir_list: Sequence[str], num_used_data: Sequence[int]) -> list[str]:
        """List the parquet files."""
        return get_parquet_data_paths(data_dir_list, num_used_data)

    def read_path(self, path: str, after: list[int] | None) -> Iterator[tuple[list[int], ParquetRow]]:
        first, start = (0, 0) if after is None else (after[0], after[1] + 1)
        try:
            for group, row, values in read_parquet_file(path, first, start, self.tally.lose_rows):
                yield [group, row], values
        except SkipSample as unreadable:
            self.tally.tell(unreadable)

    def read_row(self, path: str, place: list[int]) -> ParquetRow:
        return read_parquet_row(path, *place)

    def where(self, path_index: int, place: list[int]) -> str:
        group, row = place
        return f"{self.data_paths[path_index]}, row group {group}, row {row}"

    def parse(self, row: ParquetRow) -> Sample:
        source = self.images.open(row["image"], "its image")
        sample = Sample()
        sample.add(TextItem(ids=self.tokenizer.encode(self._caption(row["captions"])), loss=False, enable_cfg=True))
        sample.add(VaeItem(picture=PlannedImage.of(source, self.transform), loss=True, enable_cfg=False))
        return sample

    def _caption(self, encoded: str) -> str:
        try:
            captions = json.loads(encoded)
        except (TypeError, ValueError) as error:
            raise SkipSample("broken captions", f"captions is {encoded!r:.60}, not a JSON object") from error
        if not isinstance(captions, dict):
            raise SkipSample("broken captions", f"captions is {encoded!r:.60}, not a JSON object")
        texts = list(captions.values())
        text = texts[self.rng.choose(len(texts))] if texts else " "
        if not isinstance(text, str):
            raise SkipSample("broken captions", f"a caption is {text!r:.40}, not a text")
        return text
