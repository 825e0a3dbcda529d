"""Charts are well-formed SVG for any names and numbers."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.charts.axes import LETTER, Scale, ticks, whole_ticks
from edgefed.charts.grids import Panel, share_maps
from edgefed.charts.lines import LARGEST, MAX_POINTS, LineChart, Series, line_chart
from edgefed.charts.rows import Bar, bar_chart, course_map, heat_map
from edgefed.charts.svg import clean, series_class, stacked, standalone
from edgefed.terminal.units import size

NAME = st.text(max_size=20)
FINITE = st.floats(-1e12, 1e12)


def parsed(svg: str) -> ElementTree.Element:
    root = ElementTree.fromstring(svg)
    assert root.tag.endswith("svg")
    return root


def texts(svg: str) -> list[str]:
    return [each.text or "" for each in parsed(svg).iter() if each.tag.endswith("text")]


def test_text_of_others_is_shown_without_what_a_reader_cannot_see() -> None:
    turned = "cam\u202egpj.exe\x9b2J\x1b[2J\u2066\u200b\x7f\ud800"
    series = [Series(turned, [(1, 0.5), (2, 0.25)]), Series("other", [(1, 0.1)])]
    svg = standalone(line_chart(LineChart("accuracy", series)))
    shown = "cam\ufffdgpj.exe\ufffd2J\ufffd[2J\ufffd\ufffd\ufffd\ufffd"
    assert shown in texts(svg)
    assert all(char.isprintable() or char == "\n" for char in svg)
    assert clean("[a]\r\nb = 'é 日本 🙂 <&>'\n") == "[a]\nb = &#x27;é 日本 🙂 &lt;&amp;&gt;&#x27;\n"


@given(st.lists(st.tuples(NAME, st.lists(st.one_of(st.none(), st.floats()), max_size=5))))
@settings(max_examples=30, deadline=None)
def test_any_curves_make_a_picture(curves: list[tuple[str, list[float | None]]]) -> None:
    series = [Series(name, list(enumerate(values, 1))) for name, values in curves]
    drawn = [v for _, values in curves for v in values if v is not None and abs(v) <= LARGEST]
    svg = standalone(line_chart(LineChart("<loss>", series)))
    parsed(svg)
    assert "nan" not in svg
    assert ("nothing was measured" in svg) == (not drawn)


def test_a_curve_lies_where_its_values_are() -> None:
    svg = line_chart(LineChart("accuracy", [Series("a", [(1, 0.0), (2, 0.5), (3, 1.0)])]))
    line = next(each for each in parsed(svg).iter() if each.tag.endswith("polyline"))
    places = [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]
    (left, floor), (middle, half), (right, top) = places
    assert left < middle < right
    assert middle == pytest.approx((left + right) / 2)
    assert half == pytest.approx((floor + top) / 2)
    assert floor > top, "upwards is less in pixels"


def test_a_band_needs_two_rounds_and_surrounds_its_curve() -> None:
    points = [(1, 0.5), (2, 0.6)]
    band = [(1, 0.4, 0.6), (2, 0.5, 0.7)]
    both = line_chart(LineChart("a", [Series("a", points, band)]))
    one = line_chart(LineChart("a", [Series("a", points, band[:1])]))
    assert "polygon" in both
    assert "polygon" not in one


def test_long_curves_are_thinned_but_end_where_they_end() -> None:
    series = Series("a", [(k, float(k)) for k in range(1, 10_001)])
    svg = line_chart(LineChart("a", [series]))
    line = next(each for each in parsed(svg).iter() if each.tag.endswith("polyline"))
    places = line.attrib["points"].split()
    assert 900 <= len(places) <= MAX_POINTS + 1
    assert places[-1] == "700,12"


def test_bytes_have_round_steps_in_their_own_unit() -> None:
    series = Series("a", [(1, 0.0), (2, 390 * 1024.0)])
    chart = LineChart("a", [series], base=1024, shown=lambda value: f"{value / 1024:g} KiB")
    assert "100 KiB" in texts(line_chart(chart))


def test_a_legend_only_where_there_are_several() -> None:
    one, two = Series("only", [(1, 1.0)]), Series("other", [(1, 2.0)])
    assert "only" not in texts(line_chart(LineChart("a", [one])))
    assert {"only", "other"} <= set(texts(line_chart(LineChart("a", [one, two]))))
    gap = line_chart(LineChart("a", [one, Series("absent", [(1, None)]), two]))
    assert {"only", "other"} <= set(texts(gap))
    assert "absent" not in texts(gap)
    assert gap.count(f'class="line {series_class(2)}"') == 1, "the mark has the curve's number"


def test_a_long_legend_goes_on_in_the_next_line_within_the_picture() -> None:
    names = [f"series number {number}" for number in range(12)]
    svg = line_chart(LineChart("a", [Series(name, [(1, 1.0), (2, 2.0)]) for name in names]))
    root = parsed(svg)
    places = {
        each.text: (float(each.attrib["x"]), float(each.attrib["y"]))
        for each in root.iter()
        if each.tag.endswith("text") and each.text in names
    }
    assert list(places) == names
    for name, (x, y) in places.items():
        assert x + LETTER * len(name) <= float(root.attrib["width"])
        assert y <= float(root.attrib["height"])
    lines = sorted({y for _, y in places.values()})
    assert len(lines) > 1 and len(set(places.values())) == len(names)
    assert {below - above for above, below in pairwise(lines)} == {20}


@given(FINITE, FINITE, st.integers(2, 12))
def test_ticks_span_the_values_in_even_steps(low: float, high: float, count: int) -> None:
    low, high = min(low, high), max(low, high)
    if 0 < high - low < 1e-6 * max(abs(low), abs(high)):
        return  # steps below what the numbers can tell apart
    steps = ticks(low, high, count)
    width = steps[1] - steps[0]
    assert steps[0] <= low + 1e-6 * width
    assert steps[-1] >= high - 1e-6 * width
    assert 2 <= len(steps) <= count + 2


def test_curves_over_bytes_have_binary_units_below_them() -> None:
    points = [(int(2**20 * (k + 0.3)), 0.1 * k) for k in range(1, 5)]
    told = texts(line_chart(LineChart("a", [Series("a", points)], across="bytes", binary=size)))
    assert {"1.5 MiB", "2.0 MiB", "4.0 MiB", "bytes"} <= set(told)
    assert not {"1.0 MiB", "4.5 MiB", "round"} & set(told), "all are within"
    one = line_chart(LineChart("a", [Series("a", points[:1])], across="bytes", binary=size))
    assert "bytes" in texts(one)


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(2, 12))
def test_rounds_have_whole_ticks_within(low: int, more: int, count: int) -> None:
    steps = whole_ticks(low, low + more, count)
    assert steps
    assert all(low <= step <= low + more and step == int(step) for step in steps)


def test_a_scale_of_one_value_has_a_middle() -> None:
    assert Scale(3.0, 3.0, 0.0, 10.0).at(3.0) == 5.0


@given(st.lists(st.tuples(NAME, st.lists(st.integers(0, 10**9), max_size=12)), max_size=5))
@settings(max_examples=20, deadline=None)
def test_a_heat_map_has_a_cell_a_count(rows: list[tuple[str, list[int]]]) -> None:
    root = parsed(heat_map(rows, title="labels", axis="label"))
    cells = [each for each in root.iter() if each.tag.endswith("rect")]
    assert len(cells) == sum(count > 0 for _, counts in rows for count in counts)


@given(st.lists(st.tuples(NAME, st.floats(0, 1e12)), max_size=6))
@settings(max_examples=20, deadline=None)
def test_a_bar_a_row(rows: list[tuple[str, float]]) -> None:
    bars = [Bar(name, value, value / 2, value * 2) for name, value in rows]
    root = parsed(bar_chart(bars, "{:.0f}".format, title="bytes & more"))
    assert len([each for each in root.iter() if each.tag.endswith("rect")]) == len(rows)


SHARE = st.floats(0, 1)


@given(
    st.lists(st.tuples(NAME, st.lists(st.lists(SHARE, min_size=2, max_size=2), max_size=3))),
    st.integers(0, 90),
)
@settings(max_examples=20, deadline=None)
def test_any_shares_make_a_picture(panels: list[tuple[str, list[list[float]]]], extra: int) -> None:
    names = [f"<row> {number}" for number in range(3 + extra)]
    drawn = [Panel(title, rows) for title, rows in panels]
    svg = standalone(share_maps(drawn, names, ["e0", "e1"], title="q(z|y)"))
    told = [each.text or "" for each in parsed(svg).iter() if each.tag.endswith("title")]
    visible = sum(share >= 0.005 for _, rows in panels for row in rows for share in row)
    assert sum("<row>" in text for text in told) == visible
    assert ("nothing to show" in svg) == (not panels)


def test_a_larger_share_is_darker_and_panels_that_do_not_fit_go_below() -> None:
    panels = [Panel(f"round {number}", [[0.25, 0.75]]) for number in range(30)]
    svg = share_maps(panels, ["a"], ["e0", "e1"], title="q(z|y)")
    cells = [each for each in parsed(svg).iter() if "fill-opacity" in each.attrib]
    light, dark = (float(cell.attrib["fill-opacity"]) for cell in cells[:2])
    assert dark == pytest.approx(3 * light, abs=0.02)
    assert len({cell.attrib["y"] for cell in cells}) > 1
    assert max(float(cell.attrib["x"]) for cell in cells) < float(parsed(svg).attrib["width"])


def test_a_course_reaches_from_answer_to_answer() -> None:
    course = [(1, (1.0, 0.0)), (3, (0.25, 0.75))]
    svg = course_map([("<a>", course)], ["e0", "e1"], title="q(z|s)")
    bars = [each for each in parsed(svg).iter() if len(each) and each.tag.endswith("rect")]
    told = [bar[0].text for bar in bars]
    assert told == ["<a>, round 1, e0: 1.000", "<a>, round 3, e0: 0.250", "<a>, round 3, e1: 0.750"]
    widths = [float(bar.attrib["width"]) for bar in bars]
    assert widths[0] + 1 == pytest.approx(2 * (widths[1] + 1), abs=0.2), "two rounds, and one"
    heights = [float(bar.attrib["height"]) for bar in bars]
    assert heights[2] == pytest.approx(3 * heights[1], abs=0.2)
    tops = [float(bar.attrib["y"]) for bar in bars]
    assert tops[2] == pytest.approx(tops[1] + heights[1], abs=0.2), "one below the other"
    assert "nothing to show" in course_map([], ["e0"], title="q(z|s)")


def test_pictures_are_stacked_without_covering_each_other() -> None:
    first, second = course_map([], ["e0"], title="a"), heat_map([("x", [1])], title="b", axis="c")
    svg = standalone(stacked([("one", first), ("<two>", second)], title="both"))
    inner = [each for each in parsed(svg) if each.tag.endswith("svg")]
    top, below = (float(each.attrib["y"]) for each in inner)
    assert below > top + float(inner[0].attrib["height"])
    end = below + float(inner[1].attrib["height"])
    assert float(parsed(svg).attrib["height"]) >= end
    assert "<two>" in texts(svg)


def test_rounds_that_few_devices_tested_have_hollow_points() -> None:
    series = [Series("a", [(1, 0.5), (2, 0.6), (3, 0.9)], hollow={3}), Series("b", [(1, 0.1)])]
    drawn = line_chart(LineChart("accuracy", series))
    assert drawn.count("<circle") == 2, "the only point of a curve, and the hollow one"
    assert 'r="4" class="line ' in drawn
    plain = line_chart(LineChart("accuracy", [Series("a", series[0].points)]))
    assert "<circle" not in plain
