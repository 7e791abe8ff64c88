"""Pictures of a run: its loss curves, and a pack as it stands.

::

    metrics.jsonl -> loss_curve.draw_loss_curve -> PNG
    batch -> unpack.unpack -> samples, splits, tokens, images -> pack.draw_pack -> PNG
"""

from recipes.pictures.loss_curve import draw_loss_curve
from recipes.pictures.pack import draw_pack

__all__ = ["draw_loss_curve", "draw_pack"]
