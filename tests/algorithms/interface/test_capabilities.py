"""A class that overrides what a capability rests on is without it, unless it declares it again."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgefed.algorithms.averaging.fedavg import FedAvg
from edgefed.algorithms.averaging.fedopt import FedOpt
from edgefed.algorithms.averaging.ifca import IFCA
from edgefed.algorithms.composed.registry import PLUGINS, built_in, make
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.base import CAPABILITIES, Algorithm, State
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceView, Result
from edgefed.algorithms.interface.exchange import Exchange, Finished
from edgefed.algorithms.interface.member import Roster
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.models.user_code_check import check_code_fits
from edgefed.errors import EdgeFedError, RecipeError
from edgefed.learn.aggregation.exact_mean import ExactMean
from edgefed.learn.base.types import Objective, Trained
from edgefed.simulator.run import Simulation
from edgefed.testing.algorithms import check_algorithm
from tests.run_fixture import Ticking


class Normalised(FedAvg):
    """Normalized averaging: Wang et al., NeurIPS 2020, with plain local SGD."""

    name = "normalised"
    summary = "Average updates for each local step"
    paper = "Wang et al., NeurIPS 2020, arXiv 2007.07481"

    def answer(self, task: DeviceTask, device: DeviceView, result: Result) -> Answer:
        assert isinstance(result, Trained)
        sent = super().answer(task, device, result)
        steps = max(1, result.steps)
        delta = {k: (a / steps).astype(a.dtype) for k, a in sent.groups["delta"].arrays.items()}
        return replace(sent, groups={"delta": Group(delta)})

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        weights = state.groups["weights"]
        most = sum(each.samples for each in exchange.questions)
        mean, steps, samples = ExactMean(weights, most), 0, 0
        for answer in answers:
            mean.add(answer.groups["delta"].arrays, answer.samples)
            steps += round(answer.metrics.get("steps", 1.0)) * answer.samples
            samples += answer.samples
        if not samples:
            return replace(state, round=exchange.round)
        after = {k: weights[k] + steps / samples * a for k, a in mean.mean().items()}
        moved = {k: a.astype(weights[k].dtype) for k, a in after.items()}
        return replace(state, round=exchange.round, groups={**state.groups, "weights": moved})


class Averaging(Normalised):
    """Declares what is not true of it."""

    averages_updates = True


class Strict(Averaging):
    """Fails without a metric."""

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        taken = list(answers)
        assert all(each.metrics["steps"] for each in taken)
        return super().merge(state, exchange, taken)

    averages_updates = True


class Personal(Normalised):
    """Declares what does not forbid to read the number of steps."""

    personal_weights = True
    takes_user_loss = True


class Trusting(Normalised):
    """Takes a larger step where the devices' loss is large, and declares any loss."""

    takes_user_loss = True

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        taken = sorted(answers, key=lambda each: each.device)
        merged = super().merge(state, exchange, taken)
        far = sum(each.metrics.get("loss", 0.0) for each in taken) / 100
        moved = {k: (a + far).astype(a.dtype) for k, a in merged.groups["weights"].items()}
        return replace(merged, groups={**merged.groups, "weights": moved})


class Weighing(FedAvg):
    """Moves weights by the number of samples."""

    name = "normalised"
    summary = "FedAvg that moves further with more samples"
    paper = "none"

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        taken = list(answers)
        merged = super().merge(state, exchange, taken)
        far = sum(each.samples for each in taken) / 100
        moved = {k: (a + far).astype(a.dtype) for k, a in merged.groups["weights"].items()}
        return replace(merged, groups={**merged.groups, "weights": moved})


class Summing(Weighing):
    """Declares what is not true of it."""

    sums_deltas = True


class Keeping(IFCA):
    """Declares what its exchanges do not allow."""

    name = "keeping"
    personal_weights = True


class Objecting(FedAvg):
    """FedAvg with an objective of its own."""

    def objective(self) -> Objective:
        return super().objective()


class Merging:
    """Merges in its own way; no algorithm by itself."""

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        raise NotImplementedError


def declared(kind: type[Algorithm[Any]]) -> set[str]:
    return {name for name in CAPABILITIES if getattr(kind, name)}


def fednova() -> AbstractContextManager[None]:
    return PLUGINS.added("normalised", Normalised)


def test_what_is_overridden_takes_the_capabilities_away() -> None:
    class Again(Normalised):
        private_updates = True

    class Mixed(Merging, FedAvg):
        pass

    class Below(Again):
        pass

    assert declared(FedAvg) == declared(FedOpt) == set(CAPABILITIES)
    assert declared(Normalised) == set()
    assert declared(Mixed) == set()
    assert declared(Again) == declared(Below) == {"private_updates"}
    assert declared(Objecting) == set(CAPABILITIES) - {"takes_user_loss"}


