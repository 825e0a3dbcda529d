"""Targets of a device: its agent, which trains real tasks, its limits, and answers to tokens."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import strategies as st

from benchmarks.fuzzing import fleet
from benchmarks.fuzzing.coordinator_targets import limits, tokens
from benchmarks.fuzzing.fleet import (
    PARTIES,
    PASSING,
    TOPICS,
    FuzzClock,
    UnconnectedLink,
    certificate_of,
)
from benchmarks.fuzzing.running import Reader, Target
from benchmarks.fuzzing.strategies import Draft, Lane, Pools, arrivals, broken, drafts, siblings
from device_agent.daemon.agent import Agent, Train
from device_agent.daemon.arrival_limits import ArrivalLimits
from device_agent.identity.identity import Identity, agent_verifier
from device_agent.reports.log_ring import LogRing
from device_agent.reports.telemetry import Sensors
from device_agent.tasks.device_store import DeviceStore
from device_agent.tasks.training_child import StoredArrays, TaskTraining
from device_agent.tasks.training_messages import TrainingOrder
from edgefed.algorithms.composed.registry import algorithms
from edgefed.config.recipes.images_section import ImagesSection
from edgefed.config.recipes.recipe import ModelSection
from edgefed.config.recipes.training_section import TrainingSection
from edgefed.config.values.address import Address
from edgefed.control.enrolment_client import Applicant, _credentials, _is_genuine
from edgefed.errors import NotAllowedError
from edgefed.files.writing import write_atomic
from edgefed.learn.base.types import Samples
from edgefed.learn.modeling.model_building import build
from edgefed.transport.renewal import RENEWALS, Renewal
from edgefed.trust.credentials import ENCRYPTION, KEY, private_pem
from edgefed.trust.sealed_data import SealContext, seal_data
from edgefed.wire.enrolment_messages import EnrolmentResponse, sealed
from edgefed.wire.envelope import decode, encode
from edgefed.wire.messages import Birth
from edgefed.wire.tensors import digest, pack
from edgefed.wire.topics import TOPIC_SPECS
from edgefed.worker.device_credentials import DeviceCredentials
from edgefed.worker.trainer_cache import TrainerCache
from edgefed.worker.worker import Worker

DEVICE, SESSION = "dev-1", "d" * 16
MAX_STEPS = 50
"""Of a training, after which it stays at work without an outcome."""

MODEL: dict[str, Any] = {"name": "mlp", "hidden": [4]}


def _weights() -> bytes:
    return pack(build(ModelSection.model_validate(MODEL), (1, 2, 2), 2, 5).weights())


BLOBS = (_weights(), *(bytes([number]) * (number * 70_000 + 5) for number in range(2)))
TRAINING = {**TrainingSection().model_dump(mode="json"), "epochs": 1, "max_steps": 3}
LONG = {**TRAINING, "epochs": 10**6, "max_steps": 0}
IMAGES = ImagesSection().model_dump(mode="json")
REFS = tuple({"digest": digest(blob), "size": len(blob), "patches": ()} for blob in BLOBS)
POOLS: Pools = {
    "device": (DEVICE,),
    "session": (*9 * (SESSION,), "e" * 16),
    "exchange": tuple(f"r-1-{number}" for number in range(500)),
    "run": tuple(f"r-{number}" for number in range(50)),  # one that is closed asks for nothing
    "index": (0, 1, 5, 3000, 3000),
    "closed_through": (-1, -1, 0),
    "rounds": (0, 5),
    "digest": tuple(digest(blob) for blob in BLOBS),
    "question": ("fit", "fit", "fit", "evaluate", "mean", "nothing"),
    "model": (*24 * (MODEL,), {"name": "nothing"}, {"hidden": "x"}, {}),
    "training": (*120 * (TRAINING,), {**TRAINING, "epochs": -1}, {"max_steps": 2}, LONG, {}),
    "shape": (*30 * ((1, 2, 2),), (4,), (), (10**9, 10**9)),
    "classes": (*30 * (2,), 0, 2**50),
    "class_names": (*20 * ((),), ("a", "b"), ("a", "a")),
    "deadline": (30.0,),
    "samples": (8, 8, 5),
    "params": ({}, {}, {}, {"tau": 1}, {"mode": "x"}),
    "receivers": ((), (), ("dev-2",)),
    "relays": ((),),
    "blobs": (
        *20 * ({"weights": REFS[0]},),
        {"weights": REFS[1]},
        *3 * ({"weights": REFS[2]},),
        {},
    ),
    "codec": (*9 * ("fp32",), "fp32", "bf16", "int8", "nothing"),
    "images": (*20 * (IMAGES,), {}, {**IMAGES, "resize": 4}),
    "labels": (*60 * ({},), {"mode": "real"}),
    "personal": (*60 * ({},), {"layers": ["x"]}),
    "privacy": (*60 * ({},), {"mechanism": "local"}, {"mechanism": "central"}),
    "secure_aggregation": (*60 * ({},), {"enabled": True}),
    "evaluation": ({}, {"confusion": True}),
    "chunks": ((), (0,), (0, 1, 2), (99,)),
}


@lru_cache
def relayed() -> tuple[bytes, bytes]:
    """Return data that another device sealed for the agent, and the same damaged."""
    key = X25519PrivateKey.from_private_bytes(bytes(range(32)))
    context = SealContext("r-1", "r-1-0", "dev-2", DEVICE)
    made = seal_data(
        fleet.credentials_of("dev-2"), certificate_of(DEVICE), context, b"mix" * 9, lambda: key
    )
    return made, made[:-1] + b"\0"


def _signed_pools() -> Pools:
    """Return more values for a signed fleet: sealed data of others, and certificates."""
    draws = random.Random(1)
    relays = [
        {"exchange": "r-1-0", "sender": "dev-2", "digest": digest(data), "size": len(data)}
        for data in relayed()
    ]
    known = {"dev-2": certificate_of("dev-2").der}
    return {
        **POOLS,
        "relays": ((), (), relays[:1], relays, [{**relays[0], "sender": "dev-3"}]),
        "certificates": ({}, known, {"dev-2": b"x"}),
        "certificate": tuple(
            fleet.damaged_certificate(party, draws) for party in (*4 * ("renewed",), *PARTIES)
        ),
    }


def _lanes(pools: Pools) -> Iterator[Lane]:
    """Return the topics that an agent reads; tasks are of each algorithm with its settings."""
    for spec in TOPIC_SPECS.values():
        if spec.branch in ("all", "down"):
            names = (DEVICE,) if spec.branch == "down" else ("",)
            yield from [(spec, names, pools)] * 4  # there are many tasks of algorithms
    # Another agent of its name would end it.
    yield TOPIC_SPECS["up", "birth"], (DEVICE,), {**pools, "session": (SESSION,)}
    for name, known in algorithms().items():
        settings = known.Settings().model_dump(mode="json")
        wrong = {**settings, "more": 1}, dict.fromkeys(settings, "x")
        own = {**pools, "algorithm": (name,), "settings": (*15 * (settings,), {}, *wrong)}
        yield TOPIC_SPECS["down", "task"], (DEVICE,), own


MESSAGES = st.deferred(lambda: arrivals(TOPICS, _lanes(POOLS)))
SIGNED_MESSAGES = st.deferred(
    lambda: arrivals(TOPICS, _lanes(_signed_pools()), fleet.sealing(forged=0.1))
)


# -- the agent --------------------------------------------------------------------------------


class TrainingInThisProcess:
    """Does what a training process does, at once; what takes many steps stays at work."""

    def __init__(
        self, worker: Worker, folder: Path, clock: FuzzClock, report: Callable[[Any], None]
    ) -> None:
        stored = StoredArrays(folder / "blobs")
        self._training = TaskTraining(worker, stored, clock, report, self._is_over)
        self._begun, self._steps = "", 0
        self.stop = self.keep = lambda *arguments: None  # there is no process

    def _is_over(self) -> bool:
        self._steps += 1
        return self._steps > MAX_STEPS

    def begin(self, order: TrainingOrder) -> None:
        """Do a task."""
        self._begun, self._steps = order.name, 0
        self._training.begin(order)

    def give_up(self) -> None:
        """Give the task up that has stayed at work."""
        self._begun = ""

    def work_on(self, name: str) -> bool:
        """Whether a task of this name was begun last."""
        return self._begun == name


def unconnected_agent(folder: Path, clock: FuzzClock, renewal: Renewal | None = None) -> Agent:
    """Return an agent whose messages nobody gets; it holds the first two blobs."""
    own = None if renewal is None else renewal.current()
    address = Address("127.0.0.1", 1, tls=own is not None, credentials=own)
    trust = None if renewal is None else DeviceCredentials(renewal.current)
    birth = Birth(session=SESSION, status="online", samples=8)
    store = DeviceStore(folder, 2**24)
    for blob in BLOBS[:2]:
        store.cache.put(blob)
    draws = np.random.default_rng(1)
    samples = Samples(draws.random((8, 1, 2, 2), np.float32), np.arange(8) % 2)
    log = LogRing()
    for text in (*("a line",) * 300, "é" * 600):
        log.handle(logging.makeLogRecord({"name": "device_agent", "levelno": 20, "msg": text}))
    worker = Worker(TrainerCache(), samples, samples, credentials=trust)
    identity = Identity(fleet.FLEET, DEVICE, birth)
    train = cast("Train", partial(TrainingInThisProcess, worker, folder, clock))
    made = Agent(identity, address, store, train, Sensors(), clock, renewal, log)
    link = UnconnectedLink(made._inbox, own)
    for part in (made, made._publisher, made._sender, made._downloads, made._tasks):
        part._link = link
    return made


def end(made: Agent) -> None:
    """End the threads of an agent."""
    made._training.stop()
    made._sender.stop()
    made._downloads.close()
    made._store.close()


class AgentReader:
    """An agent that processes messages; limits of arrivals are not applied."""

    def __init__(self, folder: Path, *, signed: bool) -> None:
        self.clock, self._blobs = FuzzClock(), BLOBS[:2]
        self._waiting = folder / "trust" / RENEWALS / DEVICE
        self._renewal: Renewal | None = None
        if signed:
            credentials = fleet.saved_credentials(DEVICE, folder / "trust")
            self._renewal = Renewal(credentials, self.clock)
            self._blobs += relayed()
        self.agent = unconnected_agent(folder / "state", self.clock, self._renewal)
        if signed:
            address = Address("127.0.0.1", 1, tls=True, credentials=credentials)
            self.agent._verifier = agent_verifier(address, folder / "state", self.clock)
            self.await_certificate()

    def await_certificate(self) -> None:
        """Wait for the next certificate, whose keys are known."""
        keys = fleet.keys_of("renewed")
        write_atomic(self._waiting / KEY, private_pem(keys.signing))
        write_atomic(self._waiting / ENCRYPTION, private_pem(keys.encryption))

    def __call__(self, data: bytes) -> None:
        """Process a message, and the messages of the agent's own threads that follow from it.

        The agent gets back the blobs that it has deleted because a task called them private.

        Raises:
            WireError: the message was refused.
        """
        self.clock.move(0.05)
        agent, cache = self.agent, self.agent._store.cache
        for blob in self._blobs:
            cache.put(blob)
        agent._take(fleet.split(data))
        while (item := agent._inbox.get(0.0)) is not None:
            agent._take(item)
        agent._tasks.retry()
        agent._tick()
        agent._link._pending.clear()
        if self._renewal is not None:
            own = self._renewal.current().certificate
            assert own in (certificate_of(DEVICE), certificate_of("renewed"))
        fleet.read_again(data, agent._verifier)

    def close(self) -> None:
        """End the threads of the agent."""
        end(self.agent)


def _arrival_limits(clock: FuzzClock) -> ArrivalLimits:
    gate = ArrivalLimits(TOPICS, clock)
    gate.know_run("r-1")
    return gate


# -- the answer to a token --------------------------------------------------------------------

ANSWERS: Pools = {
    "status": ("enrolled", "enrolled", "pending", "refused"),
    "code": ("", "enrol.used", "enrol.unknown_token", "trust.name"),
    "broker": (fleet.BROKER, "", "mqtt://x", "\x00"),
}


def make_answer(draft: Draft, draws: random.Random) -> bytes:
    """Return an answer to the holder of the first token, proven by it or not, or broken."""
    if draws.random() < 0.3:
        return draft.payload(draws)
    party = "dev-1" if draws.random() < 0.8 else draws.choice((*PARTIES,))
    authority = draws.choice(("authority", "authority", "dev-1"))
    certificates = {
        "certificate": fleet.damaged_certificate(party, draws),
        "authority": certificate_of(authority).der,
    }
    answer = EnrolmentResponse.model_validate({**draft.fields, **certificates})
    token = draws.choice((*tokens()[:1] * 9, tokens()[1]))
    made = encode(sealed(answer, token.proof_key))
    return broken(made, draws) if draws.random() < 0.2 else made


ANSWER = siblings(drafts(EnrolmentResponse, ANSWERS), make_answer)


def answers(folder: Path) -> Reader:
    """Read the answers to a token; credentials come from its authority only, for the own key."""
    keys, clock, first = fleet.keys_of("dev-1"), FuzzClock(), tokens()[0]
    token = type(first)(first.authority_key, first.secret, first.host, first.port, first.fleet)
    applicant = Applicant(token, "dev-1", ("device",), folder)

    def read(data: bytes) -> None:
        answer = decode(data, EnrolmentResponse)
        if not _is_genuine(answer, token):
            raise NotAllowedError("It is not proven.", code="enrol.unproven")
        if answer.status == "refused":
            raise NotAllowedError(answer.reason or "None.", code=answer.code or "enrol.refused")
        if answer.status == "enrolled":
            made = _credentials(applicant, keys, answer, clock.now())
            assert made.certificate.signing_key == keys.signing.public_key()
            assert made.certificate in map(certificate_of, PARTIES), "nobody issued this"
            assert made.certificate.role == "device"
            assert made.authority.signing_key == fleet.keys_of("authority").signing.public_key()

    return read


TARGETS = (
    Target("agent", partial(AgentReader, signed=False), MESSAGES, steps=PASSING),
    Target(
        "signed-agent",
        partial(AgentReader, signed=True),
        SIGNED_MESSAGES,
        5,
        steps=(*PASSING, ("await_certificate",)),
    ),
    Target("arrivals", partial(limits, _arrival_limits), MESSAGES, 5),
    Target("answer", answers, ANSWER, 4),
)
