"""Payload files are read whole or refused, whether they are small and read or large and mapped."""

from pathlib import Path
from random import Random

import pytest
import torch

from automodel_data.diffusion import payload
from automodel_data.diffusion.payload import UNREADABLE, PayloadError, read_payload


@pytest.fixture(params=[0, 2**40], ids=["mapped", "read"])
def file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(payload, "_MAPPED_FROM", request.param)
    path = tmp_path / "0.pt"
    torch.save({"latent": torch.arange(4000.0).bfloat16(), "text": "a"}, path)
    return path


def test_values_are_those_that_were_saved(file: Path) -> None:
    data = read_payload(file)
    assert data["text"] == "a"
    assert torch.equal(data["latent"], torch.arange(4000.0).bfloat16())


def test_what_is_done_to_the_values_does_not_reach_the_file(file: Path) -> None:
    read_payload(file)["latent"].zero_()
    assert read_payload(file)["latent"][-1] > 0


def test_values_outlive_their_file(file: Path) -> None:
    latent = read_payload(file)["latent"]
    file.unlink()
    assert torch.equal(latent, torch.arange(4000.0).bfloat16())


def test_the_format_before_torch_1_6_is_read(file: Path) -> None:
    torch.save({"latent": torch.ones(3)}, file, _use_new_zipfile_serialization=False)
    assert read_payload(file)["latent"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("keep", [0, 1, 2, 10, 100, 4000, -1])
def test_a_file_cut_short_is_refused_with_its_name(file: Path, keep: int) -> None:
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(PayloadError, match=f"^{file}: is truncated, or no file of torch.save") as refusal:
        read_payload(file)
    assert refusal.value.reason == UNREADABLE


def test_a_missing_file_is_refused_with_its_name(file: Path) -> None:
    file.unlink()
    with pytest.raises(PayloadError, match=f"^{file}: cannot be read: No such file") as refusal:
        read_payload(file)
    assert refusal.value.reason == UNREADABLE


def test_whatever_bytes_are_spoilt_a_file_is_read_or_refused(file: Path) -> None:
    torch.save({"latent": torch.arange(6.0), "contexts": [torch.ones(2, 3).bfloat16()], "text": "a", "ids": [1]}, file)
    whole = file.read_bytes()
    rng = Random(0)
    refused = 0
    for place in range(0, len(whole), 3):
        spoilt = bytearray(whole)
        spoilt[place] ^= 1 << rng.randrange(8)
        file.write_bytes(spoilt)
        try:
            read_payload(file)
        except PayloadError as error:
            refused += 1
            assert str(error).startswith(f"{file}: ")
            assert "\n" not in str(error)
    assert refused > 100
