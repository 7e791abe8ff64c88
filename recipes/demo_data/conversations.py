"""Conversations about pictures, clips and nothing, written as JSON lines beside an image folder."""

import json
from collections.abc import Mapping
from pathlib import Path
from random import Random

from recipes.demo_data.config import DemoDataConfig
from recipes.demo_data.edits import draw_chain
from recipes.demo_data.flaws import Flaw, damage
from recipes.demo_data.pictures import ImageFile, Studio
from recipes.demo_data.questions import ABOUT_NONE, SYSTEM_TEXT, Turn, ask, ask_what_changed, ask_which_has_more
from recipes.demo_data.scenes import Split, draw_scene
from recipes.demo_data.video import draw_clip, write_frames, write_mp4

MP4_ROW = 20  # the one row with a real video
FRAMES_EVERY = 40  # one row in so many has a folder of frames,
FRAMES_ROW = 7  # first this one
SYSTEM_EVERY = 24

Row = dict[str, object]


class Album:
    """Makes the conversations of one split and writes their media below ``folder``."""

    def __init__(self, config: DemoDataConfig, studio: Studio, split: Split, folder: Path) -> None:
        self._config = config
        self._studio = studio
        self._split = split
        self._folder = folder

    def write(self, rows: int, broken: Mapping[int, Flaw]) -> None:
        """Write ``rows.jsonl`` and the ``images`` folder."""
        (self._folder / "images").mkdir(parents=True)
        with (self._folder / "rows.jsonl").open("w", encoding="utf-8") as lines:
            for number in range(rows):
                rng = Random(f"{self._config.seed}/{self._split}/vlm/{number}")
                lines.write(json.dumps(self._row(rng, number, broken.get(number))) + "\n")

    def _row(self, rng: Random, number: int, flaw: Flaw | None) -> Row:
        system = self._config.oddities and number % SYSTEM_EVERY == 0
        first = [{"from": "system", "value": SYSTEM_TEXT}] if system else []
        fields, turns = self._talk(rng, number, flaw)
        return {"id": number, "conversations": first + _conversation(turns), **fields}

    def _talk(self, rng: Random, number: int, flaw: Flaw | None) -> tuple[Row, list[Turn]]:
        """Return the row's media fields and its turns; the tags stand in the questions."""
        if flaw is not None:
            return self._about_one(rng, number, flaw)
        if number == MP4_ROW or number % FRAMES_EVERY == FRAMES_ROW:
            return self._about_a_clip(rng, number)
        draw = rng.random()
        if draw < 0.06:
            return {}, rng.sample(ABOUT_NONE, 2)
        return self._about_two(rng, number) if draw < 0.25 else self._about_one(rng, number, None)

    def _about_one(self, rng: Random, number: int, flaw: Flaw | None) -> tuple[Row, list[Turn]]:
        scene = draw_scene(rng, self._split)
        turns = ask(rng, scene, rng.randint(1, 3))
        name = self._save(number, 0, self._studio.photograph(rng, scene, self._studio.draw_size(rng)), flaw)
        tags = "<image>\n<image>\n" if flaw is Flaw.SURPLUS_TAG else "<image>\n"
        fields: Row = {"image": [name, name] if flaw is Flaw.SURPLUS_IMAGE else name}
        return fields, _opened(tags + turns[0].question, turns)

    def _about_two(self, rng: Random, number: int) -> tuple[Row, list[Turn]]:
        chain, size = draw_chain(rng, self._split, images=2), self._studio.draw_size(rng)
        files = [self._studio.photograph(rng, scene, size) for scene in chain.scenes]
        names = [self._save(number, place, file, None) for place, file in enumerate(files)]
        turns = [ask_what_changed(chain.edits[0]), ask_which_has_more(*chain.scenes)]
        return {"image": names}, _opened(
            f"This is before: <image> and this is after: <image> {turns[0].question}", turns
        )

    def _about_a_clip(self, rng: Random, number: int) -> tuple[Row, list[Turn]]:
        clip = draw_clip(rng, self._split, self._config.min_edge)
        if number == MP4_ROW:
            name = f"clip_{number:05}.mp4"
            write_mp4(clip, self._folder / "images" / name)
        else:
            name = f"clip_{number:05}/"  # the reader takes a path that ends in "/" for a folder of frames
            write_frames(clip, self._folder / "images" / name)
        return {"video": name}, _opened(f"<video>\n{clip.turns[0].question}", clip.turns)

    def _save(self, number: int, place: int, file: ImageFile, flaw: Flaw | None) -> str:
        name = f"{number:05}_{place}{file.suffix}"
        if flaw is not Flaw.MISSING_FILE:
            (self._folder / "images" / name).write_bytes(damage(file.data, flaw))
        return name


def _opened(opening: str, turns: list[Turn]) -> list[Turn]:
    """Replace the first question by ``opening``, which holds the tags."""
    return [Turn(question=opening, answer=turns[0].answer), *turns[1:]]


def _conversation(turns: list[Turn]) -> list[dict[str, str]]:
    pairs = [(("human", turn.question), ("gpt", turn.answer)) for turn in turns]
    return [{"from": role, "value": value} for pair in pairs for role, value in pair]
