import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from recipes.bench import config
from recipes.bench.config import BenchConfig
from recipes.mistakes import ConfigError

OURS = "automodel_data.multimodal.datasets.BagelDatasetConfig"
PEER = f"{__name__}.OlderConfig"

Settings = Callable[..., BenchConfig]


class OlderConfig:
    """The interface as it was before there were image backends."""

    def __init__(
        self, grouped_datasets: dict, dataset_info: dict, max_num_tokens: int = 1, use_flex: bool = False
    ) -> None:
        self.grouped_datasets = grouped_datasets


def test_a_contestant_is_the_data_choice_with_its_own_changes(settings: Settings, tmp_path: Path) -> None:
    built = config.contestants(settings("data=edit", "+contestants.eight.decode_threads=8"), tmp_path)
    assert list(built) == ["pillow", "torchvision", "eight"]
    assert [one.node["image_backend"] for one in built.values()] == ["pillow", "torchvision", "torchvision"]
    assert built["eight"].node["decode_threads"] == 8
    assert list(built["eight"].node["grouped_datasets"]) == ["unified_edit"]
    assert built["pillow"].packs == 2


def test_the_peer_gets_the_same_values_but_for_fields_it_lacks(settings: Settings, tmp_path: Path) -> None:
    peer = config.contestants(settings(f"peer._target_={PEER}", "+peer.use_flex=false"), tmp_path)["peer"]
    assert set(peer.node) == {"_target_", "grouped_datasets", "dataset_info", "max_num_tokens", "use_flex"}
    assert peer.node["max_num_tokens"] == 1728
    assert peer.node["use_flex"] is False
    assert peer.floor_node["_target_"] == OURS
    assert peer.floor_node["image_backend"] == "pillow"


def test_the_peer_is_told_the_row_groups_that_we_read_from_footers(settings: Settings, tmp_path: Path) -> None:
    peer = config.contestants(settings(f"peer._target_={PEER}"), tmp_path)["peer"]
    info = peer.node["dataset_info"]
    listed = json.loads(Path(info["unified_edit"]["edit"]["parquet_info_path"]).read_text())
    assert {Path(path).name for path in listed} == {f"edit-{number}.parquet" for number in range(4)}
    assert all(entry["num_row_groups"] >= 1 for entry in listed.values())
    assert "parquet_info_path" not in info["t2i_pretrain"]["t2i"]


def test_a_list_of_row_groups_that_is_there_is_kept(settings: Settings, tmp_path: Path) -> None:
    given = "+sources.train.unified_edit.edit.parquet_info_path=mine.json"
    peer = config.contestants(settings("data=edit", given, f"peer._target_={PEER}"), tmp_path)["peer"]
    assert peer.node["dataset_info"]["unified_edit"]["edit"]["parquet_info_path"] == "mine.json"


def test_without_a_target_there_is_no_peer(settings: Settings, tmp_path: Path) -> None:
    assert config.PEER not in config.contestants(settings(), tmp_path)


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["packs=0"], "packs (0) must be at least 1"),
        (["warmup_packs=0"], "warmup_packs (0) must be at least 1"),
        (["~contestants.pillow", "~contestants.torchvision"], "contestants is empty"),
        (["+contestants.pillow.image_backnd=pillow"], "contestants.pillow.image_backnd: no such key"),
        (["+data.dataset_config.seed=1"], "data.dataset_config.seed: no such key"),
        (["peer._target_=nowhere.Config"], "peer._target_ (nowhere.Config)"),
        ([f"peer._target_={OURS}", "+peer.data_sed=1"], "peer.data_sed: no such key"),
    ],
)
def test_a_mistake_is_told_with_its_key(settings: Settings, overrides: list[str], line: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(line)):
        settings(*overrides)
