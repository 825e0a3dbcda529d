"""Collect the gates of devices whose owners allow it, once, after the last round.

With gates of others, a device without labels can use a mixture of experts (``learn/
mixture_prediction``). A gate and the mixture q(z|s) tell what labels a device has, so they leave it
only with ``share_gate`` in its owner's settings, and its ledger records them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgefed.algorithms.base import (
    Answer,
    DeviceTask,
    DeviceView,
    Exchange,
    Group,
    Question,
    Remark,
    ReplyRole,
    Result,
    Roster,
    State,
)
from edgefed.algorithms.exchange_part import ExchangePart
from edgefed.algorithms.expert_device_half import OWN
from edgefed.algorithms.expert_records import COLLECT, output_width, role
from edgefed.config.recipe import RoundsSection
from edgefed.errors import UsageError
from edgefed.learn.models import Model
from edgefed.learn.types import Job, Tensors
from edgefed.sharing.releases import gate_release
from edgefed.units import counted
from edgefed.wire.tensors import TensorSpec

SHARED = "gate"
"""The role of a device's answer; one whose owner shares no gate has none."""

LARGEST = 1e6
"""Largest magnitude of a gate's value."""


@dataclass(frozen=True)
class GateCollection(ExchangePart):
    """The exchange that collects gates.

    Args:
        experts: K.
        rounds: the recipe's; None on a device.
    """

    exchanges: ClassVar[frozenset[str]] = frozenset({COLLECT})
    experts: int
    rounds: RoundsSection | None

    # -- the coordinator ------------------------------------------------------------------------

    def start(self, state: State, seed: int) -> State:
        """Keep nothing yet."""
        del seed
        return state

    def plan(self, state: State, roster: Roster, training: Exchange) -> Exchange | None:
        """Ask for nothing before training."""
        del state, roster, training
        return None

    def plan_last(self, state: State, roster: Roster) -> Exchange | None:
        """Ask all devices for their gates, unless they were asked."""
        if COLLECT in state.params or self.rounds is None:
            return None
        able = [member for member in roster if member.samples > 0]
        return Exchange(
            name=COLLECT,
            round=state.round,
            questions=tuple(Question(each.device, each.samples, {}) for each in able),
            payloads={},
            wanted=len(able),
            quorum=0,
            deadline=self.rounds.deadline,
            preparatory=True,
            reply_roles={SHARED: ReplyRole(self._specs(state), LARGEST, optional=True)},
        )

    def add_to_training(self, training: Exchange, state: State) -> Exchange:
        """Send nothing along."""
        del state
        return training

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        """Keep the gates that came, sorted by device."""
        del exchange
        given = {
            answer.device: {
                **answer.groups[SHARED].arrays,
                "samples": np.asarray(answer.samples, np.int64),
            }
            for answer in answers
            if SHARED in answer.groups
        }
        devices = sorted(given)
        params = {**state.params, COLLECT: devices}
        if not devices:
            return State(state.round, state.groups, params)
        names = given[devices[0]]
        stacked = {name: np.stack([given[device][name] for device in devices]) for name in names}
        return State(state.round, {**state.groups, COLLECT: stacked}, params)

    def reject_reason(self, exchange: Exchange, answer: Answer, model: Model) -> str:
        """Return why the shares of an answer's gate are none, or nothing."""
        del exchange, model
        if SHARED not in answer.groups:
            return ""
        found = answer.groups[SHARED].arrays
        shares, kept = found["shares"].astype(np.float64), found["kept"]
        if shares.min() < 0 or abs(float(shares.sum()) - 1) > 1e-3:
            return "its shares are not shares of sum 1"
        if not np.isin(kept, (0, 1)).all() or not kept.any():
            return "it does not say which experts it uses"
        return ""

    def _specs(self, state: State) -> dict[str, TensorSpec]:
        """Return what a gate looks like."""
        each = TensorSpec("float32", (self.experts,))
        width = output_width(state.groups[role(0)])
        weight = TensorSpec("float32", (width, self.experts))
        return {"weight": weight, "bias": each, "shares": each, "kept": each}

    def remarks(self, before: State, exchange: Exchange, after: State) -> tuple[Remark, ...]:
        """Say how many devices gave their gates."""
        if exchange.name != COLLECT or COLLECT in before.params:
            return ()
        given, asked = len(after.params[COLLECT]), counted(len(exchange.questions), "device")
        return (Remark(f"{given} of {asked} shared their gates (share_gate)"),)

    # -- the device -----------------------------------------------------------------------------

    def prepare(self, task: DeviceTask, device: DeviceView) -> Answer:
        """Give the gate that this run's training left, where the owner shares it."""
        own, count = device.private.get(OWN), len(device.train)
        if own is None or not device.policy.share_gate:
            return Answer(task.device, count, {})
        kept = np.zeros(self.experts, np.float32)
        kept[own["kept"]] = 1
        gate = {**{name: own[name] for name in ("weight", "bias", "shares")}, "kept": kept}
        release = gate_release(task.round, count, self.experts)
        return Answer(task.device, count, {SHARED: Group(gate, "fp32")}, ledger=(release,))

    def answer(self, task: DeviceTask, device: DeviceView, result: Result) -> Answer:
        """Not called: ``prepare`` answers at once."""
        raise AssertionError("prepare answers at once")

    def change_job(self, job: Job, task: DeviceTask, device: DeviceView) -> Job:
        """Leave training as it is."""
        del task, device
        return job


def collected_gates(state: State) -> Tensors | None:
    """Return the gates of the devices that gave theirs, stacked; None without any."""
    return state.groups.get(COLLECT)


def no_gates() -> UsageError:
    """Return the error of a run that has collected no gates."""
    return UsageError(
        "This run has collected no gates of devices.",
        code="evaluate.gates",
        hint="set algorithm.collect_gates = true in the recipe, and share_gate = true on devices",
    )
