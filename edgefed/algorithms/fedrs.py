"""FedRS: local training with a softmax that is restricted for labels that the device lacks.

Li, Zhan: FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data,
KDD 2021. A device multiplies the logit of label c by 1 if it has samples of it, else by α; the
coordinator averages as FedAvg does, and tests use the plain softmax. The counts never leave the
device.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from edgefed.algorithms.base import AlgorithmSettings, Answer, DeviceTask, DeviceView, Work
from edgefed.algorithms.fedavg import AveragingSettings, FedAvg
from edgefed.algorithms.label_weighting import check_labels, with_label_counts
from edgefed.learn.models import Model
from edgefed.learn.objectives.restricted_softmax import RestrictedSoftmax
from edgefed.learn.types import Objective


class FedRSSettings(AveragingSettings):
    """FedAvg's settings with the restriction."""

    alpha: Annotated[float, Field(ge=0, le=1)] = 0.5
    """α: factor of the logits of labels that the device lacks; 1 is FedAvg."""

    mode: Literal["binary", "proportional"] = "binary"
    """``proportional``: the factor of each label grows from α to 1 with its number of samples."""

    bias: Literal["scaled", "unscaled", "none"] = "scaled"
    """What becomes of the classifier's bias: multiplied too, left as it is, or left out."""


class FedRS(FedAvg):
    """FedAvg with a restricted softmax."""

    settings: FedRSSettings

    name = "fedrs"
    summary = "FedAvg whose softmax is restricted for labels that a device lacks"
    paper = "Li and Zhan, KDD 2021"
    Settings: ClassVar[type[AlgorithmSettings]] = FedRSSettings

    def check_model(self, model: Model) -> None:
        """Check that there are labels."""
        check_labels(self.name, self.training)

    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        """Train as FedAvg does, with the device's numbers of labels."""
        return with_label_counts(super().prepare(task, device), device)

    def objective(self) -> Objective:
        """Return the restricted cross-entropy, with the proximal term where ``mu`` > 0."""
        settings = self.settings
        if settings.alpha == 1 and settings.bias != "none":
            return super().objective()  # FedAvg's own, which shortcuts know by its name
        return self.proximal(RestrictedSoftmax(settings.alpha, settings.mode, settings.bias))
