"""Settings with which an algorithm is another one, and that others are needed for this."""

from __future__ import annotations

from typing import Any

import pytest

from edgefed.testing.equivalence import check_equivalent

UNIFORM = {"weighting": "uniform"}
KINGMA = {"server": "adam", "adam_variant": "kingma"}
NEARLY: dict[str, Any] = {"rtol": 1e-6, "atol": 1e-7}
EQUAL: dict[str, Any] = {"sizes": (6, 6, 6, 6), "atol": 1e-7}
ONE_ROUND = {"rounds": {"count": 1}}

FEDAVG: list[tuple[str, dict[str, Any]]] = [
    ("feddyn", {"settings": {"alpha": 0.0}, "reference_settings": UNIFORM}),
    ("qfedavg", {"settings": {"q": 0.0}, "reference_settings": UNIFORM}),
    ("moon", {"settings": {"contrast": 0.0}}),
    ("ditto", {"settings": {"own_pull": 2.0, "own_epochs": 2}}),
    ("ifca", {"settings": {"clusters": 1, **KINGMA}, "reference_settings": KINGMA}),
    ("fednova", EQUAL),
    ("scaffold", {"recipe": ONE_ROUND, "reference_settings": UNIFORM, **NEARLY}),
]
OTHERS: list[tuple[str, dict[str, Any], int]] = [
    ("feddyn", {"reference_settings": UNIFORM}, 1),
    ("fednova", {**EQUAL, "sizes": (5, 9, 6, 4)}, 1),
    ("scaffold", {"reference_settings": UNIFORM, **NEARLY}, 2),
]
"""With the first round that differs."""


@pytest.mark.parametrize(("name", "given"), FEDAVG)
def test_it_is_fedavg(name: str, given: dict[str, Any]) -> None:
    check_equivalent("fedavg", name, **given)


@pytest.mark.parametrize(("name", "given", "number"), OTHERS)
def test_it_is_not_fedavg(name: str, given: dict[str, Any], number: int) -> None:
    with pytest.raises(AssertionError, match=f"^round {number}: .* differs"):
        check_equivalent("fedavg", name, **given)
