"""The contract test of algorithms fails, with the reason, for each wrong example."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from typing import Any, ClassVar

import numpy as np
import pytest

from edgefed.algorithms.averaging.fedavg import AveragingSettings, FedAvg
from edgefed.algorithms.interface.answer import Group
from edgefed.algorithms.interface.base import AlgorithmSettings
from edgefed.algorithms.interface.exchange import Exchange, Finished
from edgefed.testing.algorithms import check_algorithm


class Good(FedAvg):
    """FedAvg by another name, which the others break."""

    name = "example"
    summary = "FedAvg by another name"
    paper = "none"


def moved(state: Any, amount: float) -> Any:
    weights = {
        name: (array + amount).astype(array.dtype) if array.dtype.kind == "f" else array
        for name, array in state.groups["weights"].items()
    }
    return replace(state, groups={**state.groups, "weights": weights})


class Ordered(Good):
    """Adds floats in the order of arrival."""

    def merge(self, state: Any, exchange: Any, answers: Iterable[Any]) -> Any:
        taken = list(answers)
        total = np.float32(0)
        for number, each in enumerate(taken):
            total = total * np.float32(0.9) + each.groups["delta"].arrays["out.bias"].sum() * number
        return moved(super().merge(state, exchange, taken), float(total))


class Remembering(Good):
    """Keeps a number on the object."""

    merges = 0

    def merge(self, state: Any, exchange: Any, answers: Iterable[Any]) -> Any:
        self.merges += 1
        return moved(super().merge(state, exchange, answers), 0.01 * self.merges)


class Needy(Good):
    """Reads on a later exchange what it kept on the object at the start."""

    def start(self, weights: Any, roster: Any, seed: int) -> Any:
        self.devices = len(roster)
        return super().start(weights, roster, seed)

    def merge(self, state: Any, exchange: Any, answers: Iterable[Any]) -> Any:
        return moved(super().merge(state, exchange, answers), 0.01 * self.devices)


class Unstorable(Good):
    """Has a set among the params."""

    def start(self, weights: Any, roster: Any, seed: int) -> Any:
        return replace(super().start(weights, roster, seed), params={"seen": {1}})


class NumberKeys(Good):
    """Has numbers as keys among the params, which JSON turns into text."""

    def start(self, weights: Any, roster: Any, seed: int) -> Any:
        return replace(super().start(weights, roster, seed), params={"by": {1: 2}})


class ExtraRole(Good):
    """Sends what was not asked for."""

    def answer(self, task: Any, device: Any, result: Any) -> Any:
        sent = super().answer(task, device, result)
        return replace(sent, groups={**sent.groups, "more": Group({"x": np.zeros(1, np.float32)})})


class LackingRole(Good):
    """Does not send what was asked for."""

    def answer(self, task: Any, device: Any, result: Any) -> Any:
        return replace(super().answer(task, device, result), groups={})

    def merge(self, state: Any, exchange: Any, answers: Iterable[Any]) -> Any:
        return moved(replace(state, round=exchange.round), 0.1 * len(list(answers)))


class Doubled(Good):
    """Sends doubles where floats are declared."""

    def answer(self, task: Any, device: Any, result: Any) -> Any:
        sent = super().answer(task, device, result)
        wide = {k: a.astype(np.float64) for k, a in sent.groups["delta"].arrays.items()}
        return replace(sent, groups={"delta": Group(wide)})


class Huge(Good):
    """Sends more than it declares as the largest."""

    def answer(self, task: Any, device: Any, result: Any) -> Any:
        sent = super().answer(task, device, result)
        far = {k: a + np.float32(2) for k, a in sent.groups["delta"].arrays.items()}
        return replace(sent, groups={"delta": Group(far)})

    def plan(self, state: Any, roster: Any, seed: int) -> Any:
        planned = super().plan(state, roster, seed)
        if isinstance(planned, Finished):
            return planned
        roles = {k: replace(role, largest=1.0) for k, role in planned.reply_roles.items()}
        return replace(planned, reply_roles=roles)


class GlobalDraw(Good):
    """Draws from NumPy's global generator on the device."""

    def prepare(self, task: Any, device: Any) -> Any:
        np.random.default_rng(task.seed)
        np.random.random()
        return super().prepare(task, device)


