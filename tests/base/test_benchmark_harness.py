"""What benchmarks share: options by their defaults, turns, and tables of what JSON has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.shared.harness import in_turn, median_ratio, pairs, parser, show, told
from edgefed.simulator.sweep.statistics import spread

FOUND = {"ratio": 0.5, "gb_per_s": {"exact": 2.0}, "rows": [{"name": "a", "n": 1200}, {"x": True}]}


def test_options_have_the_type_of_their_default() -> None:
    made = parser("merge", "Merge.\n\nMore.", data=Path, rate=2.0, grid_bits=8, only=("a", "b"))
    options = made.parse_args(["--data", "x", "--grid-bits", "3", "--only", "b"])
    assert vars(options) == {
        "data": Path("x"),
        "rate": 2.0,
        "grid_bits": 3,
        "only": ["b"],
        "json": False,
    }
    assert made.format_help().startswith("usage: python -m benchmarks.merge ")
    with pytest.raises(SystemExit):
        made.parse_args([])


def test_variants_take_turns_and_the_first_of_a_pair_alternates() -> None:
    calls = ""

    def call(name: str) -> float:
        nonlocal calls
        calls += name
        return float(len(calls))

    variants = {name: lambda name=name: call(name) for name in "ab"}
    assert in_turn(variants, 1, warm=1) == {"a": [3.0], "b": [4.0]}
    assert list(pairs(variants["a"], variants["b"], 2)) == [(5.0, 6.0), (8.0, 7.0)]
    assert calls == "abababba"
    assert median_ratio([1.0, 10.0, 4.0], [2.0, 20.0, 1.0]) == 0.5


def test_people_read_what_json_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(FOUND).splitlines() == [
        "ratio     0.5",
        "gb_per_s  exact 2",
        "",
        "name      n    x",
        "a     1,200",
        "             yes",
    ]
    show(parser("merge", None).parse_args(["--json"]), FOUND)
    assert json.loads(capsys.readouterr().out) == FOUND


def test_a_spread_is_its_mean_and_deviation_and_whole_in_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = [{"a": spread([1.0, 3.0])}, {"a": spread([2.0])}, {"a": spread([])}]
    assert told(found).splitlines() == ["        a", "2 ± 1.414", "        2"]
    show(parser("merge", None).parse_args(["--json"]), found)
    assert json.loads(capsys.readouterr().out) == [{"a": vars(row["a"])} for row in found]
