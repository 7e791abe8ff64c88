"""The page holds everything that it needs, and what it shows is text, not markup."""

import re
from dataclasses import replace

import pytest

from recipes.mistakes import ConfigError
from recipes.preview.config import PreviewRun, check
from recipes.preview.page import render
from recipes.preview.run import preview
from recipes.preview.views import PageView, TokenView
from tests.recipes.composing import composed


def test_nothing_is_fetched(page: PageView) -> None:
    html = render(page)
    sources = re.findall(r'(?:src|href)="([^"]*)"', html)
    assert {source[:5] for source in sources} == {"data:", "#pack"}
    assert "http" not in re.sub(r'"data:[^"]*"', "", html)
    assert "@import" not in html
    assert "url(" not in html


def test_links_lead_to_what_is_on_the_page(page: PageView) -> None:
    html = render(page)
    ids = set(re.findall(r'id="([^"]*)"', html))
    assert set(re.findall(r'href="#([^"]*)"', html)) <= ids
    assert {f"pack{pack.number}-{sample.number}" for pack in page.packs for sample in pack.samples} <= ids


def test_markup_in_a_text_is_shown_not_obeyed(page: PageView) -> None:
    pack = page.packs[0]
    evil = TokenView(text="<script>alert('x')</script>\n", about='"><b>', learned=False, marker=False)
    sample = pack.samples[0]
    split = replace(sample.splits[0], tokens=[evil])
    pack = replace(pack, samples=[replace(sample, splits=[split], origin="<i>.parquet")])
    html = render(replace(page, packs=[pack], lost=[("vlm_sft", "<u>", 3)]))
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;⏎\n" in html
    assert "<i>.parquet" not in html
    assert "&lt;u&gt;" in html


def test_losses_by_reason_are_in_their_table(page: PageView) -> None:
    html = render(replace(page, lost=[("vlm_sft", "missing image", 3)]))
    assert re.search(r"<td>vlm_sft</td><td>missing image</td><td[^>]*>3</td>", html)
    assert "None so far." in render(replace(page, lost=[]))


def test_a_cache_of_latents_is_shown_by_another_program() -> None:
    with pytest.raises(ConfigError, match=r"encode_cache\.py --preview"):
        preview(composed("preview", PreviewRun, "recipe=image_edit", "sources.prepare=null"))


@pytest.mark.parametrize("override", ["preview.packs=0", "preview.image_edge=0"])
def test_a_number_that_means_nothing_is_refused_by_its_key(override: str) -> None:
    with pytest.raises(ConfigError, match=override.replace("=", r" \(")):
        check(composed("preview", PreviewRun, override))
