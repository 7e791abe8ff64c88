"""What of a run can be shown."""

import pytest

from recipes.mistakes import ConfigError
from recipes.preview.config import PreviewConfig, PreviewRun, check


@pytest.mark.parametrize("name", ["packs", "image_edge"])
def test_a_page_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"preview.{name} \(0\) must be at least 1"):
        check(PreviewRun(preview=PreviewConfig(**{name: 0})))


def test_held_out_packs_need_held_out_rows() -> None:
    with pytest.raises(ConfigError, match=r"preview.heldout \(true\) needs held-out rows"):
        check(PreviewRun(preview=PreviewConfig(heldout=True)))
