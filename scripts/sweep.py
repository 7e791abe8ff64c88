"""Show what a sweep has found so far: ``python scripts/sweep.py outputs/bagel/sweep_2026-01-31_12-00-00``."""

import argparse
from pathlib import Path

from recipes import sweep
from recipes.mistakes import told_in_one_line

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Print the table of a sweep; write its sweep.csv and sweep.png anew.")
    parser.add_argument("directory", type=Path, help="the sweep's directory, which holds those of its jobs")
    with told_in_one_line():
        sweep.report(parser.parse_args().directory, {})
