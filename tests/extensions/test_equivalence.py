"""The check that two algorithms do the same fails, with the reason, for planted differences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.averaging.fedavg import FedAvg
from edgefed.algorithms.interface.answer import Group
from edgefed.algorithms.interface.base import Algorithm
from edgefed.algorithms.interface.exchange import Finished
from edgefed.errors import UnmergeableError
from edgefed.learn.base.types import Objective
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.testing.equivalence import check_equivalent


class Good(FedAvg):
    """FedAvg by another name, which the others break."""

    name = "example"
    summary = "FedAvg by another name"
    paper = "none"


class Scaled(Good):
    """Takes a slightly longer step."""

    def merge(self, state: Any, exchange: Any, answers: Iterable[Any]) -> Any:
        merged = super().merge(state, exchange, answers)
        before, after = state.groups["weights"], merged.groups["weights"]
        longer = np.float32(1.001)
        weights = {name: array + longer * (after[name] - array) for name, array in before.items()}
        return replace(merged, groups={**merged.groups, "weights": weights})


class Ignoring(Good):
    """Trains without the proximal term of its settings."""

    def objective(self) -> Objective:
        return CrossEntropy()


class Counting(Good):
    """Sends another update in round 3 from a device that has done more tasks than were merged."""

    keeps_if_accepted = keeps_lost_work = True

    def answer(self, task: Any, device: Any, result: Any) -> Any:
        sent = super().answer(task, device, result)
        none = {"count": np.zeros(1, np.int64)}
        done, merged = (device.private.get(key, none)["count"] for key in ("done", "merged"))
        if task.round == 3 and done > merged:
            delta = {k: 2 * a for k, a in sent.groups["delta"].arrays.items()}
            sent = replace(sent, groups={"delta": Group(delta)})
        one_more: Any = {"merged": {"count": merged + 1}}
        return replace(sent, private={"done": {"count": done + 1}}, if_accepted=one_more)


class Partial(Good):
    """Does not ask the last device."""

    def plan(self, state: Any, roster: Any, seed: int) -> Any:
        planned = super().plan(state, roster, seed)
        if isinstance(planned, Finished):
            return planned
        return replace(planned, questions=planned.questions[:-1])


class Needy(Good):
    """Needs every answer."""

    def merge(self, state: Any, exchange: Any, answers: Iterable[Any]) -> Any:
        if len(taken := list(answers)) < len(exchange.questions):
            raise UnmergeableError("An answer is missing.", code="example.missing")
        return super().merge(state, exchange, taken)


class Zero(Good):
    """Ends with an array of zeros."""

    zero = 0.0

    def weights(self, state: Any) -> Any:
        weights = super().weights(state)
        return {**weights, "out.bias": np.full_like(weights["out.bias"], self.zero)}


class Negative(Zero):
    """Ends with zeros of the other sign."""

    zero = -0.0


class Wider(Good):
    """Ends with doubles."""

    def weights(self, state: Any) -> Any:
        return {name: array.astype(np.float64) for name, array in super().weights(state).items()}


PULL = {"mu": 1.0}
CASES: list[tuple[Any, Any, dict[str, Any], str]] = [
    (Good, Scaled, {}, "^round 1: 'fc1.weight' of 'example' differs .* is 5.2.e-05$"),
    (Good, Ignoring, {"reference_settings": PULL, "settings": PULL}, "^round 1: .* differs"),
    (Good, Good, {"settings": PULL}, "^round 1: .* differs"),
    (
        Good,
        Counting,
        {"sizes": (6, 6, 6), "recipe": {"rounds": {"count": 4}}},
        "^round 3 after device-02's answer to round 1 was lost: .* differs",
    ),
    (
        "fedavg",
        Partial,
        {},
        "^round 1: the reference 'fedavg' asks 'fit' of device-00 device-01 device-02 device-03;"
        " 'example' asks 'fit' of device-00 device-01 device-02$",
    ),
    (Good, Needy, {}, "only one of .* can merge without every answer"),
    (Zero, Negative, {}, "^round 0: 'out.bias' .* the largest difference is 0$"),
    (Good, Wider, {}, "arrays of other names, shapes or types"),
    (Good, Good, {"recipe": {"algorithm": PULL}}, "pass settings"),
    (Good, Good, {"recipe": {"mdoel": {}}}, "'example': its recipe raises .*\nmdoel\n"),
    (Good, Good, {"settings": {"mo": 1}}, "'example': .* algorithm.mo: unknown key"),
    (Good, "fednova", {"recipe": {"training": {"optimizer": "adam"}}}, "fednova needs local SGD"),
    (Good, "fedavgg", {}, "'fedavgg': its name raises .*; did you mean 'fedavg'"),
    (Good, int, {}, "'int': int is no subclass of edgefed.extension.Algorithm"),
    (Good, Algorithm, {}, "'Algorithm': Algorithm does not define answer"),
]


@pytest.mark.parametrize(("reference", "kind", "given", "words"), CASES)
def test_a_difference(reference: Any, kind: Any, given: dict[str, Any], words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        check_equivalent(reference, kind, **given)


def test_weights_that_are_not_finite_prove_nothing() -> None:
    class Diverged(Good):
        def weights(self, state: Any) -> Any:
            return {
                name: array * np.float32(np.nan) for name, array in super().weights(state).items()
            }

    with pytest.raises(AssertionError, match="is not finite"):
        check_equivalent(Diverged, Diverged)


@pytest.mark.parametrize("given", [{"rtol": 0.5}, {"atol": 0.01}])
def test_a_difference_within_the_tolerance(given: dict[str, Any]) -> None:
    check_equivalent(Good, Scaled, **given)
    with pytest.raises(AssertionError, match="differs"):
        check_equivalent(Good, Scaled, **{name: value / 1e4 for name, value in given.items()})


def test_algorithms_that_need_every_answer() -> None:
    check_equivalent(Needy, Needy)
