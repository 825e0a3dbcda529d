"""Collect the gates of devices whose owners allow it, once, after the last round.

With gates of others, a device without labels can use a mixture of experts (``learn/
mixture_prediction``); with densities of the others' inputs (``learn/density``), each input decides
which gates count. A gate and the mixture q(z|s) disclose a device's labels, and a density discloses
the form of its inputs. They are therefore sent only with ``share_gate`` and ``share_density`` in
the owner's settings, and the device's ledger records them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from edgefed.algorithms.experts.expert_device_half import OWN
from edgefed.algorithms.experts.expert_records import COLLECT, DENSITIES, output_width, role
from edgefed.algorithms.interface.answer import Answer, Group, Remark
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.device_side import (
    DensityFit,
    DeviceTask,
    DeviceView,
    Result,
    Work,
)
from edgefed.algorithms.interface.exchange import Exchange, Question, ReplyRole
from edgefed.algorithms.interface.exchange_part import ExchangePart
from edgefed.algorithms.interface.member import Roster
from edgefed.config.recipes.recipe import RoundsSection
from edgefed.errors import UsageError
from edgefed.learn.base.types import Job, Tensors
from edgefed.learn.modeling.model import Model
from edgefed.learn.training.density import can_be_fitted, density_specs
from edgefed.sharing.releases import density_release, gate_release
from edgefed.terminal.units import counted
from edgefed.wire.tensors import TensorSpec, specs_of

SHARED, DENSITY = "gate", "density"
"""The roles of a device's answer; it lacks those that the owner does not share."""

LARGEST = 1e6
"""Largest magnitude of a value of a gate or a density."""


