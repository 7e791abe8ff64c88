"""Pairs for latent caches: context images, an instruction and a target; and single images with a caption.

``pairs.jsonl`` holds ``{"contexts": [name, ...], "instruction": text, "target": name}``, ``captions.jsonl``
``{"image": name, "caption": text}``; names are relative to the folder.
"""

import json
from pathlib import Path
from random import Random

from recipes.demo_data.captions import captions
from recipes.demo_data.edits import Add, apply, draw_chain, phrasings
from recipes.demo_data.pictures import Studio
from recipes.demo_data.scenes import Scene, Split, draw_scene, draw_shape

SIZES = ((160, 160), (192, 128), (128, 192))  # width, height
TWO_CONTEXTS_EVERY = 3

Row = dict[str, object]


def write_pairs(folder: Path, seed: int, studio: Studio, split: Split, pairs: int) -> None:
    """Write ``pairs`` pairs, a caption for every target, and the images."""
    folder.mkdir(parents=True)
    pair_rows, caption_rows = [], []
    for number in range(pairs):
        rng = Random(f"{seed}/{split}/pairs/{number}")
        contexts, instruction, target = _draw_pair(rng, split, number % TWO_CONTEXTS_EVERY == 0)
        size = rng.choice(SIZES)
        names = []
        for place, scene in enumerate([*contexts, target]):
            file = studio.photograph(rng, scene, size)
            names.append(f"{number:05}_{place}{file.suffix}")
            (folder / names[-1]).write_bytes(file.data)
        pair_rows.append({"contexts": names[:-1], "instruction": instruction, "target": names[-1]})
        caption_rows.append({"image": names[-1], "caption": rng.choice(list(captions(target).values()))})
    _write_lines(folder / "pairs.jsonl", pair_rows)
    _write_lines(folder / "captions.jsonl", caption_rows)


def _draw_pair(rng: Random, split: Split, two_contexts: bool) -> tuple[list[Scene], str, Scene]:
    if two_contexts:
        return _draw_shape_to_copy(rng, split)
    chain = draw_chain(rng, split, images=2)
    return [chain.scenes[0]], rng.choice(phrasings(chain.edits[0])), chain.scenes[1]


def _draw_shape_to_copy(rng: Random, split: Split) -> tuple[list[Scene], str, Scene]:
    """Draw a scene, a second one with a single shape, and the first one with that shape added."""
    while True:
        scene = draw_scene(rng, split, max_shapes=3)
        shape = draw_shape(rng, scene)
        alone, target = Scene(ground=scene.ground, shapes=(shape,)), apply(Add(shape=shape), scene)
        if alone.split is split and target.split is split:
            return [scene, alone], "add the shape of the second picture to the first", target


def _write_lines(path: Path, rows: list[Row]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
