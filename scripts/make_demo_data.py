"""Make the demo data: scenes of coloured shapes with true captions, edits, questions and clips.

    python scripts/make_demo_data.py                                  # data/demo, for sources=demo
    python scripts/make_demo_data.py data/bench --preset bench        # photo-sized pictures, for sources=bench

The same options always make the same bytes; data that is already there is left alone.
"""

import argparse
import logging
from dataclasses import replace
from pathlib import Path

from automodel_data.errors import DataError
from recipes.demo_data import PRESETS, DemoDataConfig, ensure_demo_data
from recipes.demo_data.flaws import MIN_ROWS

MIN_IMAGE_SIZE = 64


def main() -> None:
    """Make what the command line asks for and say where it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=Path, default=Path("data/demo"), help="folder to make (data/demo)")
    parser.add_argument("--preset", choices=sorted(PRESETS), default="demo")
    parser.add_argument("--seed", type=int, help="another seed, other scenes")
    parser.add_argument("--rows", type=_at_least(MIN_ROWS), help="training rows of each packed source, half for edit")
    parser.add_argument("--pairs", type=_at_least(1), help="training pairs for latent caches")
    parser.add_argument(
        "--image-size", type=_at_least(MIN_IMAGE_SIZE), help="longest edge in pixels; the shortest is half"
    )
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        root = ensure_demo_data(options.root, _config(options))
    except DataError as error:
        parser.error(str(error))
    size_MB = sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) / 1e6
    print(f"{root}: {size_MB:.1f} MB; broken rows are listed in {root / 'manifest.json'}")


def _at_least(least: int):
    def number(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"{text} is too few; at least {least}")
        return int(text)

    return number


def _config(options: argparse.Namespace) -> DemoDataConfig:
    config = PRESETS[options.preset]
    if options.seed is not None:
        config = replace(config, seed=options.seed)
    if options.rows is not None:
        config = replace(config, t2i_rows=options.rows, vlm_rows=options.rows, edit_rows=options.rows // 2)
    if options.pairs is not None:
        config = replace(config, pairs=options.pairs)
    if options.image_size is not None:
        config = replace(config, min_edge=options.image_size // 2, max_edge=options.image_size)
    return config


if __name__ == "__main__":
    main()
