"""The page: a template, its style and its script, all in one file."""

import json

from jinja2 import Environment, PackageLoader, StrictUndefined

from recipes.pictures.tiles import LOSS_COLOUR, MODE_COLOURS, MODE_TINTS
from recipes.preview.mask import EARLIER_COLOUR
from recipes.preview.views import PackView, PageView

COLOURS = {
    **MODE_COLOURS,
    **{f"{mode}-tint": colour for mode, colour in MODE_TINTS.items()},
    "loss": LOSS_COLOUR,
    "earlier": EARLIER_COLOUR,
}
MEANINGS = {
    "causal": "sees what came before",
    "full": "also sees itself whole",
    "noise": "like full, and nobody behind sees it",
}


def render(view: PageView) -> str:
    """Return the HTML of a page."""
    environment = Environment(
        loader=PackageLoader("recipes.preview", package_path=""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["splits"] = _splits
    template = environment.get_template("page.html.jinja")
    return template.render(page=view, colours=COLOURS, meanings=MEANINGS)


def _splits(pack: PackView) -> str:
    """Return ``[start, length, mode, sample]`` of every split, for the script."""
    return json.dumps(
        [[split.start, split.length, split.mode, sample.number] for sample in pack.samples for split in sample.splits]
    )