def test_built_in_algorithms_declare_theirs() -> None:
    averaging = set(CAPABILITIES) - {"takes_user_loss"}
    found = {name: declared(kind) for name, kind in built_in().items()}
    assert found.pop("ifca") == {"averages_updates", "takes_user_loss"}
    assert found.pop("fedmoe") == {"averages_updates"}
    assert found.pop("pfnm") == {"takes_user_loss"}
    for name in ("fedavg", "fedopt", "fedprox"):
        assert found.pop(name) == set(CAPABILITIES)
    assert found.pop("fednova") == {"personal_weights", "takes_user_loss"}
    for name in ("fedlc", "fedrs", "fedmix", "naivemix", "localmix", "globalmix"):
        assert found.pop(name) == averaging
    for name in ("scaffold", "feddyn"):
        assert found.pop(name) == {"takes_user_loss"}
    for name in ("ditto", "moon"):
        assert found.pop(name) == {"averages_updates", "takes_user_loss"}
    assert found == {"ensemble": set(), "fedma": set(), "qfedavg": set()}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"merging": {"rule": "median"}}, "merging.algorithm"),
    ({"privacy": {"mechanism": "local", "epsilon": 8}}, "privacy.algorithm"),
    ({"privacy": {"mechanism": "central", "epsilon": 8}}, "privacy.algorithm"),
    ({"secure_aggregation": {"enabled": True}, "wire": {"uplink": "fp32"}}, "secure.unfit"),
    ({"personal": {"preset": "fedbn"}}, "personal.algorithm"),
    ({"training": {"loss": "package:loss"}}, "algorithm.loss"),
]


@pytest.mark.parametrize(("tables", "code"), REFUSED, ids=[code for _, code in REFUSED])
def test_fednova_from_fedavg_is_refused_what_it_does_not_declare(
    tables: dict[str, Any], code: str
) -> None:
    with fednova(), pytest.raises(EdgeFedError) as caught:
        recipe = Recipe.model_validate({"algorithm": {"name": "normalised"}, **tables})
        algorithm = make(recipe)
        algorithm.check_recipe(None)
        check_code_fits(recipe, algorithm)
    assert caught.value.code == code


def test_the_contract_passes_fednova_and_finds_false_declarations() -> None:
    check_algorithm(Normalised, simulate=False)
    check_algorithm(Personal, simulate=False)
    with pytest.raises(AssertionError, match=r"reads the metric loss.*user_loss = False"):
        check_algorithm(Trusting, simulate=False)
    with pytest.raises(AssertionError, match="reads metrics"):
        check_algorithm(Averaging, simulate=False)
    with pytest.raises(AssertionError, match="'fit' without metrics raises KeyError"):
        check_algorithm(Strict, simulate=False)
    with pytest.raises(AssertionError, match="does not average updates"):
        check_algorithm(Summing, simulate=False)
    with pytest.raises(AssertionError, match="personal_weights is declared"):
        check_algorithm(Keeping, simulate=False)


class Telling(FedAvg):
    """Also asks for a second role, which neither noise nor masks cover."""

    name = "normalised"
    private_updates = sums_deltas = True

    def plan(self, state: State, roster: Roster, seed: int) -> Exchange | Finished:
        planned = super().plan(state, roster, seed)
        assert isinstance(planned, Exchange)
        role = planned.reply_roles["delta"]
        return replace(planned, reply_roles={**planned.reply_roles, "moments": role})


STRIPPED: list[tuple[dict[str, Any], str]] = [
    ({"privacy": {"mechanism": "local", "noise_multiplier": 1.0}}, "privacy.algorithm"),
    ({"privacy": {"mechanism": "central", "noise_multiplier": 1.0}}, "privacy.algorithm"),
    ({"secure_aggregation": {"enabled": True}, "wire": {"uplink": "fp32"}}, "secure.unfit"),
]


@pytest.mark.parametrize(("tables", "code"), STRIPPED, ids=["local", "central", "secure"])
def test_a_role_that_would_be_stripped_is_refused_before_a_run(
    tmp_path: Path, tables: dict[str, Any], code: str
) -> None:
    small = {"data": {"limit": 60}, "simulation": {"devices": 3, "workers": 1}}
    recipe = Recipe.model_validate({"algorithm": {"name": "normalised"}, **small, **tables})
    with (
        PLUGINS.added("normalised", Telling),
        pytest.raises(RecipeError, match="moments") as caught,
    ):
        Simulation(recipe, tmp_path / "state", Ticking())
    assert caught.value.code == code
    assert not (tmp_path / "state").exists()
