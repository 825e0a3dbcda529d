"""Algorithms whose devices send each other bytes, installed as a package.

Before each round every device sends random bytes to every other one, and notes each blob in its
ledger as if it were mixes; what it receives changes what its training sends back. ``Combined`` also
widens its network each round and keeps two weight sets.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.averaging.fedavg import AveragingSettings, FedAvg
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceView, Result, Work
from edgefed.algorithms.interface.exchange import Exchange, Finished, Payload, Question, Relay
from edgefed.algorithms.interface.member import Roster
from edgefed.learn.base.types import Tensors
from edgefed.learn.training.scoring import Predict, Predictor
from edgefed.seeds import derive
from edgefed.sharing.label_mixes import MixSettings
from edgefed.sharing.releases import mixes_release
from tests.coordinator.model_algorithms import Widening, wider
from tests.plugin_package import importable, write_package

HOLD = "RELAYING_HOLD"
"""The variable that names the file for whose end ``Charging`` waits."""


class RelayingSettings(AveragingSettings):
    """Settings of both algorithms."""

    size: int = 1000
    """Bytes that a device sends to each other one."""


class Relaying(FedAvg):
    """FedAvg with deltas that depend on what other devices sent."""

    name = "relaying"
    summary = "FedAvg whose devices send each other bytes"
    paper = "none"
    Settings = RelayingSettings

    @property
    def size(self) -> int:
        assert isinstance(self.settings, RelayingSettings)
        return self.settings.size

    def plan(self, state: State, roster: Roster, seed: int) -> Exchange | Finished:
        planned = super().plan(state, roster, seed)
        if isinstance(planned, Finished):
            return planned
        if state.params.get("passed", 0) < planned.round:
            return self._pass(planned, roster)
        relays = [Relay.from_json(each) for each in state.params["relays"]]
        return replace(planned, questions=tuple(_with(q, relays) for q in planned.questions))

    def _pass(self, planned: Exchange, roster: Roster) -> Exchange:
        devices = tuple(member.device for member in roster)
        return Exchange(
            name="pass",
            round=planned.round,
            questions=tuple(Question(m.device, m.samples, receivers=devices) for m in roster),
            payloads={},
            wanted=len(roster),
            quorum=len(roster),
            deadline=planned.deadline,
            preparatory=True,
            max_relay_bytes=self.size,
        )

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        if exchange.name == "pass":
            sent = [relay.to_json() for answer in answers for relay in answer.relayed]
            sent.sort(key=lambda each: (each["receiver"], each["sender"]))
            return replace(state, params={"passed": exchange.round, "relays": sent})
        return super().merge(state, exchange, answers)

    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        if task.question != "pass":
            return super().prepare(task, device)
        relays = {to: self.bytes_to(to, task, device) for to in task.receivers}
        ledger = tuple(
            mixes_release(task.round, len(device.train), to, {0: 3}, MixSettings(), 0.5)
            for to in relays
        )
        return Answer(task.device, len(device.train), {}, ledger=ledger, relays=relays)

    def bytes_to(self, receiver: str, task: DeviceTask, device: DeviceView) -> bytes:
        return bytes_for(task.seed, receiver, task.max_relay_bytes)

    def answer(self, task: DeviceTask, device: DeviceView, result: Result) -> Answer:
        made = super().answer(task, device, result)
        rng = np.random.default_rng(fingerprint(task.relays))
        delta = {
            name: array + 1e-3 * rng.standard_normal(array.shape, dtype=np.float32)
            for name, array in made.groups["delta"].arrays.items()
        }
        metrics = {**made.metrics, "received": float(sum(map(len, task.relays.values())))}
        return replace(made, groups={"delta": Group(delta)}, metrics=metrics)


class Charging(Relaying):
    """Sends bytes that are drawn anew for each answer, once the file ``RELAYING_HOLD`` is gone."""

    name = "charging"
    summary = "Bytes between devices that cannot be made twice"

    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        while Path(os.environ[HOLD]).exists():
            time.sleep(0.01)
        return super().prepare(task, device)

    def bytes_to(self, receiver: str, task: DeviceTask, device: DeviceView) -> bytes:
        return device.private_generator.bytes(task.max_relay_bytes)


class Combined(Relaying, Widening):
    """Relays, widens, and keeps a second weight set, which moves half as fast."""

    name = "combined"
    summary = "A network that grows, two weight sets, and bytes between devices"

    def start(self, weights: Tensors, roster: Roster, seed: int) -> State:
        state = super().start(weights, roster, seed)
        return replace(state, groups={**state.groups, "slow": weights})

    def plan(self, state: State, roster: Roster, seed: int) -> Exchange | Finished:
        planned = super().plan(state, roster, seed)
        if isinstance(planned, Finished) or planned.name == "pass":
            return planned
        return _with_slow(planned, state)

    def evaluation(self, state: State, roster: Roster, seed: int) -> Exchange:
        return _with_slow(super().evaluation(state, roster, seed), state)

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        merged = super().merge(state, exchange, answers)
        if exchange.name == "pass":
            return merged
        fast, slow = state.groups["weights"], state.groups["slow"]
        mixed = {name: (array + fast[name]) / 2 for name, array in slow.items()}
        grown = wider(replace(merged, groups={"weights": mixed}))
        return replace(merged, groups={**merged.groups, "slow": grown})

    def models(self, state: State) -> Mapping[str, Tensors]:
        return {"fast": state.groups["weights"], "slow": state.groups["slow"]}

    def predictor(self, state: State, predict: Predict) -> Predictor:
        both = tuple(self.models(state).values())
        return lambda inputs: np.mean([predict(each, inputs) for each in both], axis=0)

    def answer(self, task: DeviceTask, device: DeviceView, result: Result) -> Answer:
        made = super().answer(task, device, result)
        fast, slow = task.groups["weights"], task.groups["slow"]
        delta = {
            name: array + np.float32(0.1) * (slow[name] - fast[name])
            for name, array in made.groups["delta"].arrays.items()
        }
        return replace(made, groups={"delta": Group(delta)})


def bytes_for(seed: int, receiver: str, size: int) -> bytes:
    """Return what a device sends to another one."""
    return np.random.default_rng(derive(seed, receiver)).bytes(size)


def fingerprint(relays: Mapping[str, tuple[bytes, ...]]) -> int:
    """Return a number that depends on every byte that came, and on who sent it."""
    digest = hashlib.sha256()
    for sender, blobs in relays.items():
        for blob in blobs:
            digest.update(sender.encode() + hashlib.sha256(blob).digest())
    return int.from_bytes(digest.digest()[:8], "big")


def _with(question: Question, relays: Iterable[Relay]) -> Question:
    own = tuple(relay for relay in relays if relay.receiver == question.device)
    return replace(question, relays=own)


def _with_slow(exchange: Exchange, state: State) -> Exchange:
    asked = (replace(q, blobs={**q.blobs, "slow": "slow"}) for q in exchange.questions)
    payloads = {**exchange.payloads, "slow": Payload(state.groups["slow"])}
    return replace(exchange, questions=tuple(asked), payloads=payloads)


@contextmanager
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the algorithms for this process and those that it starts."""
    kinds: tuple[type[Any], ...] = (Relaying, Charging, Combined)
    write_package(site, "relaying", {k.name: f"{__name__}:{k.__name__}" for k in kinds})
    with importable(site, monkeypatch):
        yield
