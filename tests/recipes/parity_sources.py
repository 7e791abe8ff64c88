"""The parity corpora as a choice of ``sources``, written to a folder of the user's own."""

from pathlib import Path

INPUTS = Path(__file__).parents[1] / "data/parity/inputs"

_SPLIT = """
  t2i_pretrain: {t2i: {data_dir: INPUTS/t2i}}
  unified_edit: {edit: {data_dir: INPUTS/edit}}
  vlm_sft: {vlm: {data_dir: INPUTS/vlm/images, jsonl_path: INPUTS/vlm/train.jsonl}}
"""
_COUNTS = "{t2i_pretrain: [4], unified_edit: [4], vlm_sft: [12]}"


def write_sources(folder: Path) -> Path:
    """Write ``sources/parity.yaml`` below ``folder``, which is then given as ``--config-dir``."""
    (folder / "sources").mkdir(parents=True)
    text = f"tokenizer: INPUTS/tokenizer\ntrain:{_SPLIT}heldout:{_SPLIT}"
    text += f"num_used_data:\n  train: {_COUNTS}\n  heldout: {_COUNTS}\n"
    (folder / "sources/parity.yaml").write_text(text.replace("INPUTS", str(INPUTS)))
    return folder
