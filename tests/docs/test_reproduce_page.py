"""The page about published tables tells of every table, as it is defined now."""

from __future__ import annotations

import runpy
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs"


def test_the_page_is_up_to_date() -> None:
    page = runpy.run_path(str(FOLDER / "make_reproduce_page.py"))["page"]
    written = (FOLDER / "reproduce.md").read_text(encoding="utf-8")
    assert written == page(written), "run: python docs/make_reproduce_page.py"