@dataclass(frozen=True)
class GateCollection(ExchangePart):
    """The exchange that collects gates.

    Args:
        experts: K.
        rounds: the recipe's; None on a device.
        densities: whether densities are collected with them.
    """

    exchanges: ClassVar[frozenset[str]] = frozenset({COLLECT})
    experts: int
    rounds: RoundsSection | None
    densities: bool = False

    # -- the coordinator ------------------------------------------------------------------------

    def start(self, state: State, seed: int) -> State:
        """Start with no gates."""
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
            questions=tuple(
                Question(member.device, member.samples, {}, {DENSITY: self.densities})
                for member in able
            ),
            payloads={},
            wanted=len(able),
            quorum=0,
            deadline=self.rounds.deadline,
            preparatory=True,
            reply_roles=self._reply_roles(state),
        )

    def _reply_roles(self, state: State) -> dict[str, ReplyRole]:
        """Return the roles of an answer."""
        gate = ReplyRole(self._specs(state), LARGEST, optional=True)
        density = {DENSITY: ReplyRole(None, LARGEST, optional=True)} if self.densities else {}
        return {SHARED: gate, **density}

    def max_reply_bytes(self, exchange: Exchange, model: Model) -> int:
        """Return the bytes that a density and a gate may take."""
        density = density_specs(math.prod(model.shape)) if self.densities else {}
        sent = sum(spec.nbytes for spec in density.values())
        return 2 * (sent + sum(role.nbytes for role in exchange.reply_roles.values()))

    def add_to_training(self, training: Exchange, state: State) -> Exchange:
        """Add nothing to training."""
        del state
        return training

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        """Store the gates that arrived, sorted by device."""
        del exchange
        gates: dict[str, Tensors] = {}
        densities: dict[str, Tensors] = {}
        for answer in answers:
            if SHARED in answer.groups:
                samples = {"samples": np.asarray(answer.samples, np.int64)}
                gates[answer.device] = {**answer.groups[SHARED].arrays, **samples}
            if DENSITY in answer.groups:
                densities[answer.device] = answer.groups[DENSITY].arrays
        params = {**state.params, COLLECT: sorted(gates)}
        groups = dict(state.groups)
        if gates:
            groups[COLLECT] = _stacked(gates)
        if densities:
            groups[DENSITIES] = _stacked(densities)
            params[DENSITIES] = sorted(densities)
        return State(state.round, groups, params)

    def reject_reason(self, exchange: Exchange, answer: Answer, model: Model) -> str:
        """Return why an answer's shares or its density are invalid, or nothing."""
        del exchange
        if DENSITY in answer.groups:
            specs = specs_of(answer.groups[DENSITY].arrays)
            if specs != density_specs(math.prod(model.shape)) or SHARED not in answer.groups:
                return "its density is of other inputs, or without a gate"
        if SHARED not in answer.groups:
            return ""
        gate = answer.groups[SHARED].arrays
        shares, kept = gate["shares"].astype(np.float64), gate["kept"]
        if shares.min() < 0 or abs(float(shares.sum()) - 1) > 1e-3:
            return "its shares are not shares of sum 1"
        if not np.isin(kept, (0, 1)).all() or not kept.any():
            return "it does not say which experts it uses"
        return ""

    def _specs(self, state: State) -> dict[str, TensorSpec]:
        """Return the specification of a gate."""
        shares = TensorSpec("float32", (self.experts,))
        width = output_width(state.groups[role(0)])
        weight = TensorSpec("float32", (width, self.experts))
        return {"weight": weight, "bias": shares, "shares": shares, "kept": shares}

    def remarks(self, before: State, exchange: Exchange, after: State) -> tuple[Remark, ...]:
        """Report how many devices sent their gates."""
        if exchange.name != COLLECT or COLLECT in before.params:
            return ()
        given, asked = len(after.params[COLLECT]), counted(len(exchange.questions), "device")
        text = f"{given} of {asked} shared their gates (share_gate)"
        if self.densities:
            fitted = len(after.params.get(DENSITIES, ()))
            text += f", {fitted} a density of inputs from 0 to 1 (share_density)"
        return (Remark(text),)

    # -- the device -----------------------------------------------------------------------------

    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        """Send the gate from this run's training, where the owner shares it."""
        if OWN not in device.private or not device.policy.share_gate:
            return Answer(task.device, len(device.train), {})
        wanted = bool(task.params.get(DENSITY)) and device.policy.share_density
        if wanted:
            inputs = device.train.float_inputs()
            if can_be_fitted(inputs):
                return DensityFit(inputs, task.seed)
        return self._gate(task, device)

    def answer(self, task: DeviceTask, device: DeviceView, result: Result) -> Answer:
        """Send the gate with the fitted density."""
        assert isinstance(result, dict)
        gate = self._gate(task, device)
        release = density_release(task.round, len(device.train))
        groups = {**gate.groups, DENSITY: Group(result, "fp32")}
        return replace(gate, groups=groups, ledger=(*gate.ledger, release))

    def _gate(self, task: DeviceTask, device: DeviceView) -> Answer:
        own, count = device.private[OWN], len(device.train)
        kept = np.zeros(self.experts, np.float32)
        kept[own["kept"]] = 1
        gate = {**{name: own[name] for name in ("weight", "bias", "shares")}, "kept": kept}
        release = gate_release(task.round, count, self.experts)
        return Answer(task.device, count, {SHARED: Group(gate, "fp32")}, ledger=(release,))

    def change_job(self, job: Job, task: DeviceTask, device: DeviceView) -> Job:
        """Leave training as it is."""
        del task, device
        return job


def _stacked(given: Mapping[str, Tensors]) -> Tensors:
    """Return the arrays of all devices, stacked in the order of their names."""
    devices = sorted(given)
    return {
        name: np.stack([given[device][name] for device in devices]) for name in given[devices[0]]
    }


def collected_gates(state: State) -> Tensors | None:
    """Return the collected gates of devices, stacked; None without any."""
    return state.groups.get(COLLECT)


def no_gates() -> UsageError:
    """Return the error of a run that has collected no gates."""
    return UsageError(
        "This run has collected no gates of devices.",
        code="evaluate.gates",
        hint="set algorithm.collect_gates = true in the recipe, and share_gate = true on devices",
    )
