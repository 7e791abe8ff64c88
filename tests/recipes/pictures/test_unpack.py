import numpy as np
import pytest
import torch

from automodel_data.multimodal.collate_fns import SimpleCustomBatch
from automodel_data.multimodal.utils import patchify
from recipes.pictures.unpack import PackedImage, Tower, unpack


@pytest.fixture(scope="module", params=[True, False], ids=["flex", "dense"])
def batches(packs, request):
    return packs(request.param)


def images_of(batch, tower: Tower) -> list[PackedImage]:
    images = [image for sample in unpack(batch).samples for split in sample.splits for image in split.images]
    return [image for image in images if image.tower is tower]


def normalised(image: PackedImage) -> torch.Tensor:
    return torch.from_numpy(image.pixels_HWC.astype(np.float32)).permute(2, 0, 1) / 255 * 2 - 1


def test_samples_and_splits_cover_the_pack_row_by_row(batches):
    for batch in batches:
        pack = unpack(batch)
        assert [sample.length for sample in pack.samples] == batch.sample_lens[: len(pack.samples)]
        splits = [split for sample in pack.samples for split in sample.splits]
        ends = np.cumsum([split.length for split in splits]).tolist()
        assert [split.start for split in splits] == [0, *ends[:-1]]
        assert ends[-1] == pack.length == batch.sequence_length


def test_every_row_is_one_text_token_or_one_image_token(batches):
    for batch in batches:
        splits = [split for sample in unpack(batch).samples for split in sample.splits]
        rows = [token.row for split in splits for token in split.texts]
        for image in (image for split in splits for image in split.images):
            rows += range(image.first_row, image.first_row + image.tokens)
        assert sorted(rows) == list(range(batch.sequence_length))


def test_flex_splits_come_back_as_they_were_packed(packs):
    for batch in packs(True):
        pack = unpack(batch)
        splits = [split for sample in pack.samples for split in sample.splits]
        assert [split.length for split in splits] == batch.split_lens[:-1]
        assert [split.mode for split in splits] == batch.attn_modes[:-1]
        assert pack.capacity == 1200


def test_dense_masks_know_their_splits(packs):
    def splits(batch):
        every = [split for sample in unpack(batch).samples for split in sample.splits]
        return [(split.start, split.length, split.mode) for split in every]

    for flex, dense in zip(packs(True), packs(False), strict=True):
        assert splits(flex) == splits(dense)


def test_masks_of_numbers_tell_the_same_images_in_the_same_modes(packs):
    def image_splits(batch):
        splits = [split for sample in unpack(batch).samples for split in sample.splits]
        return [(split.start, split.length, split.mode) for split in splits if split.images]

    for flex, dense in zip(packs(True), packs(False), strict=True):
        assert image_splits(flex) == image_splits(SimpleCustomBatch([dense.to_dict()]))


def test_vit_patches_are_put_together_into_the_picture_they_were_cut_from(batches):
    for batch in batches:
        patches = [patchify(normalised(image), 14) for image in images_of(batch, Tower.VIT)]
        torch.testing.assert_close(torch.cat(patches), batch.packed_vit_tokens, atol=1e-6, rtol=0)


def test_vae_images_lose_their_padding_and_nothing_else(batches):
    for batch in (batch for batch in batches if "padded_images" in batch.to_dict()):
        images = images_of(batch, Tower.VAE)
        for padded_CHW, grid, image in zip(
            batch.padded_images, batch.patchified_vae_latent_shapes, images, strict=True
        ):
            assert image.grid == tuple(grid)
            height, width = image.pixels_HWC.shape[:2]
            assert (height, width) == (grid[0] * 16, grid[1] * 16)
            torch.testing.assert_close(normalised(image), padded_CHW[:, :height, :width], atol=1e-6, rtol=0)


def test_losses_stand_where_the_batch_has_them(batches):
    for batch in batches:
        parts = batch.to_dict()
        splits = [split for sample in unpack(batch).samples for split in sample.splits]
        labelled = [(token.row, token.label) for split in splits for token in split.texts if token.label is not None]
        rows, labels = (parts.get(name, torch.empty(0)).tolist() for name in ("ce_loss_indexes", "packed_label_ids"))
        assert labelled == list(zip(rows, labels, strict=True))
        noised = [image for split in splits for image in split.images if image.time is not None]
        predicted = [row for image in noised for row in range(image.first_row, image.first_row + image.tokens)]
        assert predicted == parts.get("mse_loss_indexes", torch.empty(0)).tolist()
        assert all(0 < image.time < 1 for image in noised)


def test_a_label_is_the_token_that_comes_next(batches, tokenizer):
    for batch in batches:
        for split in (split for sample in unpack(batch).samples for split in sample.splits):
            after = {token.row: token.id for token in split.texts}
            assert all(after[token.row + 1] == token.label for token in split.texts if token.label is not None)


def test_samples_name_their_dataset(batches):
    for batch in batches:
        pack = unpack(batch)
        assert [sample.dataset for sample in pack.samples] == [
            index["dataset_name"] for index in batch.batch_data_indexes
        ]
