"""Settings of SCAFFOLD, and the training that its formulas are for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from edgefed.extension import AlgorithmSettings, RecipeError, TrainingSection

PLAIN: Mapping[str, object] = {
    "optimizer": "sgd",
    "momentum": 0.0,
    "nesterov": False,
    "schedule": "constant",
    "warm_up": 0.0,
    "max_gradient_norm": 0.0,
}
"""Values of the recipe's training table with which (x - y_i) / (K η) is the mean gradient."""


class ScaffoldSettings(AlgorithmSettings):
    """Keys of the recipe's ``[algorithm]`` table."""

    server_learning_rate: Annotated[float, Field(gt=0, le=100)] = 1.0
    """η_g: step size along the mean of the devices' updates."""

    clients: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """N: number of devices over all rounds; 0 for those that are there when the run starts."""


def check_training(training: TrainingSection) -> None:
    """Check that devices take plain steps of one size.

    Raises:
        RecipeError: they do not.
    """
    values = training.model_dump()
    for key, wanted in PLAIN.items():
        if values.get(key, wanted) != wanted:
            raise RecipeError(
                f"scaffold needs plain SGD, but training.{key} is {values[key]!r}.",
                code="scaffold.training",
                hint=f"set training.{key} = {json.dumps(wanted)}",
            )
