"""FedProx: local training is pulled back towards the round's starting weights.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks,
MLSys 2020. Device k minimises, from w_t,

    h_k(w) = F_k(w) + (mu / 2) ||w - w_t||^2

and the coordinator averages as in FedAvg. ``mu = 0`` is FedAvg, bit for bit. Typical values are
0.001 to 1; tune it for each task.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from edgefed.algorithms.averaging.fedavg import AveragingSettings, FedAvg
from edgefed.algorithms.interface.base import AlgorithmSettings


class FedProxSettings(AveragingSettings):
    """FedAvg's settings with the proximal term on."""

    mu: Annotated[float, Field(ge=0, le=100)] = 0.01
    """Strength of the proximal term; 0 is FedAvg."""


class FedProx(FedAvg):
    """FedAvg with a proximal term."""

    name = "fedprox"
    summary = "FedAvg whose devices are pulled back towards the global weights"
    paper = "Li et al., MLSys 2020, arXiv 1812.06127"
    Settings: ClassVar[type[AlgorithmSettings]] = FedProxSettings
