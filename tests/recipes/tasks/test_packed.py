"""The two losses of a pack against sums by hand, on real packs of the demo data's kind."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hydra import compose, initialize_config_dir

from recipes import config, distributed, launch
from recipes.mistakes import ConfigError
from recipes.tasks.packed import TokenLosses, by_group

ROOT = Path(__file__).parents[3]
INPUTS = ROOT / "tests/data/parity/inputs"


@pytest.fixture(scope="module")
def run() -> config.RunConfig:
    config.register()
    launch.register_resolvers()
    sources = {
        "sources.tokenizer": INPUTS / "tokenizer",
        "sources.train.t2i_pretrain.t2i.data_dir": INPUTS / "t2i",
        "sources.train.unified_edit.edit.data_dir": INPUTS / "edit",
        "sources.train.vlm_sft.vlm.data_dir": INPUTS / "vlm/images",
        "sources.train.vlm_sft.vlm.jsonl_path": next((INPUTS / "vlm").glob("*.jsonl")),
        "sources.num_used_data.train.vlm_sft": "[8]",
        "data.num_workers": 0,
    }
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return config.load(compose("train", [f"{key}={value}" for key, value in sources.items()]))[0]


@pytest.fixture(scope="module")
def task(run):
    return run.task.build(run.model, torch.device("cpu"))


@pytest.fixture(scope="module")
def packs(run, task) -> list:
    world = distributed.start(timeout_minutes=1)
    stream = iter(task.loader(run.data, world, seed=0))
    return [next(stream) for _ in range(3)]


@pytest.fixture(scope="module")
def model(run):
    torch.manual_seed(0)
    return run.model.build()


def losses(task, model, pack):
    return task.losses(model, pack, torch.Generator().manual_seed(0))


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused_before_that_is_built(run) -> None:
    small = replace(run.model, llm=replace(run.model.llm, vocab_size=400))
    with pytest.raises(ConfigError) as refusal:
        run.task.build(small, torch.device("cpu"))
    line = r"task.tokenizer \(.*/tokenizer\) has ids up to (\d+), model.llm.vocab_size is 400: raise that to (\d+)"
    largest, least = map(int, re.match(line, str(refusal.value)).groups())
    assert least == largest + 1
    run.task.build(replace(run.model, llm=replace(run.model.llm, vocab_size=least)), torch.device("cpu"))


def test_counts_are_known_before_the_forward_pass(task, packs) -> None:
    for pack in packs:
        ce, mse = task.counts(pack).tolist()
        assert (ce, mse) == (len(pack.packed_label_ids), len(pack.mse_loss_indexes))


def test_sums_are_those_of_the_models_own_losses(task, model, packs, monkeypatch) -> None:
    outputs = []
    terms = losses(task, lambda *a, **k: outputs.append(model(*a, **k)) or outputs[-1], packs[0])
    (output,) = outputs
    assert terms.sums.tolist() == pytest.approx([output.ce.sum().item(), output.mse.mean(-1).sum().item()], rel=1e-5)
    assert terms.sums.requires_grad


def test_groups_add_up_to_the_whole_and_text_to_images_has_no_labels(task, model, packs) -> None:
    for pack in packs:
        terms = losses(task, model, pack)
        whole = sum(terms.groups.values())
        torch.testing.assert_close(whole[:, 0], terms.sums.detach())
        assert whole[:, 1].tolist() == task.counts(pack).tolist()
        if "t2i_pretrain" in terms.groups:
            assert terms.groups["t2i_pretrain"][0].tolist() == [0, 0]


def test_rows_belong_to_the_sample_that_covers_them() -> None:
    ce = TokenLosses(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([1.0, 1.0, 0.5]), torch.tensor([0, 4, 5]))
    mse = TokenLosses(torch.tensor([8.0]), torch.ones(1), torch.tensor([9]))
    table = by_group(["vlm", "vlm", "t2i"], [2, 3, 5, 90], (ce, mse))  # the last length is padding
    assert table["vlm"].tolist() == [[3.0, 2.0], [0.0, 0.0]]
    assert table["t2i"].tolist() == [[2.0, 0.5], [8.0, 1.0]]


def test_weighed_labels_count_by_their_weights(run, model, packs) -> None:
    run.task.weigh_tokens = True
    weighing = run.task.build(run.model, torch.device("cpu"))
    run.task.weigh_tokens = False
    pack = packs[0]
    assert weighing.counts(pack)[0].item() == pytest.approx(pack.ce_loss_weights.sum().item())
    outputs = []
    terms = losses(weighing, lambda *a, **k: outputs.append(model(*a, **k)) or outputs[-1], pack)
    assert terms.sums[0].item() == pytest.approx((outputs[0].ce * pack.ce_loss_weights).sum().item(), rel=1e-5)


def test_every_parameter_gets_a_gradient_from_a_pack_of_text_alone(task, model, packs) -> None:
    parts = packs[0].to_dict()
    rows = len(packs[0].packed_text_ids)
    text = {
        "sequence_length": rows,
        "sample_lens": [rows, 0],  # the padding that flex attention asks for
        "split_lens": [rows, 0],
        "attn_modes": ["causal", "causal"],
        "packed_text_ids": parts["packed_text_ids"],
        "packed_text_indexes": torch.arange(rows),
        "packed_position_ids": torch.arange(rows),
        "packed_label_ids": parts["packed_text_ids"][1:3],
        "ce_loss_indexes": torch.arange(2),
        "ce_loss_weights": torch.ones(2),
        "batch_data_indexes": [{"dataset_name": "vlm_sft"}],
    }
    pack = SimpleNamespace(**text, to_dict=lambda: text)
    terms = losses(task, model, pack)
    terms.sums.sum().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []
    assert terms.sums[1].item() == 0
    model.zero_grad()


def test_a_folder_without_a_tokenizer_is_refused(run, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(run.task, "tokenizer", str(tmp_path))
    with pytest.raises(ConfigError, match=r"task.tokenizer \(.*\): there is no tokenizer; set sources.tokenizer"):
        run.task.build(run.model, torch.device("cpu"))


def test_data_in_no_packs_is_refused(run, monkeypatch) -> None:
    class Pairs:
        def build(self, dp_rank: int, dp_world_size: int) -> None: ...

    monkeypatch.setattr(run, "data", Pairs())
    with pytest.raises(
        ConfigError, match=r"data \(Pairs\) does not feed task=packed: its build\(\) takes dp_rank, dp_world_size, not"
    ):
        run.task.check(run)
