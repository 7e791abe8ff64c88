"""Where every token of a sample goes, by hand-computed examples."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from automodel_data.errors import DataError, SkipSample
from automodel_data.multimodal.pack_builder import LayoutRules, SampleLayout, SpecialTokens, lay_out
from automodel_data.multimodal.plan import ClipPosition, Item, Sample, TensorImage, TextItem, VaeItem, VitItem
from automodel_data.multimodal.utils import len2weight
from automodel_data.randomness import Randomness

BOS, EOS, SOI, EOI = 301, 302, 303, 304
NEVER, ALWAYS = 0.0, 1.0


def rules(text: float = NEVER, vit: float = NEVER, vae: float = NEVER, interpolate: bool = False) -> LayoutRules:
    return LayoutRules(
        tokens=SpecialTokens(bos_token_id=BOS, eos_token_id=EOS, start_of_image=SOI, end_of_image=EOI),
        text_cond_dropout_prob=text,
        vit_cond_dropout_prob=vit,
        vae_cond_dropout_prob=vae,
        vae_image_downsample=16,
        max_latent_size=8,
        vit_patch_size=14,
        max_num_patch_per_side=10,
        interpolate_pos=interpolate,
    )


def laid_out(items: Sequence[Item], rules: LayoutRules, seed: int = 0) -> SampleLayout:
    return lay_out(Sample(plan=list(items)), rules, Randomness(seed))


def text(*ids: int, loss: bool = False, cfg: bool = False, label: int | None = None) -> TextItem:
    return TextItem(
        ids=list(ids), loss=loss, enable_cfg=cfg, special_token_loss=label is not None, special_token_label=label
    )


def vit(rows: int, columns: int, cfg: bool = False, **options: Any) -> VitItem:
    return VitItem(picture=TensorImage(torch.zeros(3, 14 * rows, 14 * columns)), enable_cfg=cfg, **options)


def vae(rows: int, columns: int, loss: bool = False, cfg: bool = False, **options: Any) -> VaeItem:
    return VaeItem(picture=TensorImage(torch.zeros(3, 16 * rows, 16 * columns)), loss=loss, enable_cfg=cfg, **options)


def clip(deltas: Sequence[int], loss: bool = False, cfg: bool = False) -> list[VaeItem]:
    """Return the frames, one token each, of a clip with these steps between them."""
    return [
        vae(1, 1, loss, cfg, clip=ClipPosition(starts=number == 0, ends=delta is None, frame_delta=delta))
        for number, delta in enumerate([*deltas, None])
    ]


def positions(layout: SampleLayout) -> list[int]:
    return np.concatenate([[], *layout.positions]).astype(int).tolist()


def splits(layout: SampleLayout) -> list[tuple[int, str]]:
    return [(split.length, split.mode) for split in layout.splits]


def labels(layout: SampleLayout) -> list[tuple[int, int, float]]:
    return [(label.row, label.token, label.weight) for label in layout.labels]


# texts ------------------------------------------------------------------------------------------------------------


def test_a_text_stands_between_bos_and_eos_on_consecutive_positions() -> None:
    layout = laid_out([text(5, 6, 7)], rules())
    assert (layout.text_ids, layout.text_rows) == ([BOS, 5, 6, 7, EOS], [0, 1, 2, 3, 4])
    assert (positions(layout), splits(layout), labels(layout)) == ([0, 1, 2, 3, 4], [(5, "causal")], [])


def test_a_text_with_loss_predicts_its_ids_and_eos_weighted_by_their_number() -> None:
    layout = laid_out([text(5, 6, 7, loss=True), text(8, loss=True)], rules())
    four, two = len2weight(4), len2weight(2)
    assert labels(layout) == [
        (0, 5, four),
        (1, 6, four),
        (2, 7, four),
        (3, EOS, four),
        (5, 8, two),
        (6, EOS, two),
    ]


def test_an_empty_text_with_loss_predicts_eos() -> None:
    assert labels(laid_out([text(loss=True)], rules())) == [(0, EOS, 1.0)]


def test_a_closing_token_with_a_label_has_loss_of_weight_one() -> None:
    layout = laid_out(
        [text(5, loss=True, label=77), vit(1, 1, special_token_loss=True, special_token_label=78)], rules()
    )
    assert labels(layout) == [(0, 5, len2weight(2)), (1, EOS, len2weight(2)), (2, 77, 1.0), (5, 78, 1.0)]


def test_a_text_dropped_as_a_condition_advances_nothing() -> None:
    layout = laid_out([text(1, 2, cfg=True), text(5)], rules(text=ALWAYS))
    assert (layout.text_ids, positions(layout), splits(layout)) == ([BOS, 5, EOS], [0, 1, 2], [(3, "causal")])


# images -----------------------------------------------------------------------------------------------------------


def test_the_worked_example_of_an_edit() -> None:
    layout = laid_out([vae(2, 3), vit(2, 3), text(5, 6, 7), vae(2, 3, loss=True)], rules())
    assert positions(layout) == [0] * 8 + [1] * 8 + [2, 3, 4, 5, 6] + [7] * 8
    assert splits(layout) == [(8, "full"), (8, "full"), (5, "causal"), (8, "noise")]
    assert layout.text_ids == [SOI, EOI, SOI, EOI, BOS, 5, 6, 7, EOS, SOI, EOI]
    assert layout.text_rows == [0, 7, 8, 15, 16, 17, 18, 19, 20, 21, 28]
    assert [(image.first_row, image.grid) for image in layout.vit_images] == [(9, (2, 3))]
    assert [(image.first_row, image.grid) for image in layout.vae_images] == [(1, (2, 3)), (22, (2, 3))]
    assert [image.timestep for image in layout.vae_images] == [None, float(np.random.RandomState(0).randn())]


def test_an_image_with_loss_does_not_advance_the_position_and_its_clean_copy_shares_it() -> None:
    layout = laid_out([vae(1, 1, loss=True), vae(1, 1), text(5)], rules())
    assert positions(layout) == [0, 0, 0, 0, 0, 0, 1, 2, 3]


@pytest.mark.parametrize(
    ("image", "dropped"), [(vit(2, 2, cfg=True), {"vit": ALWAYS}), (vae(2, 2, cfg=True), {"vae": ALWAYS})]
)
def test_an_image_dropped_as_a_condition_still_advances_the_position(image: Item, dropped: dict[str, float]) -> None:
    layout = laid_out([image, text(5)], rules(**dropped))
    assert (positions(layout), splits(layout), layout.images) == ([1, 2, 3], [(3, "causal")], [])


def test_an_image_for_the_understanding_tower_is_never_noised() -> None:
    assert splits(laid_out([vit(1, 1, loss=True)], rules())) == [(3, "full")]


# dropout ----------------------------------------------------------------------------------------------------------


def test_only_conditions_draw_for_dropout_and_each_draws_once() -> None:
    rng = Randomness(1)
    items = [text(5, cfg=True), text(6), vit(1, 1, cfg=True), vae(1, 1), vae(1, 1, cfg=True)]
    with rng.recording() as tape:
        lay_out(Sample(plan=items), rules(), rng)
    assert len(tape) == 3


@pytest.mark.parametrize("seed", range(6))
def test_a_condition_is_dropped_when_its_draw_lies_below_its_probability(seed: int) -> None:
    layout = laid_out(
        [text(5, cfg=True), vit(1, 1, cfg=True), vae(1, 1, cfg=True), text(9)], rules(0.5, 0.4, 0.6), seed
    )
    rng = Randomness(seed)
    kept = [rng.uniform() >= probability for probability in (0.5, 0.4, 0.6)]
    assert [5 in layout.text_ids, bool(layout.vit_images), bool(layout.vae_images)] == kept


def test_a_sample_of_which_nothing_is_left_is_skipped() -> None:
    with pytest.raises(SkipSample, match="nothing left"):
        laid_out([text(5, cfg=True), vit(1, 1, cfg=True)], rules(text=ALWAYS, vit=ALWAYS))
    with pytest.raises(SkipSample, match="nothing left"):
        laid_out([], rules())


# clips ------------------------------------------------------------------------------------------------------------


def test_a_clip_with_loss_is_one_full_split_with_one_timestep_and_positions_by_its_steps() -> None:
    layout = laid_out([text(1), *clip([2, 3], loss=True), text(2)], rules())
    assert splits(layout) == [(3, "causal"), (9, "full"), (3, "causal")]
    assert positions(layout) == [0, 1, 2] + [3] * 3 + [5] * 3 + [8] * 3 + [8, 9, 10]
    assert [image.timestep for image in layout.vae_images] == [float(np.random.RandomState(0).randn())] * 3


def test_a_clean_clip_is_one_full_split_without_timesteps() -> None:
    layout = laid_out([*clip([2], cfg=True), text(2)], rules())
    assert splits(layout) == [(6, "full"), (3, "causal")]
    assert positions(layout) == [0] * 3 + [2] * 3 + [3, 4, 5]
    assert [image.timestep for image in layout.vae_images] == [None, None]


def test_a_clip_of_one_frame_with_loss_is_noised() -> None:
    assert splits(laid_out(clip([], loss=True), rules())) == [(3, "noise")]


def test_a_predicted_clip_and_its_clean_copy_are_two_splits() -> None:
    layout = laid_out([*clip([4], loss=True), *clip([4])], rules())
    assert splits(layout) == [(6, "full"), (6, "full")]
    assert positions(layout) == [0] * 3 + [4] * 3 + [4] * 3 + [8] * 3
    assert [image.timestep is None for image in layout.vae_images] == [False, False, True, True]


@pytest.mark.parametrize("seed", range(8))
def test_one_draw_decides_for_a_whole_clip(seed: int) -> None:
    rng = Randomness(seed)
    with rng.recording() as tape:
        layout = lay_out(Sample(plan=[*clip([1, 1, 1], cfg=True), text(5)]), rules(vae=0.5), rng)
    assert len(tape) == 1
    if tape[0] < 0.5:
        assert (splits(layout), positions(layout)) == ([(3, "causal")], [4, 5, 6])
    else:
        assert splits(layout) == [(12, "full"), (3, "causal")]
    assert sum(split.length for split in layout.splits) == layout.length == len(positions(layout))


def test_a_dropped_clip_leaves_the_next_one_alone() -> None:
    layout = laid_out([*clip([1], cfg=True), *clip([1], loss=True)], rules(vae=ALWAYS))
    assert splits(layout) == [(6, "full")]


# limits -----------------------------------------------------------------------------------------------------------


def test_an_image_that_does_not_divide_into_patches_is_refused() -> None:
    image = VitItem(picture=TensorImage(torch.zeros(3, 20, 28)), enable_cfg=False)
    with pytest.raises(DataError, match="20x28 does not divide into patches of 14 pixels"):
        laid_out([image], rules())


@pytest.mark.parametrize(
    ("image", "key"), [(vit(11, 1), "max_num_patch_per_side is 10"), (vae(1, 9), "max_latent_size is 8")]
)
def test_an_image_larger_than_the_position_table_is_refused_unless_positions_are_spread(image: Item, key: str) -> None:
    with pytest.raises(DataError, match=key):
        laid_out([image], rules())
    assert laid_out([image], rules(interpolate=True)).length > 2
