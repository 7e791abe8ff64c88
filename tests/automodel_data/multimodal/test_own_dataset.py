"""A user's own dataset is one ``parse_row``, named in the config; it may give typed samples or plain mappings."""

from collections.abc import Mapping
from itertools import islice
from typing import Any

import pytest
import torch

from automodel_data.errors import DataError, SkipSample
from automodel_data.multimodal.checks import read_groups
from automodel_data.multimodal.interleave import InterleavedBaseIterableDataset, ParquetStandardIterableDataset
from automodel_data.multimodal.plan import Sample


class Captions(InterleavedBaseIterableDataset, ParquetStandardIterableDataset):
    """The text of a row, then its image."""

    def parse_row(self, row: Mapping[str, Any]) -> Sample:
        if row["text"] == "skip":
            raise SkipSample("unwanted", row["text"])
        data = self._add_text(self._init_data(), row["text"], need_loss=False)
        return self._add_image(data, self.images.open(row["image"], "image"), True, False, False)


class PlainCaptions(Captions):
    """The same as the documented mapping, as a parser written for another packer gives it."""

    def parse_row(self, row: Mapping[str, Any]) -> Any:
        sample = super().parse_row(row)
        return {key: value for key, value in dict(sample).items() if key != "data_indexes"}


class Nothing(Captions):
    """Gives nothing for some rows."""

    def parse_row(self, row: Mapping[str, Any]) -> Any:
        return {} if row["text"] == "ab" else super().parse_row(row)


class InItsOwnWords(Captions):
    """Tells in words of its own what it loses, and of one row that it keeps."""

    def parse_row(self, row: Mapping[str, Any]) -> Any:
        if row["text"] == "ab":
            self._log_drop("a letter too many", "text %s", row["text"])
            self._log_drop("two letters", "text %s", row["text"])
            return None
        if row["text"] == "skip":
            self._log_drop("four letters", "text %s", row["text"])
        if row["text"] == "abc":
            self._log_drop("three letters", "text %s", row["text"])
        return super().parse_row(row)


class ShortOfTokens(PlainCaptions):
    """Forgets to count its image's patches."""

    def parse_row(self, row: Mapping[str, Any]) -> Any:
        return super().parse_row(row) | {"num_tokens": len(row["text"])}


def own(workshop: Any, kind: type) -> Any:
    rows = {"text": ["a", "skip", "ab", "abc"], "image": [workshop.image(16, 16, color) for color in range(4)]}
    path = workshop.parquet(workshop.root / "own" / "a.parquet", rows)
    workshop.info["own"] = {"rows": {"data_dir": str(path.parent)}}
    sizes = {"max_image_size": 64, "min_image_size": 16}
    workshop.groups["own"] = {
        "dataset_names": ["rows"],
        "dataset_class": f"{kind.__module__}.{kind.__qualname__}",
        "image_transform_args": {"image_stride": 16} | sizes,
        "vit_image_transform_args": {"image_stride": 14} | sizes,
    }
    return workshop.build()


def test_a_users_own_dataset_is_one_parse_row_named_in_the_config(workshop: Any) -> None:
    loader = own(workshop, Captions).dataloader
    batch = next(iter(loader))
    assert batch.packed_text_ids.tolist()[:5] == [1001, ord("a"), 1002, 1003, 1004]
    assert len(batch.padded_images) == len(batch.sample_lens) - 1
    assert list(loader.drops()["own"]) == ["unwanted"]


def test_plain_mappings_give_the_same_batches_as_typed_samples(workshop: Any) -> None:
    typed = [batch.to_dict() for batch in islice(own(workshop, Captions).dataloader, 3)]
    plain = [batch.to_dict() for batch in islice(own(workshop, PlainCaptions).dataloader, 3)]
    for ours, theirs in zip(typed, plain, strict=True):
        assert ours.keys() == theirs.keys()
        for key, value in ours.items():
            assert torch.equal(value, theirs[key]) if isinstance(value, torch.Tensor) else value == theirs[key]


def test_a_sample_that_takes_more_tokens_than_it_says_is_refused_with_its_row(workshop: Any) -> None:
    loader = own(workshop, ShortOfTokens).dataloader
    wrong = r"^own: .*a.parquet, row group 0, row 0: the sample takes 6 tokens, but its num_tokens \(1\) and two for"
    with pytest.raises(DataError, match=wrong + " each of its 2 items make 5: count every text id and image patch"):
        next(iter(loader))


def test_a_parser_that_gives_nothing_loses_the_row(workshop: Any) -> None:
    loader = own(workshop, Nothing).dataloader
    next(iter(loader))
    assert list(loader.drops()["own"]) == ["unwanted", "unusable row"]


def test_a_lost_row_is_counted_once_under_the_last_reason_that_its_parser_gave(workshop: Any) -> None:
    loader = own(workshop, InItsOwnWords).dataloader
    next(iter(loader))
    lost = loader.drops()["own"]
    assert lost.keys() == {"two letters", "unwanted", "three letters"}
    assert lost["two letters"] == lost["unwanted"]


def test_a_loss_inside_a_row_that_is_kept_is_not_counted_again_when_the_row_is_restored(workshop: Any) -> None:
    own(workshop, InItsOwnWords)
    dataset = workshop.build().dataset
    (group,) = dataset.build_datasets(read_groups(dataset.data_config), None)
    samples = list(islice(iter(group.source), 2))
    before = group.source.ledger.counts
    assert before["own"]["three letters"] == 1
    for sample in samples:
        group.source.restore(sample.index, sample.draws)
    assert group.source.ledger.counts == before
