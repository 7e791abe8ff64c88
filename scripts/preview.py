"""Show packs as one HTML page, with the overrides of train.py: ``scripts/preview.py recipe=bagel preview.packs=5``."""

from pathlib import Path

import hydra
from omegaconf import DictConfig

from recipes import config, launch
from recipes.preview.config import PreviewRun, check
from recipes.preview.page import render
from recipes.preview.run import preview


@hydra.main(version_base="1.3", config_path="../conf", config_name="preview")
def main(composed: DictConfig) -> None:
    """Draw packs and write the page."""
    with launch.refusals_told():
        run, _ = config.load(composed, PreviewRun)
        check(run)
        page = preview(run)
    path = Path(run.preview.path or launch.run_directory() / "preview.html")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(page), encoding="utf-8")
    print(path)


if __name__ == "__main__":
    launch.main(main, PreviewRun)
