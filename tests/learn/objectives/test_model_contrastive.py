"""The contrastive loss of models leaves the models that it compares with as they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edgefed.learn.base.types import Schedule, Tensors
from edgefed.learn.modeling.model import Model
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.model_contrastive import ModelContrastive, compared_with
from edgefed.learn.training.trainer import Trainer
from tests.learn import worlds


def trained(model: Model, near: Tensors, far: Tensors, mu: float = 1.0) -> Tensors:
    objective = ModelContrastive(CrossEntropy(), model, mu, 0.5)
    job = worlds.job(model, Schedule(2, 6), objective=objective)
    job = replace(job, extra=compared_with(near, far))
    return Trainer(model, "cpu").train(job, worlds.samples()).weights


def test_running_statistics_of_the_compared_models_stay() -> None:
    model = worlds.normalised_model()
    near, far = model.weights(), worlds.normalised_model(2).weights()
    before = {name: array.copy() for name, array in (near | far).items()}
    after = trained(model, near, far)
    assert all(np.array_equal(array, before[name]) for name, array in (near | far).items())
    plain = worlds.job(model, Schedule(2, 6))
    means = Trainer(model, "cpu").train(plain, worlds.samples()).weights["1.running_mean"]
    assert np.array_equal(after["1.running_mean"], means), "of its own samples alone"


def test_equal_models_give_no_gradient() -> None:
    model = worlds.model(hidden=[5])
    plain = Trainer(model, "cpu").train(worlds.job(model, Schedule(2, 6)), worlds.samples())
    same = worlds.model(seed=4, hidden=[5]).weights()
    for name, array in trained(model, same, same, 5.0).items():
        assert array == pytest.approx(plain.weights[name], rel=1e-4, abs=1e-5)
