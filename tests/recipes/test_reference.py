"""The reference of configuration keys is complete and current."""

from pathlib import Path

from recipes import reference

ROOT = Path(__file__).parents[2]


def test_every_key_has_a_meaning() -> None:
    sections = reference.sections(ROOT / "conf")
    assert [f"{section.title}: {key.name}" for section in sections for key in section.keys if not key.meaning] == []


def test_the_page_is_what_the_generator_makes_now() -> None:
    page = (ROOT / "docs" / "config.md").read_text(encoding="utf-8")
    assert page == reference.markdown(ROOT / "conf"), "run python scripts/make_config_reference.py"


def test_one_line_may_explain_several_arguments_and_go_on_in_the_next() -> None:
    docstring = "Do.\n\nArgs:\n    a, b: Two\n        of them.\n    c: One.\n\nRaises:\n    ValueError: Never.\n"
    assert reference.arguments(docstring) == {"a": "Two of them.", "b": "Two of them.", "c": "One."}
