"""Demo data: scenes of coloured shapes, with texts that are true of them, in the formats that the datasets read.

::

    scenes -> captions, edits, questions   what there is and what can truly be said of it
           -> pictures, video              what it looks like, as files
           -> parquet_rows, conversations, pairs   rows: text-to-image and edit, VLM, cached path
    make.ensure_demo_data                  all of it below one folder, once

A scene belongs to the training or to the held-out split by its own hash, so the splits share no picture.
"""

from recipes.demo_data.config import BENCH, DEMO, PRESETS, DemoDataConfig
from recipes.demo_data.make import ensure_demo_data

__all__ = ["BENCH", "DEMO", "PRESETS", "DemoDataConfig", "ensure_demo_data"]
