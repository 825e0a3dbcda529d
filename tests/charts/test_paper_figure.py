"""A chart for a paper: as wide as a column, with text as text, and the same bytes each time."""

from __future__ import annotations

import re
import struct
import sys
import zlib

import pytest

from edgefed.charts.lines import LineChart, Series
from edgefed.charts.paper_figure import paper_figure
from edgefed.errors import UsageError

CHART = LineChart(
    "a title",
    [
        Series(
            "_cost=$3$", [(1, 0.25), (2, 0.5), (3, float("nan"))], [(1, 0.2, 0.3), (2, 0.4, 0.6)]
        ),
        Series("one point", [(1, 0.75)]),
        Series("nothing", []),
    ],
    bounds=(0.0, 1.0),
    level=0.5,
    up="accuracy",
)


def words(pdf: bytes) -> str:
    """Return the characters of a PDF's pages."""
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL)
    pages = b"".join(zlib.decompress(each) for each in streams if each[:1] == b"\x78")
    return "".join(part.decode("latin-1") for part in re.findall(rb"\((.*?)\)", pages))


def test_a_chart_is_as_wide_as_a_column() -> None:
    pytest.importorskip("matplotlib")
    png = paper_figure(CHART, "png")
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">I", png[16:20]) == (1020,)  # 3.4 inches of 300 dots


def test_its_text_stays_text_and_names_are_no_formulas() -> None:
    pytest.importorskip("matplotlib")
    pdf = paper_figure(CHART, "pdf")
    assert b"/Type3" not in pdf and b"/CIDFontType2" in pdf
    assert pdf == paper_figure(CHART, "pdf")
    assert pdf != paper_figure(CHART.__class__(**{**CHART.__dict__, "up": "loss"}), "pdf")


def test_a_missing_package_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError) as caught:
        paper_figure(CHART, "pdf")
    assert caught.value.code == "figures.missing"
    assert caught.value.hint == "pip install 'edgefed[figures]'"
