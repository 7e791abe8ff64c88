import torch

from recipes.models.bagel.latents import add_noise, patchify, shift_time, unpatchify


def test_tokens_run_row_by_row_and_channels_fastest_inside_a_token():
    latent = torch.arange(2 * 4 * 6).float().view(2, 4, 6)
    tokens = patchify(latent[None], [(2, 3)], 2)
    assert tokens.shape == (6, 8)
    second_token = [latent[c, row, column] for row in (0, 1) for column in (2, 3) for c in (0, 1)]
    assert tokens[1].tolist() == second_token
    assert tokens[3, 0] == latent[0, 2, 0]


def test_padding_is_cut_off_and_images_follow_each_other():
    large, small = torch.ones(16, 8, 8), torch.zeros(16, 8, 8)
    small[:, :4, :6] = 2
    tokens = patchify(torch.stack([large, small]), [(4, 4), (2, 3)], 2)
    assert tokens.shape == (16 + 6, 64)
    assert (tokens[:16] == 1).all()
    assert (tokens[16:] == 2).all()


def test_unpatchify_undoes_patchify(seeded):
    latent = torch.randn(16, 6, 10, generator=seeded(0))
    assert torch.equal(unpatchify(patchify(latent[None], [(3, 5)], 2), (3, 5), 2), latent)


def test_no_images_are_no_tokens():
    assert patchify(torch.empty(0, 16, 1, 1), [], 2).shape == (0, 64)


def test_shifting_keeps_the_ends_and_moves_the_middle_towards_noise():
    times = shift_time(torch.tensor([0.0, 0.5, 1.0]), 3.0)
    assert times.tolist() == [0.0, 0.75, 1.0]
    assert shift_time(torch.tensor(0.3), 1.0) == torch.tensor(0.3)


def test_a_condition_is_not_noised_at_all(seeded):
    clean, noise = torch.randn(2, 5, 64, generator=seeded(0))
    time = shift_time(torch.full((5,), -torch.inf).sigmoid(), 3.0)
    assert torch.equal(add_noise(clean, noise, time), clean)


def test_noise_is_added_along_a_straight_line(seeded):
    clean, noise = torch.randn(2, 1, 64, generator=seeded(0))
    torch.testing.assert_close(add_noise(clean, noise, torch.tensor([0.25])), 0.75 * clean + 0.25 * noise)
