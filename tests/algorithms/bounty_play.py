"""Common code of the tests of label bounties: devices that keep state, and their exchanges.

The state goes through JSON after every merge, as it does in a checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from edgefed.algorithms.bounties.bounty_exchange import BountyExchange
from edgefed.algorithms.bounties.bounty_records import BountyRecords
from edgefed.algorithms.composed.registry import make, make_device_half
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.device_side import (
    DeviceTask,
    DeviceView,
    operating_system_generator,
)
from edgefed.algorithms.interface.exchange import Exchange, Finished, Question, Relay
from edgefed.algorithms.interface.member import Member, Roster
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.config.recipes.recipe import ModelSection, Recipe
from edgefed.data.base.types import UNPREPARED, Preparation
from edgefed.files.samples import Samples
from edgefed.learn.base.types import Job, Tensors
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import build
from edgefed.seeds import derive
from edgefed.sharing.bounty_report import Bounty, BountyOrder
from edgefed.sharing.policy import ANYTHING, Policy, Withheld
from edgefed.wire.tensors import digest
from edgefed.worker.outcomes import PersistentState, checked_changes
from tests.algorithms.play import task_fields

IMAGE = (1, 4, 4)
LABELS = 4
PREPARED = ("label_need", "label_offer", "label_mix", "label_fill")
MOST_EXCHANGES = 200


def images(counts: Sequence[int], seed: int = 1, shape: tuple[int, ...] = IMAGE) -> Samples:
    """Return so many random images of each label."""
    rng = np.random.default_rng(seed)
    targets = np.repeat(np.arange(len(counts)), counts)
    return Samples(rng.random((len(targets), *shape), np.float32), targets)


def only(label: int, count: int = 8) -> Samples:
    """Return images of one label."""
    return images([count if each == label else 0 for each in range(LABELS)], 20 + label)


def recipe(name: str = "fedavg", rounds: int = 100, loss: str = "", **labels: Any) -> Recipe:
    training = {"batch_size": 4, "learning_rate": 0.1, **({"loss": loss} if loss else {})}
    return Recipe.model_validate(
        {
            "seed": 3,
            "algorithm": {"name": name},
            "training": training,
            "rounds": {"count": rounds},
            "labels": {"supplement": 1.0, "noise": "white", **labels},
        }
    )


def halves(plan: Recipe) -> tuple[CompleteAlgorithm[Any], CompleteAlgorithm[Any]]:
    """Return the coordinator's half and the devices', which knows what a task tells."""
    return make(plan), make_device_half(task_fields(plan))


def model(shape: tuple[int, ...] = IMAGE, classes: int = LABELS) -> Model:
    section = ModelSection.model_validate({"name": "mlp", "hidden": [3]})
    return build(section, shape, classes, 1)


@dataclass
class Device:
    """A device: its samples, what its owner allows, and what it keeps across runs."""

    train: Samples
    policy: Policy = ANYTHING
    data: str = "first"
    kept: PersistentState = field(default_factory=PersistentState)
    online: bool = True
    preparation: Preparation = UNPREPARED
    pool: Any = None


Tamper = Callable[[Exchange, Answer], Answer | None]


@dataclass
class LabelPlayers:
    """Devices that answer the exchanges of a run about labels.

    Attributes:
        devices: by id.
        plan: the recipe.
        deaf: devices that answer no exchange of these names.
        tamper: what becomes of an answer on its way; None if it is lost.
        random: seed of the privacy noise; None for the operating system's.
        log: name of every exchange, who was asked, and who answered.
        refused, rejected: reasons by device and exchange.
        halfway: called with the state before each merge; returns that to merge into.
    """

    devices: dict[str, Device]
    plan: Recipe = field(default_factory=recipe)
    deaf: dict[str, set[str]] = field(default_factory=dict)
    tamper: Tamper = lambda exchange, answer: answer
    random: int | None = 1
    backwards: bool = False
    model: Model = field(default_factory=model)
    log: list[tuple[str, list[str], list[str]]] = field(default_factory=list)
    refused: dict[tuple[str, str], str] = field(default_factory=dict)
    rejected: dict[tuple[str, str], str] = field(default_factory=dict)
    metrics: dict[tuple[str, str], Mapping[str, float]] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    relayed: int = 0
    halfway: Callable[[Exchange, State], State] = lambda exchange, state: state

    def __post_init__(self) -> None:
        self.half, self.device_half = halves(self.plan)

    @property
    def labels(self) -> BountyExchange:
        part = self.half.parts()[0]
        assert isinstance(part, BountyExchange)
        return part

    @property
    def roster(self) -> Roster:
        return tuple(
            Member(name, len(each.train), self.model.shape, self.model.classes, each.data)
            for name, each in sorted(self.devices.items())
            if each.online
        )

    def start(self) -> State:
        return self.half.start(self.model.weights(), self.roster, 11)

    def planned(self, state: State) -> Exchange:
        exchange = self.half.plan(state, self.roster, derive(5, state.round))
        assert isinstance(exchange, Exchange)
        return exchange

    def view(self, name: str, index: int = 0) -> DeviceView:
        device = self.devices[name]
        return DeviceView(
            train=device.train,
            test=images([1] * LABELS),
            private={},
            policy=device.policy,
            model=self.model,
            device_state=device.kept.read_only(),
            ledger=device.kept.ledger,
            preparation=device.preparation,
            pool=device.pool,
            private_generator=self._random(name, index),
        )

    def _random(self, name: str, index: int) -> np.random.Generator:
        if self.random is None:
            return operating_system_generator()
        return np.random.default_rng([self.random, derive(index, name)])

    def task(self, exchange: Exchange, question: Question) -> DeviceTask:
        relays: dict[str, tuple[bytes, ...]] = {}
        for each in question.relays:
            relays[each.sender] = (*relays.get(each.sender, ()), self.blobs[each.digest])
        return DeviceTask(
            question=exchange.name,
            round=exchange.round,
            device=question.device,
            seed=derive(3, exchange.round, exchange.name, question.device),
            groups={role: exchange.payloads[name].arrays for role, name in question.blobs.items()},
            params=json.loads(json.dumps(dict(question.params))),
            receivers=question.receivers,
            max_relay_bytes=exchange.max_relay_bytes,
            relays=relays,
        )

    def job(self, name: str, state: State) -> Job:
        """Return the training job of a device."""
        exchange = self.planned(state)
        assert exchange.name == "fit", exchange.name
        (question,) = (each for each in exchange.questions if each.device == name)
        work = self.device_half.prepare(self.task(exchange, question), self.view(name))
        assert isinstance(work, Job)
        return work

    def samples(self, name: str, state: State) -> Samples:
        """Return what a device trains on."""
        return self.job(name, state).samples or self.devices[name].train

    def answer(self, exchange: Exchange, question: Question) -> Answer | None:
        """Return what the coordinator accepts of a device's answer."""
        name, key = question.device, (question.device, exchange.name)
        task, device = self.task(exchange, question), self.devices[name]
        try:
            made = self.device_half.prepare(task, self.view(name, len(self.log)))
        except Withheld as error:
            self.refused[key] = error.message
            return None
        assert isinstance(made, Answer)
        ledger = checked_changes(device.kept, made)
        for receiver, blob in made.relays.items():
            assert receiver in task.receivers
            assert len(blob) <= task.max_relay_bytes
            self.blobs[digest(blob)] = blob
        device.kept = device.kept.after(made.device_state, ledger)
        self.relayed += 1
        relayed = tuple(
            Relay(f"x-{self.relayed}", name, to, digest(blob), len(blob))
            for to, blob in sorted(made.relays.items())
        )
        told = Answer(name, made.samples, made.groups, made.metrics, relayed=relayed)
        sent = self.tamper(exchange, told)
        if sent is None:
            return None
        if reason := self.half.reject_reason(exchange, sent, self.model):
            self.rejected[key] = reason
            return None
        self.metrics[key] = sent.metrics
        return sent

    def step(self, state: State, exchange: Exchange) -> State:
        """Put an exchange and return the state after it, through JSON."""
        deaf = self.deaf.get(exchange.name, set())
        asked = [each.device for each in exchange.questions]
        found = [
            self.answer(exchange, each) for each in exchange.questions if each.device not in deaf
        ]
        answers = [each for each in found if each is not None]
        if self.backwards:
            answers.reverse()
        self.log.append((exchange.name, asked, [each.device for each in answers]))
        state = self.halfway(exchange, state)
        merged = self.half.merge(state, without_payloads(exchange), answers)
        return replace(merged, params=json.loads(json.dumps(merged.params)))

    def to_training(self, state: State | None = None) -> State:
        """Put exchanges until training is next."""
        state = state or self.start()
        for _ in range(MOST_EXCHANGES):
            exchange = self.planned(state)
            if exchange.name not in PREPARED:
                return state
            state = self.step(state, exchange)
        raise AssertionError("it never trains")

    def to_exchange(self, name: str, state: State | None = None) -> tuple[State, Exchange]:
        """Put exchanges until one of a name is next."""
        state = state or self.start()
        for _ in range(MOST_EXCHANGES):
            exchange = self.planned(state)
            if exchange.name == name:
                return state, exchange
            state = self.step(state, exchange)
        raise AssertionError(f"{name} never comes")

    def next_round(self, state: State) -> State:
        """Return the state after a round of training that changes nothing."""
        exchange = self.half.plan(state, self.roster, 1)
        assert not isinstance(exchange, Finished)
        assert exchange.name == "fit", exchange.name
        return self.half.merge(state, without_payloads(exchange), [])

    def ordered(self, state: State, number: int, action: Any, *what: Any) -> State:
        return self.half.with_bounty_orders(state, [BountyOrder(number, action, *what)])

    def bounties(self, state: State, device: str = "") -> list[Bounty]:
        bounties = BountyRecords.of(state).bounties
        return [each for each in bounties if device in ("", each.device)]

    def bounty(self, state: State, device: str, label: int) -> Bounty:
        (found,) = (each for each in self.bounties(state, device) if each.label == label)
        return found

    def names(self) -> list[str]:
        """Return the names of the exchanges so far."""
        return [name for name, _, _ in self.log]

    def kept(self, name: str) -> dict[str, Tensors]:
        return dict(self.devices[name].kept.device_state)


def without_payloads(exchange: Exchange) -> Exchange:
    """Return an exchange as the engine hands it to ``merge``, its parameters through JSON."""
    questions = tuple(
        replace(each, blobs={}, params=json.loads(json.dumps(dict(each.params))))
        for each in exchange.questions
    )
    return replace(exchange, questions=questions, payloads={}, discarded=())


def one_label_each(number: int = LABELS, count: int = 8, **plan: Any) -> LabelPlayers:
    """Return devices of one label each: ``device-00`` has label 0, and so on."""
    devices = {f"device-{n:02d}": Device(only(n % LABELS, count)) for n in range(number)}
    return LabelPlayers(devices, recipe(**plan))


def records(state: State) -> BountyRecords:
    return BountyRecords.of(state)


def rows(role: str, columns: Sequence[str], *values: Sequence[int]) -> dict[str, Group]:
    """Return rows of numbers as an answer's groups."""
    arrays = {
        name: np.array([row[place] for row in values], np.int64)
        for place, name in enumerate(columns)
    }
    return {role: Group(arrays)}
