"""A pack as the model saw it, as a picture."""

import logging
from dataclasses import dataclass

from recipes.callbacks.base import Callback
from recipes.pictures import draw_pack
from recipes.trainer import Trainer

log = logging.getLogger(__name__)

FILE_NAME = "pack.png"


@dataclass(kw_only=True, slots=True)
class PackPicture(Callback):
    """Draw rank 0's first pack of the last step to ``pack.png`` in the run directory; for task=packed."""

    def finish(self, trainer: Trainer) -> None:
        """Draw it, unless a resumed run had no step left to take."""
        if trainer.world.leads and trainer.report is not None:
            picture = trainer.directory / FILE_NAME
            pack = trainer.report.batches[0]
            draw_pack(pack, trainer.loader.origins(pack), trainer.task.tokenizer, picture)
            log.info("a pack: %s", picture)
