"""A confusion matrix is a picture with a cell for each count, whatever classes are called."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.charts.grids import MANY, MAX_NAME, matrix_chart
from edgefed.charts.svg import standalone
from tests.charts.test_charts import NAME, parsed, texts


def cells(svg: str) -> list[tuple[str, ElementTree.Element]]:
    """Return what each coloured cell tells, and the cell."""
    found = [each for each in parsed(svg).iter() if each.tag.endswith("rect") and len(each)]
    return [(each[0].text or "", each) for each in found]


@given(
    st.integers(1, 6).flatmap(
        lambda classes: st.tuples(
            st.lists(
                st.lists(st.integers(0, 10**9), min_size=classes, max_size=classes),
                min_size=classes,
                max_size=classes,
            ),
            st.lists(NAME, min_size=classes, max_size=classes),
        )
    )
)
@settings(max_examples=30, deadline=None)
def test_any_counts_make_a_picture(drawn: tuple[list[list[int]], list[str]]) -> None:
    counts, names = drawn
    svg = standalone(matrix_chart(counts, names, title="<matrix>"))
    assert len(cells(svg)) == sum(count > 0 for row in counts for count in row)


def test_right_and_wrong_cells_lie_where_they_belong() -> None:
    svg = matrix_chart([[8, 2], [0, 5]], ["cat", "dog"], title="m")
    found = dict(cells(svg))
    assert list(found) == [
        "cat predicted as cat: 8 of 10, 80.0%",
        "cat predicted as dog: 2 of 10, 20.0%",
        "dog predicted as dog: 5 of 5, 100.0%",
    ]
    right, wrong, other = found.values()
    assert [each.attrib["class"] for each in (right, wrong, other)] == ["f0", "f1", "f0"]
    assert right.attrib["y"] == wrong.attrib["y"] != other.attrib["y"], "a row is a true label"
    assert wrong.attrib["x"] == other.attrib["x"] != right.attrib["x"]
    strength = [float(each.attrib["fill-opacity"]) for each in (wrong, right, other)]
    assert strength == sorted(strength)
    words = texts(svg)
    assert (words.count("cat"), words.count("dog")) == (2, 2)
    assert {"true label", "predicted label", "8", "2", "5"} <= set(words)


@pytest.mark.parametrize("classes", [2, 10, 62, 100])
def test_every_class_has_its_name_up_to_a_hundred(classes: int) -> None:
    names = [f"class-{label}" for label in range(classes)]
    counts = [[3 * (row == column) for column in range(classes)] for row in range(classes)]
    svg = matrix_chart(counts, names, title="m")
    assert all(texts(svg).count(name) == 2 for name in names)
    width, height = float(parsed(svg).attrib["width"]), float(parsed(svg).attrib["height"])
    for _, cell in cells(svg):
        side = float(cell.attrib["width"])
        assert side == float(cell.attrib["height"]) >= 13
        assert float(cell.attrib["x"]) + side <= width
        assert float(cell.attrib["y"]) + side <= height


def test_of_many_classes_small_shares_are_left_out() -> None:
    classes = MANY + 1
    counts = [[0] * classes for _ in range(classes)]
    counts[0][:3] = [996, 3, 6]
    svg = matrix_chart(counts, [str(label) for label in range(classes)], title="m")
    assert [told for told, _ in cells(svg)] == [
        "0 predicted as 0: 996 of 1005, 99.1%",
        "0 predicted as 2: 6 of 1005, 0.6%",
    ]


def test_long_names_are_cut() -> None:
    svg = matrix_chart([[1, 0], [0, 1]], ["x" * 40, "y"], title="m")
    assert f"{'x' * (MAX_NAME - 1)}…" in texts(svg)
    assert "x" * 40 not in texts(svg)
