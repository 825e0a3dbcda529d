"""The samples that a device trains on for a task, by the training section of that task."""

from __future__ import annotations

from typing import Any

import pytest

from edgefed.algorithms.averaging.training import trained_samples
from edgefed.wire.messages import Task


@pytest.mark.parametrize(
    ("training", "samples"),
    [({"epochs": 2}, 20), ({"epochs": 3}, 30), ({"max_steps": 1, "batch_size": 4}, 4), ({}, 10)],
)
def test_each_sample_counts_once_an_epoch(training: dict[str, Any], samples: int) -> None:
    task = Task(
        run="r-1",
        exchange="r-1-0",
        index=0,
        round=1,
        question="fit",
        device="one",
        deadline=9.0,
        seed=1,
        algorithm="fedavg",
        settings={},
        model={},
        training=training,
        codec="fp32",
        samples=10,
        blobs={},
        params={},
    )
    assert trained_samples(task, 10) == samples
