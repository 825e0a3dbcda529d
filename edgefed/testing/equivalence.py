"""Check that two algorithms end every round with the same weights, for special cases.

FedProx without its term is FedAvg, and so is SCAFFOLD in its first round.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgefed.algorithms.composed.registry import find
from edgefed.algorithms.interface.base import Algorithm
from edgefed.errors import UnmergeableError
from edgefed.learn.base.types import Tensors
from edgefed.testing.common import called, require
from edgefed.testing.play import bits
from edgefed.testing.runs import (
    SIZES,
    Case,
    LostAnswer,
    Step,
    ends_round,
    offered,
    short_recipe,
    steps_of,
)
from edgefed.wire.tensors import specs_of

Kind = type[Algorithm[Any]] | str
Asked = tuple[tuple[str, tuple[str, ...]], ...]


def check_equivalent(
    reference: Kind,
    kind: Kind,
    recipe: Mapping[str, Any] | None = None,
    *,
    reference_settings: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    sizes: Sequence[int] = SIZES,
    rtol: float = 0.0,
    atol: float = 0.0,
) -> None:
    """Check that two algorithms ask the same devices and end every round with the same weights.

    Both play a run of three rounds, and for each round another run in which an answer to it comes
    too late. Each half starts anew for every task, from a state that was stored.

    Args:
        reference: a class, which need not be installed, or the name of an algorithm.
        kind: the algorithm that must do the same.
        recipe: tables of the recipe beside ``[algorithm]``; with ``rounds``, their number.
        reference_settings: keys of the reference's ``[algorithm]`` table.
        settings: keys of the other algorithm's.
        sizes: number of samples of each device.
        rtol: tolerance relative to the reference's weights.
        atol: absolute tolerance; without either, weights must agree bit for bit.

    Raises:
        AssertionError: they differ, or one of them does not run; the text describes how.
    """
    require("algorithm" not in (recipe or {}), "the recipe has a table [algorithm]; pass settings")
    wanted = _played(reference, reference_settings, recipe, sizes)
    played = _played(kind, settings, recipe, sizes)
    names = f"the reference '{_name(reference)}'", f"'{_name(kind)}'"
    for lost, rounds in wanted.items():
        where = f" after device-{len(sizes) - 1:02d}'s answer to round {lost} was lost"
        where = where if lost else ""
        require(
            rounds.keys() == played[lost].keys(),
            f"only one of {' and '.join(names)} can merge without every answer",
        )
        for number, one in rounds.items():
            problem = _difference(one, played[lost][number], names, rtol, atol)
            require(not problem, f"round {number}{where}: {problem}")


@dataclass(frozen=True)
class _Round:
    """What a round asked and reached.

    Attributes:
        asked: name and devices of each exchange that is not preparatory.
        weights: after its last exchange.
    """

    asked: Asked
    weights: Tensors


def _name(kind: Kind) -> str:
    return str(getattr(kind, "name", getattr(kind, "__name__", kind)))


def _played(
    kind: Kind,
    settings: Mapping[str, Any] | None,
    tables: Mapping[str, Any] | None,
    sizes: Sequence[int],
) -> dict[int, dict[int, _Round]]:
    """Return the rounds of each run by the round whose last answer it loses, 0 for none."""
    try:
        algorithm = called("its name", find, kind) if isinstance(kind, str) else kind
        with offered(algorithm):
            recipe = called("its recipe", short_recipe, algorithm.name, settings, tables, 3)
            case = Case(algorithm.name, recipe, sizes)
            called("making it with its settings", case.coordinator)
            steps = steps_of(case)
            runs = {0: _rounds(case, steps)}
            for number in range(1, recipe.rounds.count + 1):
                lost = LostAnswer(ends_round(steps, number), is_made=True)
                runs[number] = _rounds(case, _steps_without(case, lost))
            return runs
    except AssertionError as error:
        raise AssertionError(f"'{_name(kind)}': {error}") from error


def _steps_without(case: Case, lost: LostAnswer) -> list[Step]:
    """Return the steps of a run without an answer, and none if it cannot be merged."""
    try:
        return steps_of(case, lost)
    except AssertionError as error:
        if isinstance(error.__cause__, UnmergeableError):
            return []
        raise


def _rounds(case: Case, steps: Sequence[Step]) -> dict[int, _Round]:
    """Return the rounds of a run by their number; 0 is its start."""
    half, asked = case.coordinator(), defaultdict[int, Asked](tuple)
    for exchange in (step.exchange for step in steps):
        if exchange is not None and not exchange.preparatory:
            devices = tuple(question.device for question in exchange.questions)
            asked[exchange.round] += ((exchange.name, devices),)
    ended = {step.state.round: step.state for step in steps}  # the last state of each round
    return {k: _Round(asked[k], half.weights(state)) for k, state in ended.items()}


def _difference(
    one: _Round, other: _Round, names: tuple[str, str], rtol: float, atol: float
) -> str:
    """Return in what a round differs from the reference's, or nothing."""
    if other.asked != one.asked:
        return "; ".join(
            f"{name} asks {_words(asked)}"
            for name, asked in zip(names, (one.asked, other.asked), strict=True)
        )
    if specs_of(other.weights) != specs_of(one.weights):
        return f"{' and '.join(names)} have arrays of other names, shapes or types"
    largest = dict[str, float]()
    for name, array in one.weights.items():
        wanted, actual = array.astype(np.float64), other.weights[name].astype(np.float64)
        if not (np.isfinite(wanted).all() and np.isfinite(actual).all()):
            return f"'{name}' is not finite"
        close = np.allclose(actual, wanted, rtol, atol)
        if not close or (rtol == atol == 0 and bits(other.weights[name]) != bits(array)):
            largest[name] = float(np.abs(actual - wanted).max())
    if not largest:
        return ""
    worst = max(largest, key=lambda name: largest[name])
    return (
        f"'{worst}' of {names[1]} differs from that of {names[0]}; the largest difference is"
        f" {largest[worst]:.3g}"
    )


def _words(asked: Asked) -> str:
    return ", ".join(f"'{name}' of {' '.join(devices)}" for name, devices in asked) or "nothing"
