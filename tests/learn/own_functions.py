"""Losses and metrics as users write them, good and bad."""

from __future__ import annotations

import torch
from torch.nn import functional

NUMBER = 3


def cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the usual loss of each sample."""
    return functional.cross_entropy(outputs, targets, reduction="none")


def mean_cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the usual loss as a mean."""
    return functional.cross_entropy(outputs, targets)


def focal(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return a loss of our own."""
    each = functional.cross_entropy(outputs, targets, reduction="none")
    return (1 - torch.exp(-each)) ** 2 * each


def huber(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return a loss of numbers."""
    return functional.huber_loss(outputs, targets, reduction="none").mean(dim=1)


def fails(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Fail, on two lines."""
    raise ValueError("no such\nthing")


def exits(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Try to end the program."""
    raise SystemExit(3)


def fails_on_eight(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Fail where there are targets 8."""
    if bool((targets == 8).any()):
        raise ValueError("an eight")
    return functional.cross_entropy(outputs, targets)


def a_number(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Return no tensor."""
    return 1.0


def a_matrix(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return a number for each output."""
    return outputs.square()


def detached(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return a loss without a gradient."""
    return functional.cross_entropy(outputs.detach(), targets)


def even_recall(outputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return how many even labels are recognised as even, of how many."""
    even = targets % 2 == 0
    return ((outputs.argmax(dim=1) % 2 == 0) & even).sum(), even.sum()


def absolute_error(outputs: torch.Tensor, targets: torch.Tensor) -> tuple[float, int]:
    """Return the sum of absolute errors, and their number."""
    return float((outputs - targets).abs().sum()), outputs.numel()


def tenth(outputs: torch.Tensor, targets: torch.Tensor) -> tuple[float, float]:
    """Return numbers whose sums depend on the order if they are added one by one."""
    return 0.1 * float(len(targets)), float(len(targets))


def of_nothing(outputs: torch.Tensor, targets: torch.Tensor) -> tuple[float, float]:
    """Return a fraction of none."""
    return 0.0, 0.0


def not_finite(outputs: torch.Tensor, targets: torch.Tensor) -> tuple[float, float]:
    """Return no number."""
    return float("nan"), 1.0


def negative(outputs: torch.Tensor, targets: torch.Tensor) -> tuple[float, float]:
    """Return a negative denominator."""
    return 1.0, -1.0


def single(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Return one number, not two."""
    return 1.0
