"""Pictures of a run: its loss curves, and a pack as it stands; and of a sweep of runs.

::

    metrics.jsonl -> loss_curve.draw_loss_curve -> PNG
    batch -> unpack.unpack -> samples, splits, tokens, images -> pack.draw_pack -> PNG
    sweep.csv -> sweep.draw_sweep -> PNG
"""

from recipes.pictures.loss_curve import draw_loss_curve
from recipes.pictures.pack import draw_pack
from recipes.pictures.sweep import draw_sweep

__all__ = ["draw_loss_curve", "draw_pack", "draw_sweep"]
