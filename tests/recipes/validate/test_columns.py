import pyarrow as pa
import pytest

from recipes.validate.columns import spell


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (pa.large_binary(), "bytes"),
        (pa.string_view(), "text"),
        (pa.dictionary(pa.int32(), pa.string()), "text"),
        (pa.list_(pa.large_list(pa.large_string())), "list of list of text"),
        (pa.int64(), "int64"),
    ],
)
def test_kinds_are_the_same_however_they_are_stored(kind: pa.DataType, words: str) -> None:
    assert spell(kind) == words
