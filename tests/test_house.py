"""The design's limits hold: short files and functions, imports one way, nothing seeded or configured on import."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("automodel_data", "recipes", "scripts", "hydra_plugins")
MOST_LINES = 300
MOST_LINES_OF_A_FUNCTION = 40


def sources() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield each function's name and its lines, without signature and docstring."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            yield node.name, (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_no_file_is_longer_than_300_lines() -> None:
    long = {str(path): lines for path in sources() if (lines := len(path.read_text().splitlines())) > MOST_LINES}
    assert long == {}


def test_no_function_is_longer_than_40_lines() -> None:
    long = {
        f"{path}:{name}": lines
        for path in sources()
        for name, lines in functions(path)
        if lines > MOST_LINES_OF_A_FUNCTION
    }
    assert long == {}


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


@pytest.mark.parametrize("forbidden", ["hydra", "omegaconf", "wandb", "recipes"])
def test_the_data_package_knows_nothing_of(forbidden: str) -> None:
    guilty = [
        str(path)
        for path in (ROOT / "automodel_data").rglob("*.py")
        if any(name.split(".")[0] == forbidden for name in imported(path))
    ]
    assert guilty == []


def test_importing_the_data_package_configures_nothing() -> None:
    code = """
import random, numpy, torch
from PIL import Image, ImageFile
before = (random.getstate(), numpy.random.get_state()[1].tolist(), torch.get_rng_state().tolist(),
          Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES, torch.get_num_threads())
import automodel_data.multimodal.loader, automodel_data.multimodal.datasets, automodel_data.diffusion.loader
after = (random.getstate(), numpy.random.get_state()[1].tolist(), torch.get_rng_state().tolist(),
         Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES, torch.get_num_threads())
assert before == after
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
