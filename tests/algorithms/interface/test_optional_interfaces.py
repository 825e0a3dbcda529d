"""An algorithm has twelve methods, and optional interfaces; wrappers leave out none."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.averaging.fedavg import AveragingSettings, FedAvg
from edgefed.algorithms.composed.method import Method
from edgefed.algorithms.interface.base import CAPABILITIES, Algorithm, State
from edgefed.algorithms.interface.optional_interfaces import (
    AnswerGroups,
    BountyOrders,
    CompleteAlgorithm,
    DeviceTests,
    RecipeNeeds,
    Recovery,
    RoundMetrics,
    SavedModels,
)
from edgefed.algorithms.interface.wrapped_algorithm import ATTRIBUTES, WrappedAlgorithm, complete
from edgefed.config.recipes.recipe import Recipe

INTERFACES = (
    AnswerGroups,
    BountyOrders,
    DeviceTests,
    RecipeNeeds,
    Recovery,
    RoundMetrics,
    SavedModels,
)
STATE = State(3, {"weights": {"w": np.ones(2, np.float32)}})


def methods(kind: type[object]) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if name[0] != "_"}


class Minimal(Algorithm[AveragingSettings]):
    """What every algorithm has, and a method of an interface that it does not inherit."""

    name, summary, paper = "minimal", "Nothing", "none"
    averages_updates = True
    start, plan = FedAvg.start, FedAvg.plan
    merge, prepare, answer = FedAvg.merge, FedAvg.prepare, FedAvg.answer

    def models(self, state: State) -> dict[str, Any]:
        return {"first": self.weights(state), "second": self.weights(state)}


class Told(FedAvg):
    """Returns which of its methods was called, and with what."""

    def __getattribute__(self, name: str) -> Any:
        if name not in methods(CompleteAlgorithm):
            return super().__getattribute__(name)
        return lambda *arguments, **named: (name, arguments, named)


def made(kind: type[Algorithm[Any]]) -> Algorithm[Any]:
    recipe = Recipe()
    return Method.of(recipe, AveragingSettings()).bare(kind, recipe.rounds)


def test_an_algorithm_has_twelve_methods() -> None:
    assert len(methods(Algorithm) | {"rounds"}) == 12
    optional = [methods(each) - methods(Algorithm) for each in INTERFACES]
    assert all(optional)
    assert len(set().union(*optional)) == sum(map(len, optional)), "each is of one interface"
    assert methods(CompleteAlgorithm) == methods(Algorithm).union(*optional)


@pytest.mark.parametrize("name", sorted(methods(CompleteAlgorithm)))
def test_a_wrapper_calls_every_method_of_the_algorithm_inside(name: str) -> None:
    wrapped = WrappedAlgorithm(made(Told))  # type: ignore[arg-type]
    places = list(inspect.signature(getattr(CompleteAlgorithm, name)).parameters)[1:]
    given = [f"<{place}>" for place in places]
    assert getattr(wrapped, name)(*given) == (name, tuple(given), {})


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_a_wrapper_has_every_attribute_of_the_algorithm_inside(name: str) -> None:
    inner = made(Told)
    setattr(inner, name, "another")
    assert getattr(WrappedAlgorithm(inner), name) == "another"  # type: ignore[arg-type]
    assert {*Algorithm.__annotations__} - {"Settings", "simulation_only"} <= {*ATTRIBUTES}
    assert {*CAPABILITIES, "evaluation_place", "evaluation_modes"} <= {*ATTRIBUTES}


def test_an_algorithm_with_every_interface_is_not_wrapped() -> None:
    algorithm = made(FedAvg)
    assert complete(algorithm) is algorithm


def test_an_algorithm_is_completed_with_defaults_and_keeps_what_it_has() -> None:
    algorithm = complete(made(Minimal))
    assert not isinstance(algorithm.inner, CompleteAlgorithm)  # type: ignore[attr-defined]
    assert (algorithm.name, algorithm.averages_updates) == ("minimal", True)
    assert list(algorithm.models(STATE)) == ["first", "second"], "its own"
    assert algorithm.model(STATE) is None
    assert algorithm.round_metrics(STATE) == {}
    assert algorithm.needs_simulation() == ""
    assert algorithm.can_carry_state() is False
    predicted = algorithm.predictor(
        STATE,
        lambda weights, inputs: weights["w"] * inputs,  # type: ignore[arg-type]
    )
    assert predicted(np.array([2.0, 3.0])).tolist() == [2.0, 3.0]
    assert algorithm.evaluation(STATE, (), 1).round == 3
    assert algorithm.evaluation_place == "coordinator"
    assert algorithm.weights(STATE) is STATE.groups["weights"]
