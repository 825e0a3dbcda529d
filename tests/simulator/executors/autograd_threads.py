"""A program that has made autograd start threads and then simulates a fleet in the folder named.

It prints the status of the run, and why a sweep with two jobs is refused.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

from edgefed.config.recipes.recipe import Recipe
from edgefed.errors import UsageError
from edgefed.process.clock import SystemClock
from edgefed.simulator.forked_autograd import forks_can_train
from edgefed.simulator.run import Simulation
from edgefed.simulator.sweep.plan import Plan, SweepCase
from edgefed.simulator.sweep.trials import run_trials
from tests.simulator.work import recipe

NESTED = 80
"""More backward passes in each other than autograd does in one thread."""


class Nested(torch.autograd.Function):
    """A copy whose backward pass contains further ones."""

    @staticmethod
    def forward(ctx: Any, left: torch.Tensor) -> torch.Tensor:
        ctx.left = int(left.item())
        return left.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        if ctx.left:
            start(ctx.left - 1)
        return gradient


def start(nested: int) -> None:
    """Do backward passes in each other."""
    with torch.enable_grad():
        Nested.apply(torch.tensor(float(nested), requires_grad=True)).backward()


def main() -> None:
    """Tell whether forks can train, before and after, and simulate."""
    before = forks_can_train()
    start(NESTED)
    sys.stdout.write(f"{json.dumps([before, forks_can_train()])}\n")
    values = recipe(2).model_dump(exclude_unset=True)
    plan = Recipe.model_validate(values | {"algorithm": {"name": "fedlc"}})
    record = Simulation(plan, Path(sys.argv[1]), SystemClock()).run().record
    sys.stdout.write(f"{record.status} {record.reason}\n")
    case = SweepCase("one", {}, plan)
    try:
        run_trials(Plan((case,), (1, 2), ()), Path(sys.argv[1]) / "out", SystemClock(), jobs=2)
    except UsageError as error:
        sys.stdout.write(f"{error.code}\n")


if __name__ == "__main__":
    main()
