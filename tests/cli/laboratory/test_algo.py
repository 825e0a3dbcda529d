from __future__ import annotations

import pytest

from tests.cli.commands import edgefed


def test_list_names_every_algorithm_with_one_line() -> None:
    listed = edgefed("algo", "list", "--json")
    names = [each["name"] for each in listed.json]
    assert {"fedavg", "fedprox", "fedopt"} <= set(names)
    assert all(each["summary"] and each["paper"] for each in listed.json)
    assert [line.split()[0] for line in edgefed("algo", "list").out.splitlines()] == names
    assert edgefed("algo", "ls").out == edgefed("algo", "list").out


def test_show_tells_settings_with_ranges_and_defaults() -> None:
    shown = edgefed("algo", "show", "fedprox")
    assert shown.code == 0
    assert "mu " in shown.out
    assert "≥ 0, ≤ 100" in shown.out
    settings = edgefed("algo", "show", "fedprox", "--json").json["settings"]
    assert settings["mu"]["default"] > 0
    schema = edgefed("algo", "show", "fedprox", "--schema").json
    assert schema["type"] == "object"
    assert schema["properties"] == settings


def test_show_tells_the_range_of_a_number_that_can_also_be_a_word() -> None:
    rows = edgefed("algo", "show", "pfnm").out.splitlines()
    (sigma,) = (row for row in rows if row.startswith("sigma "))
    assert sigma.split()[1:8] == ["auto", ">", "0,", "≤", "1000000000000.0", "or", "auto"]


@pytest.mark.parametrize(
    ("name", "words"), [("fedprx", "did you mean 'fedprox'?"), ("zzz", "No algorithm 'zzz'.")]
)
def test_an_unknown_algorithm_is_told_with_the_nearest_name(name: str, words: str) -> None:
    edgefed("algo", "show", name).failed(5, "algorithm.unknown", words, "edgefed algo list")


def test_show_tells_the_range_of_a_number_that_can_be_left_out() -> None:
    rows = edgefed("algo", "show", "fedma").out.splitlines()
    (epochs,) = (row for row in rows if row.startswith("retrain_epochs "))
    assert epochs.split()[1] == "unset"
    assert "≥ 0, ≤ 1000  " in epochs
    assert not any("`" in row for row in rows)
