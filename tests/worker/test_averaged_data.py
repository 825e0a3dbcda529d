"""A device with averaged data of others, and a device that is asked for its own."""

from __future__ import annotations

import numpy as np
import pytest

from edgefed.learn.base.types import Tensors
from edgefed.sharing.policy import Policy
from edgefed.wire.messages import BlobRef
from edgefed.wire.tensors import digest, pack
from edgefed.worker.outcomes import Outcome
from edgefed.worker.trainer_cache import TrainerCache
from edgefed.worker.worker import Worker, read_blob
from tests.run_fixture import CLASSES, SHAPE, samples
from tests.worker.tasks import task, weights, work


def entries(shape: tuple[int, ...] = SHAPE, classes: int = CLASSES) -> Tensors:
    return {
        "inputs": np.ones((2, *shape), np.float32),
        "targets": np.full((2, classes), 1 / classes, np.float32),
    }


def trained_with(averaged: Tensors) -> Outcome:
    """Return what comes of a ``fit`` task with these averaged data beside the weights."""
    blobs = {"weights": weights(), "averaged": averaged}
    packed = {role: pack(arrays) for role, arrays in blobs.items()}
    refs = {role: BlobRef(digest=digest(data), size=len(data)) for role, data in packed.items()}
    device = Worker(TrainerCache("cpu"), samples(9, 1), samples(5, 2))
    given = task(algorithm="fedmix", blobs=refs)
    return device.work(given, lambda role: read_blob(packed[role]), {})


def test_a_stack_that_fits_is_trained_with() -> None:
    outcome = trained_with(entries())
    assert (outcome.status, outcome.samples) == ("ok", 9)


@pytest.mark.parametrize(
    ("averaged", "reason"),
    [
        (entries(shape=(9,)), "inputs are (9,), not (8,)"),
        (entries(classes=4), "targets are (4,), not (3,)"),
        ({"inputs": entries()["inputs"]}, "it holds inputs"),
        ({**entries(), "inputs": np.full((2, *SHAPE), np.inf, np.float32)}, "NaN or infinity"),
        ({**entries(), "targets": entries()["targets"][:1]}, "targets (1, 3)"),
        ({**entries(), "inputs": np.ones((2, *SHAPE), np.int64)}, "of another kind"),
    ],
)
def test_a_stack_of_something_else_fails_with_a_reason(averaged: Tensors, reason: str) -> None:
    outcome = trained_with(averaged)
    assert outcome.status == "failed"
    assert reason in outcome.reason
    assert not outcome.blobs


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (Policy(share_means=False), "it does not share averaged data"),
        (Policy(least_group=10), "it has 9 samples, and its policy requires 10 for an average"),
    ],
)
def test_an_owner_may_refuse_to_share(policy: Policy, reason: str) -> None:
    device = Worker(TrainerCache("cpu"), samples(9, 1), samples(5, 2), policy)
    outcome = work(task(question="mean", algorithm="fedmix", blobs={}), device)
    assert outcome.status == "refused"
    assert outcome.reason.startswith(reason)
    assert not outcome.blobs
    assert outcome.ledger == ()
