"""How much demo data, how large its pictures are, and how odd its rows."""

from dataclasses import dataclass

FILES_PER_SOURCE = 4  # parquet files
ROW_GROUPS_PER_FILE = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class DemoDataConfig:
    """What to make; the same values always make the same bytes.

    Args:
        t2i_rows, edit_rows, vlm_rows, pairs: Rows of each source in the training split.
        heldout_rows: Rows of each source in the held-out split (no more than the training split has).
        min_edge, max_edge: Bounds of a picture's edges in pixels.
        grain: Add photo-like clouds and noise and write JPEG only, so that decoding costs what photos cost.
        oddities: Include what real data has: rare encodings, system turns, and a few broken rows.
    """

    seed: int = 0
    t2i_rows: int = 240
    edit_rows: int = 120
    vlm_rows: int = 240
    pairs: int = 200
    heldout_rows: int = 32
    min_edge: int = 128
    max_edge: int = 256
    grain: bool = False
    oddities: bool = True


DEMO = DemoDataConfig()
BENCH = DemoDataConfig(
    t2i_rows=64,
    edit_rows=32,
    vlm_rows=64,
    pairs=0,
    heldout_rows=8,
    min_edge=1024,
    max_edge=1536,
    grain=True,
    oddities=False,
)
PRESETS = {"demo": DEMO, "bench": BENCH}
