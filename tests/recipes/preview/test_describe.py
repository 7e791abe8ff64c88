"""A view tells of a pack what the batch holds, and where its rows are."""

import base64
import io
import json
from itertools import islice, pairwise
from pathlib import Path

import pytest
from PIL import Image

from automodel_data.multimodal.utils import add_special_tokens
from recipes.pictures.unpack import TextToken
from recipes.preview.config import PreviewRun
from recipes.preview.describe import Describer, stretches
from recipes.preview.views import PageView, SampleView
from tests.recipes.composing import composed, rows_in


@pytest.fixture(scope="module")
def batches(few_rows: Path) -> list:
    run = composed("preview", PreviewRun, *rows_in(few_rows), "data.num_workers=0")
    tokenizer, special_tokens, _ = add_special_tokens(run.task.load_tokenizer(run.model))
    return list(islice(run.data.build(tokenizer, special_tokens, 0, 1, 1, run.train.seed).dataloader, 2))


def samples(page: PageView) -> list[SampleView]:
    return [sample for pack in page.packs for sample in pack.samples]


def pixels(source: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2])))


def test_packs_have_the_sizes_of_their_batches(page: PageView, batches: list) -> None:
    assert [pack.length for pack in page.packs] == [batch.sequence_length for batch in batches]
    assert [[sample.length for sample in pack.samples] for pack in page.packs] == [
        batch.sample_lens[:-1] for batch in batches
    ]
    assert all(pack.capacity == 1728 for pack in page.packs)


def test_losses_and_their_weights_are_those_of_the_batch(page: PageView, batches: list) -> None:
    for pack, batch in zip(page.packs, batches, strict=True):
        assert sum(sample.learned for sample in pack.samples) == len(batch.ce_loss_indexes)
        assert sum(sample.noised for sample in pack.samples) == len(batch.mse_loss_indexes)
        assert sum(count for _, count in pack.learned) == len(batch.ce_loss_indexes) + len(batch.mse_loss_indexes)
        weights = {weight for sample in pack.samples for split in sample.splits for weight in split.weights}
        assert weights == set(batch.ce_loss_weights.tolist())


def test_texts_stand_where_the_rows_have_them(page: PageView) -> None:
    for sample in (sample for sample in samples(page) if sample.dataset == "vlm_sft"):
        file, _, line = sample.origin.rpartition(":")
        row = json.loads(Path(file).read_text().splitlines()[int(line) - 1])
        answers = [turn["value"] for turn in row["conversations"] if turn["from"] == "gpt"]
        learned = ["".join(t.text for t in split.tokens if not t.marker) for split in sample.splits if split.learned]
        assert learned == answers


def test_a_parquet_row_is_named_by_file_row_group_and_row(page: PageView) -> None:
    origins = {sample.origin for sample in samples(page) if sample.dataset == "t2i_pretrain"}
    assert all(".parquet, row group " in origin for origin in origins)


def test_noised_images_have_times_and_conditions_have_none(page: PageView) -> None:
    for sample in samples(page):
        for split in sample.splits:
            assert all((image.time is not None) == (split.mode == "noise") for image in split.images)
    times = [image.time for sample in samples(page) for split in sample.splits for image in split.images if image.time]
    assert times
    assert all(0 < time < 1 for time in times)


def test_pictures_are_no_larger_than_asked_for(page_of) -> None:
    small = page_of("preview.image_edge=24", "preview.packs=1")
    images = [image for sample in samples(small) for split in sample.splits for image in split.images]
    assert all(max(image.width, image.height) <= 24 for image in images)
    assert all(pixels(image.source).size == (image.width, image.height) for image in images)


def test_positions_go_on_where_the_split_before_ended(page: PageView) -> None:
    for sample in samples(page):
        assert sample.splits[0].positions[0] >= 0
        ends = [split.positions for split in sample.splits]
        assert all(after[0] > before[1] for before, after in pairwise(ends))


def test_dense_masks_give_the_same_page(page: PageView, page_of) -> None:
    dense = page_of("data.dataset_config.use_flex=false")
    assert dense.packs == page.packs


def test_held_out_packs_come_from_held_out_rows(page_of) -> None:
    view = page_of("preview.heldout=true", "preview.packs=1")
    assert view.title == "1 pack of held-out rows"
    assert all("/heldout/" in sample.origin for sample in samples(view))


def test_the_mix_adds_up(page: PageView) -> None:
    assert [group.name for group in page.groups] == ["t2i_pretrain", "unified_edit", "vlm_sft"]
    for share in ("weight", "by_samples", "by_tokens"):
        assert sum(getattr(group, share) for group in page.groups) == pytest.approx(1)


def test_a_character_of_several_tokens_is_spelled_once() -> None:
    class Bytes:
        def decode(self, ids: list[int]) -> str:
            return bytes(ids).decode("utf-8", errors="replace")

    describer = Describer(tokenizer=Bytes(), origin=str, capacity=9, image_edge=9)
    tokens = [TextToken(row=row, id=byte, label=None) for row, byte in enumerate("a½🙂b".encode())]
    spelled = [(text, len(run)) for text, run in describer._spelled(tokens)]
    assert spelled == [("a", 1), ("½", 2), ("🙂", 4), ("b", 1)]


def test_rows_that_follow_each_other_are_one_stretch() -> None:
    assert stretches([1, 2, 3, 7, 9, 10]) == [(1, 3), (7, 1), (9, 2)]
    assert stretches([]) == []
