"""A batch names its samples, so that an objective finds what an extra holds for each of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from edgefed.learn.base.types import Batch, Context, Forward, Job, Params, Samples, Schedule
from edgefed.learn.training.stacked_trainer import StackedTrainer
from edgefed.learn.training.trainer import Trainer
from tests.learn import worlds


@dataclass(frozen=True)
class Distance:
    """How far what an extra holds for the batch's samples is from these samples."""

    def __call__(
        self, forward: Forward, params: Params, batch: Batch, context: Context
    ) -> torch.Tensor:
        named = context.extra["first"][batch.rows]
        nothing = 0 * forward(params, batch.inputs).sum()
        return (named - batch.inputs[:, 0, 0, 0]).square().mean() + nothing


def job(data: Samples, seed: int, shift: int = 0) -> Job:
    first = np.roll(data.inputs[:, 0, 0, 0], shift)
    weights = worlds.model("mlp").weights()
    return Job(weights, Distance(), Schedule(2, 4, 0.1), seed, extra={"first": first})


@pytest.mark.parametrize("sizes", [(11,), (11, 7, 11)])
def test_rows_are_the_numbers_of_the_batchs_samples(sizes: tuple[int, ...]) -> None:
    data = [worlds.samples(size, seed) for seed, size in enumerate(sizes)]
    trainer, stack = Trainer(worlds.model("mlp"), "cpu"), StackedTrainer(worlds.model("mlp"), "cpu")
    for shift, is_zero in ((0, True), (1, False)):
        jobs = [job(own, seed, shift) for seed, own in enumerate(data)]
        for each in (*map(trainer.train, jobs, data), *stack.train(jobs, data)):
            assert (each.loss == 0.0) is is_zero
