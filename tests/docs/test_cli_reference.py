"""The reference in docs/cli.md is what the program says of itself."""

from __future__ import annotations

import runpy
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs"
WRITTEN = (FOLDER / "cli.md").read_text(encoding="utf-8")


def test_the_reference_is_up_to_date() -> None:
    page = runpy.run_path(str(FOLDER / "make_cli_page.py"))["page"]
    assert page(WRITTEN) == WRITTEN, "run: python docs/make_cli_page.py"


def test_the_reference_has_options_defaults_and_examples() -> None:
    part = WRITTEN.partition("### edgefed report\n")[2].partition("\n### ")[0]
    assert "- `--lines N`: Last lines of each log to include; by default `500`." in part
    assert "edgefed report --with-names --json" in part
    assert "--broker URL" not in part
