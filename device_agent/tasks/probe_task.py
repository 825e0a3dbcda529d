"""The probe task of a new version of the agent: train a small model in a real training process."""

from __future__ import annotations

from typing import Any

import numpy as np

from device_agent.tasks.training_messages import TrainingOrder
from edgefed.config.recipes.training_section import TrainingSection
from edgefed.data.base.types import DeviceData
from edgefed.files.samples import Samples
from edgefed.wire.blobs import BlobCache
from edgefed.wire.messages import BlobRef, Task
from edgefed.wire.tensors import pack
from edgefed.worker.outcomes import Outcome

PROBE = "probe"
"""Id of the task's exchange."""

_SAMPLES, _FEATURES = 32, 4

_SETTINGS: dict[str, Any] = {
    "weighting": "examples",
    "mu": 0.0,
    "server": "sgd",
    "server_learning_rate": 1.0,
    "beta1": 0.9,
    "beta2": 0.99,
    "tau": 0.001,
    "adam_variant": "reddi",
    "divergence": False,
}
"""Settings of ``fedavg``; its module would import torch, which an agent does not."""


def probe_data() -> DeviceData:
    """Return samples of two labels that a linear model can tell apart."""
    targets = np.arange(_SAMPLES, dtype=np.int64) % 2
    inputs = np.ones((_SAMPLES, _FEATURES), np.float32) * (2 * targets[:, None] - 1)
    train = Samples(inputs.astype(np.float32), targets)
    return DeviceData(train, train, classes=2, shape=(_FEATURES,), name=PROBE)


def probe_order(cache: BlobCache, device: str) -> TrainingOrder:
    """Return the order to train a linear model from zeros; its weights are put into the cache.

    Raises:
        StorageError: the cache does not take them.
    """
    weights = pack(
        {
            "out.weight": np.zeros((2, _FEATURES), np.float32),
            "out.bias": np.zeros(2, np.float32),
        }
    )
    ref = BlobRef(digest=cache.put(weights), size=len(weights))
    task = Task(
        run=PROBE,
        exchange=PROBE,
        index=0,
        round=0,
        question="fit",
        device=device,
        deadline=600.0,
        seed=1,
        algorithm="fedavg",
        settings=_SETTINGS,
        model={"name": "mlp", "hidden": []},
        shape=(_FEATURES,),
        classes=2,
        training={**TrainingSection().model_dump(mode="json"), "epochs": 2, "batch_size": 8},
        codec="fp32",
        samples=_SAMPLES,
        blobs={"weights": ref},
        params={},
    )
    return TrainingOrder(task)


def probe_problem(outcome: Outcome) -> str:
    """Return why the probe task has failed; empty if it has not."""
    loss = outcome.metrics.get("loss", float("nan"))
    if outcome.status != "ok":
        return f"the probe task failed: {outcome.reason}"
    # From zeros the loss is log 2, and training lowers it.
    return "" if loss < np.log(2) else f"the probe task ended with a loss of {loss:g}"
