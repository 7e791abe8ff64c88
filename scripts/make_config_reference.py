"""Write ``docs/config.md``, the reference of every configuration key: ``python scripts/make_config_reference.py``."""

from pathlib import Path

from recipes import reference

ROOT = Path(__file__).parents[1]

if __name__ == "__main__":
    page = ROOT / "docs" / "config.md"
    page.write_text(reference.markdown(ROOT / "conf"), encoding="utf-8")
    print(page)
