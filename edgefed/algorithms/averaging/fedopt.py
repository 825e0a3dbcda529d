"""FedOpt: the averaged delta is a pseudo-gradient for an adaptive optimiser on the coordinator.

Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan: Adaptive Federated Optimization,
ICLR 2021, Algorithm 2. With Delta_t the weighted mean of the devices' deltas:

    m_t = beta1 m_{t-1} + (1 - beta1) Delta_t
    v_t = v_{t-1} + Delta_t^2                                              Adagrad
    v_t = v_{t-1} - (1 - beta2) Delta_t^2 sign(v_{t-1} - Delta_t^2)        Yogi
    v_t = beta2 v_{t-1} + (1 - beta2) Delta_t^2                            Adam
    w_{t+1} = w_t + eta m_t / (sqrt(v_t) + tau)

``server = "momentum"`` is FedAvgM. The steps themselves are in
``edgefed.learn.aggregation.server_optimizers``.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from edgefed.algorithms.averaging.fedavg import AveragingSettings, FedAvg
from edgefed.algorithms.interface.base import AlgorithmSettings


class FedOptSettings(AveragingSettings):
    """FedAvg's settings with an adaptive server optimiser."""

    server: Literal["sgd", "momentum", "adam", "yogi", "adagrad"] = "adam"
    """Server optimiser."""

    server_learning_rate: Annotated[float, Field(gt=0, le=100)] = 0.01
    """Step size of the server optimiser; 0.001 to 0.1 suit the adaptive ones."""


class FedOpt(FedAvg):
    """FedAvg with an adaptive server optimiser."""

    name = "fedopt"
    summary = "FedAvg with Adam, Yogi, Adagrad or momentum on the coordinator"
    paper = "Reddi et al., ICLR 2021, arXiv 2003.00295"
    Settings: ClassVar[type[AlgorithmSettings]] = FedOptSettings
