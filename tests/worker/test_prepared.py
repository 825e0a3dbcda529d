"""A task in two halves, with training elsewhere in between."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from edgefed.algorithms.interface.device_side import EvalJob
from edgefed.config.recipes.recipe import ModelSection
from edgefed.errors import DataError
from edgefed.learn.base.types import Job, Tensors
from edgefed.learn.modeling.model_building import build
from edgefed.wire.messages import Task
from edgefed.worker.outcomes import Outcome
from edgefed.worker.prepared_tasks import Prepared, complete, finish
from edgefed.worker.trainer_cache import TrainerCache
from edgefed.worker.worker import Worker
from tests.run_fixture import CLASSES, SHAPE, samples
from tests.worker.tasks import read, task, work, worker


def begun(given: Task, **private: Tensors) -> Prepared:
    prepared = worker().begin(given, read, private)
    assert isinstance(prepared, Prepared)
    return prepared


@pytest.mark.parametrize("codec", ["fp32", "int8"])
def test_the_halves_come_to_what_the_whole_comes_to(codec: str) -> None:
    given = task(codec=codec, error_feedback=True)
    whole, first = work(given), begun(given)
    assert isinstance(first.work, Job)
    trained = first.trainer.train(first.work, first.view.train)
    for outcome in (finish(first, trained), complete(begun(given))):
        assert (outcome.status, outcome.metrics) == ("ok", whole.metrics)
        assert outcome.blobs == whole.blobs
        assert outcome.private.keys() == whole.private.keys()


def test_an_exam_waits_for_its_trainer_too() -> None:
    given = task(question="evaluate")
    first = begun(given)
    assert isinstance(first.work, EvalJob)
    assert complete(first) == work(given)


def test_what_a_device_refuses_or_cannot_prepare_is_an_outcome_at_once() -> None:
    refused = worker(0).begin(task(), read, {})
    failed = worker().begin(task(settings={"weighing": 1}), read, {})
    assert isinstance(refused, Outcome)
    assert isinstance(failed, Outcome)
    assert (refused.status, failed.status) == ("refused", "failed")


def test_a_training_that_failed_is_the_devices_failure() -> None:
    outcome = finish(begun(task()), DataError("Training diverged."))
    assert (outcome.status, outcome.reason) == ("failed", "Training diverged.  [data.invalid]")


def leaving(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a module that ends the program once it is trained."""

    class Leaving(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> Any:
            if self.training:
                raise SystemExit(3)
            return super().forward(inputs)

    return Leaving(shape[0], classes)


def test_a_users_model_cannot_end_the_program() -> None:
    model = {"name": f"{__name__}:leaving"}
    section = ModelSection.model_validate(model)
    weights = build(section, SHAPE, CLASSES, 1, allow_user=True).weights()
    hands = Worker(TrainerCache("cpu", user_models=True), samples(9, 1), samples(5, 2))
    outcome = hands.work(task(model=model), lambda _role: weights, {})
    assert outcome.status == "failed"
    assert outcome.reason.startswith(
        f"The model {__name__}:leaving failed in forward: SystemExit: 3"
    )
