from itertools import islice

import pytest
from PIL import Image
from transformers import AutoTokenizer

from automodel_data.multimodal.collate_fns import SimpleCustomBatch
from automodel_data.multimodal.datasets import BagelDatasetConfig
from automodel_data.multimodal.utils import add_special_tokens
from recipes.pictures.unpack import PackedSample, unpack

PATCHES = {"image_stride": 14, "max_image_size": 252, "min_image_size": 112, "max_pixels": 200_000}


def conversations(demo_root, image_backend: str) -> list[tuple[PackedSample, list[str]]]:
    """Return packed samples with a picture each, with their texts decoded again."""
    tokenizer, special_tokens, _ = add_special_tokens(AutoTokenizer.from_pretrained(demo_root / "tokenizer"))
    vlm = demo_root / "train" / "vlm"
    config = BagelDatasetConfig(
        grouped_datasets={
            "vlm_sft": {
                "dataset_names": ["vlm"],
                "image_transform_args": PATCHES,
                "frame_sampler_args": {"max_num_frames": 4, "min_num_frames": 3},
                "is_mandatory": False,
                "weight": 1,
                "num_used_data": [240],
            }
        },
        dataset_info={"vlm_sft": {"vlm": {"data_dir": str(vlm / "images"), "jsonl_path": str(vlm / "rows.jsonl")}}},
        expected_num_tokens=2000,
        max_num_tokens=2400,
        max_num_tokens_per_sample=2000,
        prefer_buffer_before=1000,
        vit_cond_dropout_prob=0.0,
        use_flex=True,
        image_backend=image_backend,
    )
    packs = islice(config.build(tokenizer, special_tokens, rank=0, world_size=1, num_workers=0, global_seed=0), 12)
    samples = [sample for pack in packs for sample in unpack(SimpleCustomBatch([pack])).samples]
    alone = [sample for sample in samples if sum(len(split.images) for split in sample.splits) == 1]
    return [
        (sample, [tokenizer.decode([t.id for t in s.texts][1:-1]) for s in sample.splits if not s.images])
        for sample in alone
    ]


@pytest.mark.parametrize("image_backend", ["pillow", "torchvision"])
def test_answers_are_still_true_of_what_the_model_is_given(demo_root, image_backend, look, answer):
    checked = 0
    for sample, texts in conversations(demo_root, image_backend):
        (image,) = [image for split in sample.splits for image in split.images]
        view = look(Image.fromarray(image.pixels_HWC))
        turns = texts[1:] if texts[0].startswith("You look at") else texts
        for question, said in zip(turns[::2], turns[1::2], strict=True):
            assert answer(view, question) == said
            checked += 1
    assert checked > 100
