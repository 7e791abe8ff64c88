"""A small byte-level BPE tokenizer, trained on the demo's own texts."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from recipes.demo_data.captions import captions
from recipes.demo_data.edits import draw_edit, phrasings
from recipes.demo_data.questions import ABOUT_NONE, ABOUT_ONE, SYSTEM_TEXT
from recipes.demo_data.scenes import Split, draw_scene
from recipes.demo_data.video import draw_clip

END_OF_TEXT = "<|endoftext|>"


def training_texts(seed: int, scenes: int = 400) -> Iterator[str]:
    """Yield what the demo says about ``scenes`` scenes of the training split."""
    yield SYSTEM_TEXT
    for turn in ABOUT_NONE:
        yield from (turn.question, turn.answer)
    for number in range(scenes):
        rng = Random(f"{seed}/texts/{number}")
        scene = draw_scene(rng, Split.TRAIN)
        yield from captions(scene).values()
        instructions = phrasings(draw_edit(rng, scene))
        yield from (*instructions, ". ".join(instructions))  # a merged edit is several sentences
        turns = [question(rng, scene) for question in ABOUT_ONE] + draw_clip(rng, Split.TRAIN, edge=2).turns
        for turn in turns:
            yield from (turn.question, turn.answer)


def train_tokenizer(texts: Iterable[str], folder: Path, max_vocab_size: int = 512) -> None:
    """Train on ``texts`` and write what ``AutoTokenizer.from_pretrained`` loads without a network."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=max_vocab_size,
        special_tokens=[AddedToken(END_OF_TEXT, normalized=False)],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END_OF_TEXT}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
