"""A chart for a paper: as wide as a column, with text as text, and the same bytes each time."""

from __future__ import annotations

import struct
import sys
from dataclasses import replace

import pytest

from edgefed.charts.lines import LineChart, Series
from edgefed.charts.paper_figure import COLOURS, drawn, paper_figure
from edgefed.errors import UsageError

CHART = LineChart(
    "a title",
    [
        Series(
            "_cost=$3$", [(1, 0.25), (2, 0.5), (3, float("nan"))], [(1, 0.2, 0.3), (2, 0.4, 0.6)]
        ),
        Series("nothing", [(1, None)]),
        Series("one point", [(1, 0.75)]),
    ],
    bounds=(0.0, 1.0),
    level=0.5,
    up="accuracy",
)


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
    figure = drawn(CHART)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["_cost=$3$", "one point"]
    assert not any(text.get_parse_math() for text in legend.get_texts())


def test_it_draws_what_the_chart_says() -> None:
    pytest.importorskip("matplotlib")
    (axes,) = drawn(CHART).axes
    curve, point, level = axes.lines
    assert curve.get_xydata().tolist() == [[1, 0.25], [2, 0.5]], "what is no number is left out"
    assert (point.get_marker(), point.get_color()) == ("o", COLOURS[2]), "of its own number"
    assert level.get_ydata() == [0.5, 0.5]
    (band,) = axes.collections
    assert sorted(map(tuple, band.get_paths()[0].vertices.tolist()))[:1] == [(1.0, 0.2)]
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_ylim()) == ("round", "accuracy", (0, 1))
    styles = {(line.get_color(), line.get_linestyle()) for line in axes.lines}
    assert len(styles) == len({style for _, style in styles}) == 3, "also without colours"


def test_long_names_are_wrapped() -> None:
    pytest.importorskip("matplotlib")
    long = replace(CHART, series=[Series("a long name " * 12, [(1, 0.5), (2, 0.5)])])
    assert paper_figure(long, "png")[16:20] == paper_figure(CHART, "png")[16:20]
    (text,) = drawn(long).legends[0].get_texts()
    assert max(map(len, text.get_text().splitlines())) <= 50


def test_a_missing_package_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError) as caught:
        paper_figure(CHART, "pdf")
    assert caught.value.code == "figures.missing"
    assert caught.value.hint == "pip install 'edgefed[figures]'"
