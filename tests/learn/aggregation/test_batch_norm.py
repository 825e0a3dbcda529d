"""Batch normalisation in training: no batch of one sample, and statistics that can be averaged."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgefed.errors import DataError
from edgefed.learn.aggregation.exact_mean import ExactMean
from edgefed.learn.base.types import Batch, Context, Forward, Job, Params, Schedule
from edgefed.learn.modeling.model import Model
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.samples.sample_order import batch_sizes, planned_steps
from edgefed.learn.training.trainer import Trainer
from tests.learn import worlds


@pytest.mark.parametrize(
    ("count", "apart", "paired"),
    [
        (7, [3, 3, 1], [3, 4]),
        (8, [3, 3, 2], [3, 3, 2]),
        (6, [3, 3], [3, 3]),
        (4, [3, 1], [4]),
        (2, [2], [2]),
        (1, [1], [1]),
    ],
)
def test_a_single_sample_that_is_left_over_joins_the_batch_before(
    count: int, apart: list[int], paired: list[int]
) -> None:
    schedule = Schedule(epochs=2, batch_size=3)
    assert batch_sizes(count, schedule) == apart
    assert batch_sizes(count, schedule, pairs=True) == paired
    assert planned_steps(count, schedule, pairs=True) == 2 * len(paired)
    assert planned_steps(count, Schedule(2, 3, max_steps=2), pairs=True) == 2


def batches(model: Model, count: int) -> list[int]:
    sizes: list[int] = []

    def objective(forward: Forward, params: Params, batch: Batch, context: Context) -> torch.Tensor:
        sizes.append(len(batch.inputs))
        return CrossEntropy()(forward, params, batch, context)

    job = Job(model.weights(), objective, Schedule(2, 6), 1)
    trained = Trainer(model, "cpu").train(job, worlds.samples(count))
    assert trained.steps == len(sizes)
    return sizes


def test_only_a_model_with_batch_normalisation_merges_its_last_batch() -> None:
    assert batches(worlds.normalised_model(), 13) == [6, 7, 6, 7]
    assert batches(worlds.model(), 13) == [6, 6, 1, 6, 6, 1]


@pytest.mark.parametrize(("count", "size"), [(1, 6), (5, 1)])
def test_batches_of_one_sample_throughout_are_a_clear_error(count: int, size: int) -> None:
    model = worlds.normalised_model()
    with pytest.raises(DataError, match="batch of one sample") as caught:
        Trainer(model, "cpu").train(worlds.job(model, Schedule(1, size)), worlds.samples(count))
    assert caught.value.code == "train.batch_norm"


def test_running_statistics_are_averaged_by_their_changes_whatever_their_size() -> None:
    """What is averaged is the change, so a variance above the bound of a merge is no obstacle."""
    start = {"running_var": np.full(2, 500, np.float32), "num_batches_tracked": np.array(90)}
    mean = ExactMean(start, 3)
    for change, count, weight in ((-8.0, 4, 1), (4.0, 1, 2)):
        delta = {
            "running_var": np.full(2, change, np.float32),
            "num_batches_tracked": np.array(count),
        }
        mean.add(delta, weight)
    merged = mean.mean()
    assert merged["running_var"].tolist() == [0, 0]
    assert merged["num_batches_tracked"] == 2
