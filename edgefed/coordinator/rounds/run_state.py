"""The state of a run while an engine executes it."""

from __future__ import annotations

from dataclasses import dataclass

from edgefed.algorithms.interface.base import State
from edgefed.coordinator.exchanges.device_admission import Admission
from edgefed.coordinator.exchanges.downlink_encoder import DownlinkEncoder
from edgefed.coordinator.models.run_model import RunModel
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.events.history.early_stopping import EvaluationHistory


@dataclass
class RunState:
    """The progress of a run.

    Attributes:
        admission: the devices that take part.
        open: an exchange that was stored and not yet merged.
        scored: the last round that was closed.
        history: the evaluations of all rounds up to it.
        questions: the open ones of buffered rounds, as they were stored before a restart.
        bounty_orders: number of the run's orders about label bounties that the state includes.
    """

    run_model: RunModel
    admission: Admission
    state: State
    downlink: DownlinkEncoder
    open: OpenExchange | None
    scored: int
    history: EvaluationHistory
    bounty_orders: int = 0
    questions: tuple[OpenExchange, ...] = ()
