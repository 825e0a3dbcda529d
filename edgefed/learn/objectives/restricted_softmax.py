"""FedRS's loss: cross-entropy of logits that are scaled down for labels that a client lacks.

Li, Zhan: FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data,
KDD 2021. The logit of label c is z_c = a_c w_c·h, with a_c = 1 for labels of the client and α for
others, so that the classifier's rows of labels that it lacks are hardly pushed away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import nn
from torch.nn import functional

from edgefed.errors import UsageError
from edgefed.learn.base.types import Array, Batch, Context, Forward, Params
from edgefed.learn.modeling.model import Model
from edgefed.learn.objectives.label_counts import check_counts, counts_of
from edgefed.learn.steps.capabilities import Phase

Mode = Literal["binary", "proportional"]
"""How a_c follows the counts: 1 for any samples, or α + (1 - α) n_c / max n."""

Bias = Literal["scaled", "unscaled", "none"]
"""Treatment of the classifier's bias b: z is a (w·h + b), a w·h + b, or a w·h."""


@dataclass(frozen=True)
class RestrictedSoftmax:
    """The mean over the batch of cross-entropy of z; the counts are the extra ``label_counts``.

    Attributes:
        alpha: α from 0 to 1; 1 is cross-entropy, bit for bit, unless the bias is left out. The
            paper takes 0.5 and 0.9.
        mode: how a_c follows the counts.
        bias: treatment of the classifier's bias; the paper's classifier has none.
        classifier_bias: its name among the weights, which ``phases`` finds; empty where there is
            none.
    """

    single_pass: ClassVar[bool] = True

    alpha: float = 0.5
    mode: Mode = "binary"
    bias: Bias = "scaled"
    classifier_bias: str = ""

    def __post_init__(self) -> None:
        known = self.mode in ("binary", "proportional")
        if not (0 <= self.alpha <= 1 and known and self.bias in ("scaled", "unscaled", "none")):
            raise UsageError(
                f"FedRS has no alpha = {self.alpha} with mode = {self.mode!r} and bias ="
                f" {self.bias!r}.",
                code="train.calibration",
                hint="choose an alpha from 0 to 1, and a mode from binary, proportional",
            )

    def check(self, model: Model, extra: Mapping[str, Array]) -> None:
        """Check the counts.

        Raises:
            DataError: ``train.label_counts``.
        """
        check_counts(model, extra)

    def phases(self, model: Model, trained: tuple[str, ...]) -> tuple[Phase, ...]:
        """Return the one update, for which the classifier's bias is known."""
        name = "" if self.bias == "scaled" else classifier_bias(model)
        return (Phase(RestrictedSoftmax(self.alpha, self.mode, self.bias, name), trained),)

    def __call__(
        self, forward: Forward, params: Params, batch: Batch, context: Context
    ) -> torch.Tensor:
        """Return the scalar loss."""
        outputs = forward(params, batch.inputs)
        if self.alpha == 1 and self.bias != "none":
            return functional.cross_entropy(outputs, batch.targets)
        scales = self.scales(counts_of(context, outputs))
        if not self.classifier_bias:
            return functional.cross_entropy(scales * outputs, batch.targets)
        offset = params[self.classifier_bias]
        restricted = scales * (outputs - offset)
        kept = restricted + offset if self.bias == "unscaled" else restricted
        return functional.cross_entropy(kept, batch.targets)

    def scales(self, counts: torch.Tensor) -> torch.Tensor:
        """Return a (classes,) of counts (classes,)."""
        present = (counts > 0).to(counts.dtype)
        share = present if self.mode == "binary" else counts / counts.max()
        return self.alpha + (1 - self.alpha) * share


def classifier_bias(model: Model) -> str:
    """Return the name of the bias of a model's last linear layer for its classes, or nothing."""
    bias = ""
    for name, part in model.module.named_modules():
        if isinstance(part, nn.Linear) and part.out_features == model.classes:
            bias = f"{name}.bias" if part.bias is not None else ""
    return bias.removeprefix(".")
