"""A metric of the recipes: how many samples of the class that joins late are recognised."""

from __future__ import annotations

import torch

LATE = 9
"""The class that joins late."""


def late_recall(outputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Count the samples of the late class that are recognised, and all of them."""
    late = targets == LATE
    return ((outputs.argmax(1) == LATE) & late).sum(), late.sum()
