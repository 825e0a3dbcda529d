"""The workload of every simulator: LeNet-5 on noise, 100 clients of 230 samples, 62 classes.

In each round, 10 clients train one epoch of SGD in batches of 20 (12 steps), and their weights are
averaged by samples. Nothing is evaluated. It needs only numpy and torch, to run beside every peer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import nn

CLIENTS, SAMPLES, COHORT, CLASSES, BATCH, RATE = 100, 230, 10, 62, 20, 0.05


def write(path: Path) -> None:
    """Write the noise and its labels."""
    rng = np.random.default_rng(0)
    count = CLIENTS * SAMPLES
    inputs = rng.standard_normal((count, 1, 28, 28), dtype=np.float32)
    labels = rng.integers(0, CLASSES, count)
    np.savez(
        path,
        x_train=inputs,
        y_train=labels,
        x_test=inputs[:CLASSES],
        y_test=labels[:CLASSES],
        classes=CLASSES,
    )


def read(path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs (clients, samples, 1, 28, 28) and labels (clients, samples)."""
    with np.load(path) as file:
        inputs, labels = torch.from_numpy(file["x_train"]), torch.from_numpy(file["y_train"])
    return inputs.view(CLIENTS, SAMPLES, 1, 28, 28), labels.view(CLIENTS, SAMPLES)


@lru_cache(maxsize=1)
def kept(path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what ``read`` does, read once by each process."""
    return read(path)


def lenet() -> nn.Module:
    """Return the model as torch's users write it: 48,846 parameters."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, 120), nn.ReLU(),
        nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, CLASSES),
    )  # fmt: skip


def epoch(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> None:
    """Train ``model`` for one epoch of one client's samples."""
    loss: Callable[..., torch.Tensor] = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for index in torch.split(torch.randperm(len(inputs)), BATCH):
        optimizer.zero_grad()
        loss(model(inputs[index]), labels[index]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
