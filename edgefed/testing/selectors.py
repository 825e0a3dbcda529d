"""The contract of a selector: the requirements on a package's own choice of devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgefed.algorithms.selection.base import Candidate, Selector
from edgefed.files.plugins import NAME
from edgefed.testing.common import called, check_settings, other_global_seeds, pure, require

SIZES = ((2, 1), (9, 4), (40, 39))
"""How many candidates there are, and how many are asked."""


def check_selector(
    selector: type[Selector[Any]], settings: Mapping[str, Any] | None = None
) -> None:
    """Check a selector with devices that were measured, and with devices that were not.

    Args:
        selector: the class that a package offers under ``edgefed.selectors``.
        settings: its own keys of the recipe's ``[selection]`` table.

    Raises:
        AssertionError: it breaks the contract; the text describes how.
    """
    values = dict(settings or {})
    require(bool(NAME.fullmatch(selector.name)), f"the name '{selector.name}' is not allowed")
    require(bool(selector.summary), "the selector has no summary")
    check_settings(selector.Settings, values, "the selector")
    made = selector(selector.Settings(**values))
    for size, count in SIZES:
        for number in (1, 7):
            candidates = _candidates(size, selector.needs_loss)
            order = _order(made, candidates, count, number)
            with other_global_seeds():
                again = _order(made, candidates, count, number)
            require(order == again, "order: the same generator gives another order")
            require(len(set(order)) == len(order), f"order: a device is there twice: {order}")
            known = {candidate.device for candidate in candidates}
            require(set(order) <= known, f"order: not a candidate: {sorted(set(order) - known)}")
            require(len(order) >= count, f"order: {len(order)} devices, {count} are asked")


def _order(
    selector: Selector[Any], candidates: Sequence[Candidate], count: int, number: int
) -> list[str]:
    with pure("order", {"candidates": candidates}):
        rng = np.random.default_rng(5)
        return list(called("order", selector.order, candidates, count, number, rng))


def _candidates(size: int, with_loss: bool) -> list[Candidate]:
    """Return devices of which every third was never asked; others lack seconds, or the loss."""
    rng = np.random.default_rng(size)
    return [
        Candidate(f"d{number:02}", int(rng.integers(1, 99)))
        if number % 3 == 0
        else Candidate(
            f"d{number:02}",
            int(rng.integers(1, 99)),
            asked=2,
            last=int(rng.integers(1, 7)),
            loss=float(rng.random()) if with_loss else None,
            seconds=float(rng.random()) if number % 3 == 1 else None,
        )
        for number in range(size)
    ]
