"""FedRS: local training with a softmax that is restricted for labels that the device lacks.

Li, Zhan: FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data,
KDD 2021. A device multiplies the logit of label c by 1 if it has samples of it, else by α; the
coordinator averages as FedAvg does, and tests use the plain softmax. The counts never leave the
device.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from edgefed.algorithms.averaging.fedavg import AveragingSettings
from edgefed.algorithms.averaging.label_weighting import LabelWeighting
from edgefed.algorithms.interface.base import AlgorithmSettings
from edgefed.learn.base.types import Objective
from edgefed.learn.objectives.restricted_softmax import RestrictedSoftmax


class FedRSSettings(AveragingSettings):
    """FedAvg's settings with the restriction."""

    alpha: Annotated[float, Field(ge=0, le=1)] = 0.5
    """α: factor of the logits of labels that the device lacks; 1 is FedAvg."""

    mode: Literal["binary", "proportional"] = "binary"
    """``proportional``: the factor of each label grows from α to 1 with its number of samples."""

    bias: Literal["scaled", "unscaled", "none"] = "scaled"
    """Treatment of the classifier's bias: multiplied too, left as it is, or left out."""


class FedRS(LabelWeighting):
    """FedAvg with a restricted softmax."""

    settings: FedRSSettings

    name = "fedrs"
    summary = "FedAvg whose softmax is restricted for labels that a device lacks"
    paper = "Li and Zhan, KDD 2021"
    Settings: ClassVar[type[AlgorithmSettings]] = FedRSSettings

    def label_loss(self) -> Objective | None:
        """Return the restricted cross-entropy."""
        settings = self.settings
        if settings.alpha == 1 and settings.bias != "none":
            return None
        return RestrictedSoftmax(settings.alpha, settings.mode, settings.bias)
