"""What ``scripts/preview.py`` adds to a run's config."""

from dataclasses import dataclass, field

from recipes.config import RunConfig
from recipes.mistakes import ConfigError, require_at_least


@dataclass(kw_only=True, slots=True)
class PreviewConfig:
    """Which packs to show, and where.

    Args:
        packs: How many.
        heldout: Those of ``validation.data`` instead of ``data``.
        image_edge: Longest edge of a picture in the page, in pixels.
        path: An HTML file; null: ``preview.html`` in the run directory.
    """

    packs: int = 3
    heldout: bool = False
    image_edge: int = 320
    path: str | None = None


@dataclass(kw_only=True, slots=True)
class PreviewRun(RunConfig):
    """A run as for training, and which of its packs to show."""

    preview: PreviewConfig = field(default_factory=PreviewConfig)


def check(run: PreviewRun) -> None:
    """Refuse what cannot be shown.

    Raises:
        ConfigError: Naming the key and its value.
    """
    require_at_least(1, **{"preview.packs": run.preview.packs, "preview.image_edge": run.preview.image_edge})
    if run.preview.heldout and run.validation.data is None:
        raise ConfigError("preview.heldout (true) needs held-out rows: set validation.data")