class Unseeded(Good):
    """Draws from a generator that nobody seeded."""

    def answer(self, task: Any, device: Any, result: Any) -> Any:
        sent = super().answer(task, device, result)
        noise = np.float32(np.random.default_rng().normal())
        noised = {k: a + noise * np.float32(0.01) for k, a in sent.groups["delta"].arrays.items()}
        return replace(sent, groups={"delta": Group(noised)})


class Overwriting(Good):
    """Adds to the state's own arrays."""

    def merge(self, state: Any, exchange: Any, answers: Iterable[Any]) -> Any:
        merged = super().merge(state, exchange, answers)
        state.groups["weights"]["out.bias"][:] = 0.5
        return merged


class Endless(Good):
    """Never says that it is finished."""

    def plan(self, state: Any, roster: Any, seed: int) -> Any:
        planned = super().plan(replace(state, round=0), roster, seed)
        assert isinstance(planned, Exchange)
        return planned

    def merge(self, state: Any, exchange: Any, answers: Iterable[Any]) -> Any:
        return replace(state, round=0)


class Restless(Good):
    """Moves the weights although nobody answered."""

    def merge(self, state: Any, exchange: Any, answers: Iterable[Any]) -> Any:
        return moved(super().merge(state, exchange, answers), 0.1)


class AsksRounds(Good):
    """Reads on the device what only the coordinator has."""

    def prepare(self, task: Any, device: Any) -> Any:
        assert self.rounds.count
        return super().prepare(task, device)


class Numpy(Good):
    """Asks with a NumPy number, which JSON does not have."""

    def plan(self, state: Any, roster: Any, seed: int) -> Any:
        planned = super().plan(state, roster, seed)
        if isinstance(planned, Finished):
            return planned
        asked = tuple(replace(q, params={"k": np.int64(1)}) for q in planned.questions)
        return replace(planned, questions=asked)


class Undescribed(AveragingSettings):
    """Settings with a key that nothing describes."""

    secret: bool = False


class Unranged(AveragingSettings):
    """Settings with a number that has no range."""

    rate: float = 1.0
    """A number."""


class Undocumented(Good):
    """Has a setting without a docstring."""

    Settings: ClassVar[type[AlgorithmSettings]] = Undescribed


class Boundless(Good):
    """Has a number without a range."""

    Settings: ClassVar[type[AlgorithmSettings]] = Unranged


class Nameless(Good):
    """Has no summary."""

    summary = ""


class Unseen(Good):
    """Has a view that fails."""

    def view(self, state: Any) -> Any:
        return state.groups["nothing"]


class Listed(Good):
    """Shows something that is no table."""

    def view(self, state: Any) -> Any:
        return (state.round,)


class Taking(Good):
    """Has the name of one of EdgeFed's."""

    name = "fedavg"


class Hasty(Good):
    """Adds to each update that of the device's answer before, merged or not."""

    def answer(self, task: Any, device: Any, result: Any) -> Any:
        sent = super().answer(task, device, result)
        arrays = sent.groups["delta"].arrays
        before = device.private.get("before", {name: 0 * array for name, array in arrays.items()})
        both = {name: array + before[name] for name, array in arrays.items()}
        return replace(sent, groups={"delta": Group(both)}, private={"before": arrays})


class Unsaid(Good):
    """Keeps state for a merge, and does not declare it."""

    def answer(self, task: Any, device: Any, result: Any) -> Any:
        kept: Any = {"own": {"count": np.ones(1, np.float32)}}
        return replace(super().answer(task, device, result), if_accepted=kept)


