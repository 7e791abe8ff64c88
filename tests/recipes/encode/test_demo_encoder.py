import torch

from recipes.encode.encoders.base import EncodedText
from recipes.encode.encoders.demo import DemoEncoderConfig


def encode(text: str) -> EncodedText:
    return DemoEncoderConfig(text_size=16, max_words=4).build(torch.device("cpu")).encode_text(text, [])


def test_a_word_is_the_same_vector_wherever_it_stands() -> None:
    first, second = encode("red square").embeddings, encode("a RED one").embeddings
    assert torch.equal(first[0], second[1])
    assert not torch.equal(first[0], first[1])


def test_a_long_text_is_cut_and_the_whole_is_its_mean() -> None:
    text = encode("one two three four five")
    assert text.embeddings.shape == (4, 16)
    assert text.mask.tolist() == [True] * 4
    assert torch.equal(text.pooled, text.embeddings.mean(0))


def test_a_text_of_signs_alone_has_words_too() -> None:
    assert encode("?!").embeddings.shape == (2, 16)
