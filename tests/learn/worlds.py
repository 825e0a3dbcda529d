"""Small models and samples that the tests of the learning core train."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn

from edgefed.config.recipes.recipe import ModelSection
from edgefed.learn.base.types import Job, Objective, Samples, Schedule
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import build
from edgefed.learn.objectives.cross_entropy import CrossEntropy

SHAPE = (1, 8, 8)
CLASSES = 3


def samples(count: int = 20, seed: int = 0, shape: tuple[int, ...] = SHAPE) -> Samples:
    """Return labelled noise, shifted by its label so that there is something to learn."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count)
    noise = rng.standard_normal((count, *shape)) + labels.reshape(-1, *[1] * len(shape))
    return Samples(noise.astype(np.float32), labels)


def model(name: str = "mlp", seed: int = 1, **settings: Any) -> Model:
    return build(ModelSection(name=name, **settings), SHAPE, CLASSES, seed)


def normalised_model(seed: int = 1) -> Model:
    """Return a model with batch normalisation, which carries buffers."""
    plain = model("mlp", seed, hidden=[6])
    layers = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), *list(plain.module.children())[1:])
    return Model(layers, SHAPE, CLASSES)


def job(
    trained: Model,
    schedule: Schedule | None = None,
    *,
    objective: Objective | None = None,
    seed: int = 5,
    frozen: frozenset[str] = frozenset(),
) -> Job:
    return Job(
        trained.weights(),
        objective or CrossEntropy(),
        schedule or Schedule(batch_size=6),
        seed,
        frozen=frozen,
    )
