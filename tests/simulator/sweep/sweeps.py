"""A sweep that takes a moment: tiny recipes on scikit-learn's digits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgefed.api.recipe_sections import data_problems
from edgefed.config.fleet.settings_files import Surroundings
from edgefed.config.loading.load import Loaded
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.values.problems import problems_error
from edgefed.simulator.sweep.file import read_sweep
from edgefed.simulator.sweep.plan import Plan, make_plan
from edgefed.simulator.sweep.trials import TrialOutcome, TrialStep, run_trials
from tests.run_fixture import Ticking

RECIPE = """
name = "tiny"
[model]
name = "mlp"
hidden = [16]
[data]
limit = 100
partition = "iid"
[rounds]
count = 2
[simulation]
devices = 2
workers = 1
"""

GRID = """
recipe = "recipe.toml"
seeds = [1, 2]
[grid]
training.learning_rate = [0.05, 0.5]
"""


def write(folder: Path, sweep: str, recipe: str = RECIPE) -> Path:
    """Write a recipe and a sweep over it, and return the sweep's file."""
    folder.mkdir(exist_ok=True)
    (folder / "recipe.toml").write_text(recipe)
    (folder / "sweep.toml").write_text(sweep)
    return folder / "sweep.toml"


def unchecked(loaded: Loaded[Recipe]) -> Recipe:
    """Return the recipe, checked as little as a test of something else needs."""
    problems = data_problems(loaded.value, loaded.layer)
    if problems:
        raise problems_error(problems)
    return loaded.value


def planned(file: Path, **more: Any) -> Plan:
    """Return the plan of a sweep file."""
    around = Surroundings({"HOME": str(file.parent)}, file.parent, no_config=True)
    return make_plan(read_sweep(file), around, unchecked, **more)


class Swept:
    """Runs sweeps in one folder and remembers what was told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.steps: list[TrialStep] = []

    def run(self, plan: Plan, **more: Any) -> TrialOutcome:
        self.steps.clear()
        return run_trials(plan, self.folder, Ticking(), tell=self.steps.append, **more)

    def told(self, state: str) -> list[tuple[str, int]]:
        """Return case and seed of the steps of a kind."""
        found = (step for step in self.steps if step.state == state)
        return [(step.trial.case.name, step.trial.seed) for step in found]
