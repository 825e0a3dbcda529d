"""FedLC: local training whose logits are calibrated by the device's own numbers of labels.

Zhang, Li, Li, Xu, Wu, Ding, Wu: Federated Learning with Label Distribution Skew via Logits
Calibration, ICML 2022. Device k minimises, with n_c its samples of label c,

    -log( exp(f_y - τ n_y^(-1/4)) / Σ_i exp(f_i - τ n_i^(-1/4)) )

and the coordinator averages as FedAvg does. The counts never leave the device.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from edgefed.algorithms.averaging.fedavg import AveragingSettings
from edgefed.algorithms.averaging.label_weighting import LabelWeighting
from edgefed.algorithms.interface.base import AlgorithmSettings
from edgefed.learn.base.types import Objective
from edgefed.learn.objectives.logit_calibration import LogitCalibration


class FedLCSettings(AveragingSettings):
    """FedAvg's settings with the calibration."""

    calibration: Annotated[float, Field(ge=0, le=100)] = 1.0
    """τ: strength of the margins; 0 is FedAvg."""

    exclude_true: bool = False
    """Leave the true label out of the sum, as in the paper; most implementations keep it."""

    absent: Literal["mask", "margin"] = "mask"
    """Labels that the device lacks leave the sum (``mask``), or have the margin of 1e-8 samples."""


class FedLC(LabelWeighting):
    """FedAvg with calibrated logits."""

    settings: FedLCSettings

    name = "fedlc"
    summary = "FedAvg whose loss has larger margins for labels that a device has few of"
    paper = "Zhang et al., ICML 2022, arXiv 2209.00189"
    Settings: ClassVar[type[AlgorithmSettings]] = FedLCSettings

    def label_loss(self) -> Objective | None:
        """Return the calibrated cross-entropy."""
        settings = self.settings
        if settings.calibration == 0 and not settings.exclude_true:
            return None
        return LogitCalibration(settings.calibration, settings.exclude_true, settings.absent)