ALGORITHMS = {
    Ordered: "depends on the order of the answers",
    Unseen: "view raises KeyError",
    Listed: "view returns int, not MethodTable",
    Remembering: "something is kept outside State",
    Needy: "a run that is resumed after each exchange fails: merge of 'fit' raises AttributeError",
    Unstorable: "storing the state's params as JSON raises TypeError",
    NumberKeys: "its keys must be text",
    ExtraRole: "it has a role 'more', which reply_roles does not name",
    LackingRole: "it lacks the role 'delta'",
    Doubled: "float64",
    Huge: "above its largest, 1",
    GlobalDraw: "draws from the global generator of numpy",
    Unseeded: "has another state after exchange",
    Overwriting: "changes the state, which it must only read",
    Endless: "it is not finished after 100 exchanges",
    Restless: "without answers changes the weights",
    AsksRounds: "has no rounds",
    Numpy: "params as JSON raises TypeError",
    Undocumented: "the setting 'secret' has no docstring",
    Boundless: "the number 'rate' has no range",
    Nameless: "has no summary",
    Taking: "EdgeFed has an algorithm 'fedavg'",
    Hasty: "a device whose answer was not merged goes on as if it had been",
    Unsaid: "the algorithm does not declare keeps_if_accepted",
}


def test_the_good_algorithm_passes() -> None:
    check_algorithm(Good)


@pytest.mark.parametrize("kind", ALGORITHMS, ids=lambda kind: kind.__name__)
def test_a_wrong_algorithm(kind: type[Good]) -> None:
    with pytest.raises(AssertionError) as caught:
        check_algorithm(kind, simulate=False)
    assert ALGORITHMS[kind] in str(caught.value)


LOCAL = {"mechanism": "local", "noise_multiplier": 1.0}
COVERED: dict[str, dict[str, Any]] = {
    "images": {"images": {"mean": [0.5], "std": [0.25]}},
    "personal": {"personal": {"preset": "biased"}},
    "local privacy": {"privacy": LOCAL},
    "central privacy": {"privacy": {"mechanism": "central", "noise_multiplier": 1.0}},
    "secure aggregation": {"secure_aggregation": {"enabled": True}, "wire": {"uplink": "fp32"}},
}


class ByLoss(Good):
    """Reads a metric that devices do not send under local privacy, and says that it may."""

    private_updates = True

    def merge(self, state: Any, exchange: Any, answers: Iterable[Any]) -> Any:
        taken = list(answers)
        loss = sum(each.metrics["loss"] for each in taken)
        return moved(super().merge(state, exchange, taken), 0.01 * loss if taken else 0)


class Scaled(Good):
    """Trains only on inputs that the recipe scales."""

    def prepare(self, task: Any, device: Any) -> Any:
        assert self.images.mean == (0.5,)
        return super().prepare(task, device)


class Keeping(Good):
    """Counts its answers in what a device keeps, which has one of each earlier round."""

    keeps_lost_work = True

    def answer(self, task: Any, device: Any, result: Any) -> Any:
        before = device.device_state.get("answers", {"count": np.zeros(1, np.int64)})
        assert before["count"].tolist() == [len(device.ledger)] == [task.round - 1]
        return replace(
            super().answer(task, device, result),
            device_state={"answers": {"count": before["count"] + 1}},
            ledger=({"round": task.round},),
        )


@pytest.mark.parametrize("tables", COVERED.values(), ids=COVERED)
def test_the_good_algorithm_passes_with_what_a_recipe_adds(tables: dict[str, Any]) -> None:
    check_algorithm(FedAvg, recipe=tables, simulate=False)


def test_a_device_keeps_its_state_and_ledger_from_task_to_task() -> None:
    check_algorithm(Keeping, simulate=False)


def test_the_devices_half_has_the_tables_of_a_task() -> None:
    check_algorithm(Scaled, recipe=COVERED["images"], simulate=False)


def test_the_devices_half_answers_as_in_a_run_with_privacy() -> None:
    with pytest.raises(AssertionError, match="merge of 'fit' raises KeyError: 'loss'"):
        check_algorithm(ByLoss, recipe={"privacy": LOCAL})


def test_an_algorithm_that_only_simulations_show_to_be_wrong() -> None:
    calls = count()

    class Late(Good):
        """Moves its later answers: those of the second simulation."""

        def answer(self, task: Any, device: Any, result: Any) -> Any:
            sent = super().answer(task, device, result)
            if next(calls) < 55:
                return sent
            arrays = {k: a + np.float32(0.01) for k, a in sent.groups["delta"].arrays.items()}
            return replace(sent, groups={"delta": Group(arrays)})

    with pytest.raises(AssertionError, match="two simulations of the same recipe"):
        check_algorithm(Late)
