"""What ``scripts/preview.py`` adds to a run's config."""

from dataclasses import dataclass, field

from recipes.config import RunConfig
from recipes.mistakes import ConfigError


@dataclass(kw_only=True, slots=True)
class PreviewConfig:
    """Which packs to show, and where."""

    packs: int = 3
    heldout: bool = False  # those of validation.data instead of data
    image_edge: int = 320  # longest edge of a picture in the page, in pixels
    path: str | None = None  # HTML file; null: preview.html in the run directory


@dataclass(kw_only=True, slots=True)
class PreviewRun(RunConfig):
    """A run as for training, and which of its packs to show."""

    preview: PreviewConfig = field(default_factory=PreviewConfig)


def check(run: PreviewRun) -> None:
    """Refuse what cannot be shown.

    Raises:
        ConfigError: Naming the key and its value.
    """
    for name in ("packs", "image_edge"):
        value = getattr(run.preview, name)
        if value < 1:
            raise ConfigError(f"preview.{name} ({value}) must be at least 1")
    if run.preview.heldout and run.validation.data is None:
        raise ConfigError("preview.heldout (true) needs held-out rows: set validation.data")
