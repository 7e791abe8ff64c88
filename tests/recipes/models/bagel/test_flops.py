from dataclasses import replace

from recipes.models.bagel import TokenFlops


def test_a_trained_weight_costs_six_and_a_frozen_one_two(tiny_config, seeded):
    trained = TokenFlops.of(tiny_config.build(generator=seeded(0)))
    frozen = TokenFlops.of(replace(tiny_config, freeze_und=True).build(generator=seeded(0)))
    assert trained.label == frozen.label == 6 * 32 * 40
    assert (frozen.und_row, frozen.patch) == (trained.und_row // 3, trained.patch // 3)
    assert frozen.gen_row == trained.gen_row


def test_both_experts_are_alike_but_for_the_ends_of_the_generation_side(tiny_config, seeded):
    model = tiny_config.build(generator=seeded(0))
    ends = sum(p.numel() for part in (model.vae2llm, model.llm2vae, model.time_embedder) for p in part.parameters())
    flops = TokenFlops.of(model)
    assert flops.gen_row - flops.und_row == 6 * ends


def test_a_pack_costs_its_rows_labels_and_squared_sample_lengths_without_padding(parity):
    flops = TokenFlops(und_row=1, gen_row=10**4, patch=10**8, label=10**11, pair=10**14)
    pairs = sum(length**2 for length in (113, 343, 163, 176, 441))
    expected = (1236 - 528) + 528 * 10**4 + 560 * 10**8 + 63 * 10**11 + pairs * 10**14
    assert flops.of_pack(parity.batch("flex")) == flops.of_pack(parity.batch("nested")) == expected
