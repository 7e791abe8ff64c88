from random import Random

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from recipes.demo_data.captions import captions
from recipes.demo_data.scenes import Split, draw_scene
from recipes.demo_data.tokenizer import END_OF_TEXT, train_tokenizer, training_texts


@pytest.fixture(scope="module")
def tokenizer(demo_root) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(demo_root / "tokenizer", local_files_only=True)


def test_it_is_small_and_ends_texts_with_its_own_token(tokenizer):
    assert 257 < len(tokenizer) <= 512
    assert tokenizer.eos_token == END_OF_TEXT


def test_any_text_comes_back_as_it_was(tokenizer):
    for text in ("a red circle in the centre", "Zürich, 東京 🙂\n\ttabs", "  spaces  "):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_texts_about_unseen_scenes_take_about_a_token_a_word(tokenizer):
    texts = [captions(draw_scene(Random(number), Split.HELDOUT))["full"] for number in range(50)]
    words = sum(len(text.split()) for text in texts)
    assert sum(len(tokenizer.encode(text)) for text in texts) < 1.3 * words


def test_training_twice_gives_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        train_tokenizer(training_texts(seed=3, scenes=50), tmp_path / name)
    assert (tmp_path / "one" / "tokenizer.json").read_bytes() == (tmp_path / "two" / "tokenizer.json").read_bytes()
