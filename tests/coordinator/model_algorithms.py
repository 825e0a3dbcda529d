"""Algorithms whose models change, are several, or differ from what devices train."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from edgefed.algorithms.averaged_data.fedmix import FedMix
from edgefed.algorithms.averaging.fedavg import FedAvg, delta_role
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Exchange, Finished, Payload
from edgefed.algorithms.interface.member import Roster
from edgefed.algorithms.matched.matched_layers import LayerMatch, matched_table
from edgefed.config.recipes.recipe import ModelSection, Recipe
from edgefed.events.base.method_tables import MethodTable
from edgefed.learn.base.types import Tensors
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import build
from edgefed.learn.training.scoring import Predict, Predictor
from tests.run_fixture import CLASSES, SHAPE

STEP = 2
"""Hidden units that a widening model gains each round."""


def network(hidden: int) -> ModelSection:
    return ModelSection.model_validate({"name": "mlp", "hidden": [hidden]})


def of(kind: type[FedAvg], plan: Recipe) -> FedAvg:
    """Return the algorithm with the recipe's tables and default settings."""
    settings = kind.Settings.model_validate(plan.algorithm.settings())
    return kind(settings, plan.training, plan.rounds)  # type: ignore[arg-type]


class Widening(FedAvg):
    """Gives the hidden layer more units after each round."""

    def model(self, state: State) -> ModelSection | None:
        return network(len(state.groups["weights"]["fc1.bias"]))

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        merged = super().merge(state, exchange, answers)
        return replace(merged, groups={**merged.groups, "weights": wider(merged)})


def wider(state: State) -> Tensors:
    grown = {"fc1.weight": (0, STEP), "fc1.bias": (0, STEP), "out.weight": (1, STEP)}
    wider: Tensors = {}
    for name, array in state.groups["weights"].items():
        pads = [(0, 0)] * array.ndim
        if name in grown:
            axis, more = grown[name]
            pads[axis] = (0, more)
        wider[name] = np.pad(array, pads, constant_values=0.25 * state.round)
    return wider


class TwoModels(FedAvg):
    """Keeps the weights of the round before; both models predict together."""

    def start(self, weights: Tensors, roster: Roster, seed: int) -> State:
        state = super().start(weights, roster, seed)
        return replace(state, groups={**state.groups, "before": weights})

    def plan(self, state: State, roster: Roster, seed: int) -> Exchange | Finished:
        planned = super().plan(state, roster, seed)
        return planned if isinstance(planned, Finished) else _with_before(planned, state)

    def evaluation(self, state: State, roster: Roster, seed: int) -> Exchange:
        return _with_before(super().evaluation(state, roster, seed), state)

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        merged = super().merge(state, exchange, answers)
        return replace(merged, groups={**merged.groups, "before": state.groups["weights"]})

    def models(self, state: State) -> Mapping[str, Tensors]:
        return {"now": state.groups["weights"], "before": state.groups["before"]}

    def predictor(self, state: State, predict: Predict) -> Predictor:
        both = tuple(self.models(state).values())
        return lambda inputs: np.mean([predict(each, inputs) for each in both], axis=0)


def _with_before(exchange: Exchange, state: State) -> Exchange:
    asked = (replace(q, blobs={**q.blobs, "before": "before"}) for q in exchange.questions)
    payloads = {**exchange.payloads, "before": Payload(state.groups["before"])}
    return replace(exchange, questions=tuple(asked), payloads=payloads)


class Student(FedAvg):
    """Trains a network of three hidden units beside the recipe's own, and refuses large losses."""

    judged: set[int]

    def start(self, weights: Tensors, roster: Roster, seed: int) -> State:
        state = super().start(weights, roster, seed)
        student = build(network(3), SHAPE, CLASSES, 5).weights()
        return replace(state, groups={**state.groups, "student": student})

    def plan(self, state: State, roster: Roster, seed: int) -> Exchange | Finished:
        planned = super().plan(state, roster, seed)
        if isinstance(planned, Finished):
            return planned
        student = state.groups["student"]
        return replace(
            planned,
            payloads={"weights": Payload(student)},
            reply_roles={"delta": delta_role(student)},
            model=network(3),
        )

    def reject_reason(self, exchange: Exchange, answer: Answer, model: Model) -> str:
        assert exchange.model is not None
        (hidden,) = exchange.model.model_dump()["hidden"]
        wide = len(model.weights()["fc1.bias"])
        return "" if wide == hidden else f"{wide} hidden units instead of {hidden}"

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        inner = replace(state, groups={**state.groups, "weights": state.groups["student"]})
        merged = super().merge(inner, exchange, answers)
        groups = {**merged.groups, "student": merged.groups["weights"]}
        return replace(merged, groups={**groups, "weights": state.groups["weights"]})


class WideningMix(Widening, FedMix):
    """Widens, with averaged data."""


class TwoModelsMix(TwoModels, FedMix):
    """Keeps two models, with averaged data."""


class StudentMix(Student, FedMix):
    """Trains a smaller network, with averages of its hidden states."""


class Renaming(FedAvg):
    """Sends the weights under a new name each round."""

    def plan(self, state: State, roster: Roster, seed: int) -> Exchange | Finished:
        planned = super().plan(state, roster, seed)
        if isinstance(planned, Finished):
            return planned
        name = f"weights-{planned.round}"
        return replace(
            planned,
            questions=tuple(replace(q, blobs={"weights": name}) for q in planned.questions),
            payloads={name: planned.payloads["weights"]},
            retired=frozenset({f"weights-{planned.round - 1}"}),
        )


LAYERS = ("conv1", "fc1")
"""What a layerwise algorithm says that it matches, in this order."""

LOCAL = 4
"""Units of each of those layers on a device."""


class Layerwise(FedAvg):
    """Averages; says that it matches the layers, one in each exchange of a round."""

    def plan(self, state: State, roster: Roster, seed: int) -> Exchange | Finished:
        planned = super().plan(state, roster, seed)
        if isinstance(planned, Finished):
            return planned
        number = state.params.get("matched", 0)
        last = number == len(LAYERS) - 1
        detail = f"{LAYERS[number]}, {number + 1} of {len(LAYERS)}"
        return replace(planned, name="layer", detail=detail, preparatory=not last)

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        if exchange.preparatory:
            devices = sum(1 for _ in answers)
            return replace(state, params={**state.params, "matched": 1, "devices": devices})
        return replace(
            super().merge(state, exchange, answers),
            params={"devices": state.params["devices"]},
        )

    def view(self, state: State) -> tuple[MethodTable, ...]:
        number = state.params.get("matched", 0)  # in the round under way; 0 between rounds
        begun = state.round + (number > 0)
        layers = [
            matched(name, begun if index < (number or len(LAYERS)) else state.round)
            for index, name in enumerate(LAYERS)
        ]
        growth = 1 + state.round / 8 if state.round else None
        found = number or (len(LAYERS) if state.round else 0)
        return (matched_table(layers, begun, found, state.params.get("devices", 0), growth),)

    def round_metrics(self, state: State) -> dict[str, float]:
        return {"growth": 1 + state.round / 8} if state.round else {}


def matched(name: str, number: int) -> LayerMatch:
    """Return what a layerwise algorithm says of a layer that was matched in a round."""
    if number == 0:
        return LayerMatch(name, LOCAL)
    objective = -number / 3 if name == LAYERS[0] else None
    return LayerMatch(name, LOCAL, LOCAL + number + len(name), 4 / (number + 2), objective)
