"""FedLC's loss: cross-entropy of logits that are lowered for labels of which a client has few.

Zhang, Li, Li, Xu, Wu, Ding, Wu: Federated Learning with Label Distribution Skew via Logits
Calibration, ICML 2022. With n_c the client's samples of label c,

    L = -log( exp(f_y - τ n_y^(-1/4)) / Σ_i exp(f_i - τ n_i^(-1/4)) )

in the common form; in the paper's, the sum leaves out i = y.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch.nn import functional

from edgefed.errors import DataError, UsageError
from edgefed.learn.base.types import Array, Batch, Context, Forward, Params
from edgefed.learn.modeling.model import Model
from edgefed.learn.objectives.label_counts import check_counts, counts_of
from edgefed.learn.objectives.losses import soft

Absent = Literal["mask", "margin"]
"""Treatment of labels without samples: they leave the sum, or get the margin of 1e-8 samples."""

FEW = 1e-8


@dataclass(frozen=True)
class LogitCalibration:
    """The mean over the batch of L; the counts are the extra ``label_counts``.

    Attributes:
        tau: τ, at least 0; 0 is cross-entropy, of all labels, unless ``exclude_true``.
        exclude_true: leave the true label out of the sum, as the paper does. The loss is then below
            cross-entropy and has no lower bound.
        absent: treatment of labels without samples. A label that a sample of the batch has stays in
            that sample's sum, with the margin of a single sample.
    """

    single_pass: ClassVar[bool] = True

    tau: float = 1.0
    exclude_true: bool = False
    absent: Absent = "mask"

    def __post_init__(self) -> None:
        if not 0 <= self.tau < float("inf") or self.absent not in ("mask", "margin"):
            raise UsageError(
                f"FedLC has no tau = {self.tau} with absent = {self.absent!r}.",
                code="train.calibration",
                hint="choose a tau of 0 or more, and absent from mask, margin",
            )

    def check(self, model: Model, extra: Mapping[str, Array]) -> None:
        """Check the counts, and that a sum that leaves out the true label is not empty.

        Raises:
            DataError: ``train.label_counts``.
        """
        counts = check_counts(model, extra)
        present = int(np.count_nonzero(counts)) if self._masks else model.classes
        if self.exclude_true and present < 2:
            raise DataError(
                "FedLC's loss without the true label needs a second label to compare with.",
                code="train.label_counts",
                hint='set exclude_true = false, or absent = "margin"',
            )

    def __call__(
        self, forward: Forward, params: Params, batch: Batch, context: Context
    ) -> torch.Tensor:
        """Return the scalar loss."""
        outputs = forward(params, batch.inputs)
        if self.tau == 0 and not self.exclude_true:
            return functional.cross_entropy(outputs, batch.targets)
        wanted = soft(batch.targets, outputs)
        logits = self.calibrated(outputs, wanted, counts_of(context, outputs))
        if self.exclude_true:
            return _without_true(logits, wanted)
        return functional.cross_entropy(logits, batch.targets)

    def calibrated(
        self, outputs: torch.Tensor, wanted: torch.Tensor, counts: torch.Tensor
    ) -> torch.Tensor:
        """Return logits with their margins; a label that leaves the sum has a huge negative one.

        Args:
            outputs: f (batch, classes).
            wanted: soft targets (batch, classes).
            counts: n (classes,).
        """
        if self.tau == 0:
            return outputs
        if not self._masks:
            return outputs - self.tau * counts.clamp(min=FEW) ** -0.25
        logits = outputs - self.tau * counts.clamp(min=1) ** -0.25
        # Not -inf, whose product with a target of 0 is no number.
        nothing = torch.finfo(logits.dtype).min / 4
        return torch.where((counts > 0) | (wanted > 0), logits, nothing)

    @property
    def _masks(self) -> bool:
        return self.absent == "mask" and self.tau > 0


def _without_true(logits: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Return the mean of Σ_y wanted_y (log Σ_{i≠y} exp(z_i) - z_y)."""
    own = torch.eye(logits.shape[-1], dtype=torch.bool, device=logits.device)
    others = torch.where(own, -torch.inf, logits.unsqueeze(-2))
    losses = torch.logsumexp(others, dim=-1) - logits
    return torch.where(wanted > 0, wanted * losses, 0).sum(dim=-1).mean()
