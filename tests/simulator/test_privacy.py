"""Private simulations: with the same noise, every executor gives the same bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.data.base.types import Shard
from edgefed.errors import RecipeError
from edgefed.process.clock import SystemClock
from edgefed.report.page import report
from edgefed.report.run_data import run_data_of_folder
from edgefed.simulator.executors import Executor, Sequential
from edgefed.simulator.run import Simulation
from edgefed.wire.messages import Task
from tests.simulator.work import finished, made_by, process_pool
from tests.support.private_randomness import of_round

pytestmark = pytest.mark.forks


def from_task(task: Task) -> np.random.Generator:
    return np.random.default_rng(task.seed)


MakeExecutor = Callable[[Sequence[Shard]], Executor]

EXECUTORS: dict[str, MakeExecutor] = {
    "alone": lambda parts: Sequential(parts, private_randomness=from_task),
    "pool": lambda parts: process_pool(parts, 2, from_task),
}


def recipe(**privacy: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "seed": 5,
            "model": {"name": "mlp", "hidden": [8]},
            "data": {"name": "digits", "limit": 160, "partition": "iid"},
            "rounds": {"count": 2, "cohort": 3},
            "privacy": {"noise_multiplier": 2.0, **privacy},
            "simulation": {"devices": 4, "workers": 1},
        }
    )


def test_all_executors_give_the_same_bits_with_the_same_noise(tmp_path: Path) -> None:
    plan = recipe(mechanism="local")
    found = [
        finished(plan, tmp_path / name, executors=made_by(make), randomness=of_round)
        for name, make in EXECUTORS.items()
    ]
    assert len({each.record.weights_digest for each in found}) == 1
    assert len({each.record.epsilon for each in found}) == 1
    assert found[0].record.epsilon
    plain = finished(plan, tmp_path / "plain").record
    assert plain.weights_digest != found[0].record.weights_digest
    assert plain.epsilon == found[0].record.epsilon


def test_a_simulation_beyond_its_budget_is_refused_before_it_exists(tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        Simulation(recipe(mechanism="central", epsilon=1.0), tmp_path, SystemClock())
    assert caught.value.code == "privacy.budget"
    assert not (tmp_path / "runs").exists()


def test_a_report_tells_epsilon(tmp_path: Path) -> None:
    done = finished(recipe(mechanism="central"), tmp_path)
    page = report(run_data_of_folder(done.folder))
    assert "epsilon" in page
    assert f"{done.record.epsilon:.4g}" in page
