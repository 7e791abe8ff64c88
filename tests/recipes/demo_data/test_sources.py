from dataclasses import fields
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from recipes.config import SourcesConfig

SOURCES = Path(__file__).parents[3] / "conf" / "sources"


def load(name: str) -> dict:
    config = OmegaConf.create({"sources": OmegaConf.load(SOURCES / f"{name}.yaml")})
    return OmegaConf.to_container(config, resolve=True)["sources"]


def test_the_demo_sources_name_folders_that_exist_and_counts_that_are_there(demo_root):
    sources = load("demo")

    def inside(path: str) -> Path:
        return demo_root / Path(path).relative_to(sources["root"])

    assert (inside(sources["tokenizer"]) / "tokenizer.json").is_file()
    for split in ("train", "heldout"):
        rows, counts = sources[split], sources["num_used_data"][split]
        for group, name in (("t2i_pretrain", "t2i"), ("unified_edit", "edit")):
            assert [len(list(inside(rows[group][name]["data_dir"]).glob("*.parquet")))] == counts[group]
        assert inside(rows["vlm_sft"]["vlm"]["data_dir"]).is_dir()
        assert [len(inside(rows["vlm_sft"]["vlm"]["jsonl_path"]).read_text().splitlines())] == counts["vlm_sft"]
        assert (inside(sources[f"{split}_pairs"]) / "pairs.jsonl").is_file()


@pytest.mark.parametrize("name", ["bench", "example"])
def test_other_sources_have_the_same_keys_where_they_have_any(name):
    demo, other = load("demo"), load(name)
    assert set(other) <= {field.name for field in fields(SourcesConfig)}
    assert other["train"].keys() == demo["train"].keys()
    assert other["num_used_data"]["train"].keys() == demo["num_used_data"]["train"].keys()
