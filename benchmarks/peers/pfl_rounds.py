"""The workload in pfl; the first worker prints when each round began, as JSON.

For several workers it is started by torchrun. As usual in pfl, users are drawn with replacement,
and a user's batches are created once and keep their order.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import nn

from benchmarks.peers.work import BATCH, CLIENTS, COHORT, RATE, lenet, read


class Network(nn.Module):
    """The model with the methods that pfl calls."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.criterion = lenet(), nn.CrossEntropyLoss()

    def forward(self, inputs: torch.Tensor) -> Any:
        """Return the logits."""
        return self.layers(inputs)

    def loss(self, inputs: torch.Tensor, labels: torch.Tensor, eval: bool = False) -> Any:  # noqa: A002
        """Return the loss of a batch."""
        return self.criterion(self.layers(inputs), labels)

    def metrics(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Return nothing: nothing is tested."""
        return {}


class Stamps(TrainingProcessCallback):  # type: ignore[misc]
    """Notes when each round begins."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_train_begin(self, *, model: Any) -> Any:
        """Note the first beginning."""
        self.times.append(time.monotonic())
        return Metrics()

    def after_central_iteration(self, *_: Any, **__: Any) -> Any:
        """Note the next one."""
        self.times.append(time.monotonic())
        return False, Metrics()


def main() -> None:
    """Run: the data's path, and the number of rounds."""
    torch.set_num_threads(1)
    np.random.seed(0)
    inputs, labels = read(Path(sys.argv[1]))
    users = {user: [inputs[user], labels[user]] for user in range(CLIENTS)}
    data = FederatedDataset.from_slices(users, get_user_sampler("random", list(users)))
    network, stamps = Network(), Stamps()
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=int(sys.argv[2]),
            evaluation_frequency=10**9,
            train_cohort_size=COHORT,
            val_cohort_size=None,
        ),
        backend=SimulatedBackend(data, data, postprocessors=[WeightByDatapoints()]),
        model=PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), 1.0)),
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=RATE, local_batch_size=BATCH
        ),
        callbacks=[stamps],
        send_metrics_to_platform=False,
    )
    if int(os.environ.get("RANK", "0")) == 0:
        print(json.dumps(stamps.times))


if __name__ == "__main__":
    main()
