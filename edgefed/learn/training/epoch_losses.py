"""The losses of an epoch, which are checked every few steps only, because a check takes time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from edgefed.learn.base.transfers import download
from edgefed.learn.samples.jobs import diverged


class EpochLosses:
    """The losses of an epoch.

    Args:
        check_every: steps between two looks at them; None for a look at the end only.

    Raises:
        DataError: one is not a finite number.
    """

    def __init__(self, check_every: int | None) -> None:
        self._check_every = check_every
        self._waiting: list[torch.Tensor] = []
        self._sizes: list[int] = []
        self._sum = 0.0
        self._count = 0
        self._begun = 0

    def restart(self) -> None:
        """Begin an epoch."""
        self._sum, self._count = 0.0, 0
        self._begun = len(self._waiting)

    def add(self, loss: torch.Tensor, size: int) -> None:
        """Add the loss of a batch of ``size`` samples."""
        self._waiting.append(loss)
        self._sizes.append(size)
        if self._check_every is not None and len(self._waiting) >= self._check_every:
            self.check()

    def check(self) -> None:
        """Look at the losses since the last look."""
        for number, (loss, size) in enumerate(self._looked_at()):
            if not np.isfinite(loss):
                raise diverged("the loss is")
            # Losses from before this epoch are looked at, and are no part of its mean
            if number >= self._begun:
                self._sum += loss * size
                self._count += size
        self._begun = 0

    def mean(self) -> float:
        """Return the mean since the epoch began, weighted by the sizes."""
        return self._sum / self._count

    def _looked_at(self) -> Iterator[tuple[float, int]]:
        """Yield the waiting losses as numbers, with their sizes, and forget them."""
        values = download(torch.stack(self._waiting), "losses").tolist() if self._waiting else []
        sizes = self._sizes
        self._waiting, self._sizes = [], []
        yield from zip(values, sizes, strict=True)
