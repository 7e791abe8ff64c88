from dataclasses import replace

import pytest
import torch

from automodel_data.errors import DataError
from automodel_data.multimodal.plan import Sample
from recipes.models.bagel import PackedInputs
from recipes.models.bagel.sample import ImageSampler, answer, blank_target
from recipes.models.vae import DctVae


def learn(model, inputs: PackedInputs, steps: int, generator: torch.Generator) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(steps):
        if inputs.latents is not None:
            inputs = _at_other_times(inputs, generator)
        ce, mse = model(inputs, generator=generator)
        (ce.sum() / max(len(ce), 1) + mse.sum() / max(mse.numel(), 1)).backward()
        optimizer.step()
        optimizer.zero_grad()


def _at_other_times(inputs: PackedInputs, generator: torch.Generator) -> PackedInputs:
    drawn = torch.randn(inputs.latents.time_logits.shape, generator=generator)
    logits = torch.where(inputs.latents.time_logits.isfinite(), drawn, -torch.inf)
    return replace(inputs, latents=replace(inputs.latents, time_logits=logits))


def test_captions_give_the_pictures_that_were_learned_with_them(tiny_config, pack, rules, pictures, seeded):
    model, generator = tiny_config.build(generator=seeded(0)), seeded(1)
    captions = list(pictures)
    learn(model, pack(*[[*pair] for pair in pictures.values()] * 4), 100, generator)

    asked = [Sample(plan=[pictures[caption][0], blank_target(16, 16)]) for caption in captions]
    drawn = ImageSampler(steps=10, guidance=1.0).images(model, DctVae(), asked, rules, generator)

    for caption, image in zip(captions, drawn, strict=True):
        distances = {other: (image - pictures[other][1].picture.pixels_CHW).square().mean() for other in captions}
        assert min(distances, key=distances.get) == caption
        assert distances[caption] < 0.4


def test_guidance_moves_away_from_the_picture_without_texts(tiny_config, rules, pictures, seeded):
    model = tiny_config.build(generator=seeded(0))
    torch.nn.init.normal_(model.llm2vae.weight, generator=seeded(2))
    asked = [Sample(plan=[pictures["dark"][0], blank_target(32, 16)])]
    images = [
        ImageSampler(steps=2, guidance=guidance).images(model, DctVae(), asked, rules, seeded(3))[0]
        for guidance in (0.0, 1.0, 1.0)
    ]
    assert images[0].shape == (3, 32, 16)
    assert torch.equal(images[1], images[2])
    assert not torch.equal(images[0], images[1])


def test_an_edit_gives_one_picture_and_keeps_its_source(tiny_config, rules, items, seeded):
    model = tiny_config.build(generator=seeded(0))
    source, look, instruction = items["edit"][:3]
    asked = [Sample(plan=[source, look, instruction, blank_target(32, 48)])]
    images = ImageSampler(steps=2).images(model, DctVae(), asked, rules, seeded(0))
    assert [image.shape for image in images] == [(3, 32, 48)]


def test_questions_give_the_answers_that_were_learned_with_them(tiny_config, pack, rules, questions, seeded):
    model, generator = tiny_config.build(generator=seeded(0)), seeded(1)
    learn(model, pack(*([*asked, told] for asked, told in questions)), 40, generator)
    for asked, told in questions:
        prompt = Sample(plan=asked)
        given = answer(model, DctVae(), prompt, rules, max_new_tokens=8, generator=generator)
        assert given == told.ids
        assert answer(model, DctVae(), prompt, rules, max_new_tokens=1, generator=generator) == told.ids[:1]


def test_a_picture_that_does_not_fit_the_model_is_refused(tiny_config, rules, items, seeded):
    model = tiny_config.build(generator=seeded(0))
    with pytest.raises(DataError, match="max_latent_size is 8"):
        ImageSampler(steps=1).images(model, DctVae(), [Sample(plan=[blank_target(16, 160)])], rules, seeded(0))
