"""Targets of the coordinator: its dispatcher with open exchanges, and what answers requests."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from benchmarks.fuzzing.broker_message import UnconnectedLink, decode_again, join, split
from benchmarks.fuzzing.fuzz_clock import FuzzClock
from benchmarks.fuzzing.fuzz_devices import fuzz_actions, fuzz_diagnostics
from benchmarks.fuzzing.mutations import strange_value
from benchmarks.fuzzing.random_messages import Pools, payload
from benchmarks.fuzzing.targets import Reader, Target
from edgefed.config.recipe import EvaluationPlace, Recipe
from edgefed.coordinator.challenges import Challenges
from edgefed.coordinator.device_registry import DeviceRegistry
from edgefed.coordinator.dispatcher import Dispatcher
from edgefed.coordinator.dispatcher_deps import DispatcherDeps
from edgefed.coordinator.event_journal import EventJournal
from edgefed.coordinator.known_devices import KnownDevices
from edgefed.coordinator.new_run import create_run
from edgefed.coordinator.pending_exchanges import PendingExchange
from edgefed.coordinator.relayed_blobs import RelayedBlobs
from edgefed.coordinator.request_handler import RequestHandler
from edgefed.coordinator.run_records import OpenExchange, RunRecord
from edgefed.coordinator.sender_limits import SenderLimits
from edgefed.coordinator.store import Store
from edgefed.errors import NotAllowedError
from edgefed.transport.inbox import Inbox
from edgefed.wire.blobs import BlobCache
from edgefed.wire.diagnostic_messages import LogTail, Pong
from edgefed.wire.messages import (
    MESSAGES,
    Birth,
    BlobRef,
    Chunk,
    CoordinatorState,
    Need,
    Progress,
    Reply,
    Request,
    Task,
    Telemetry,
)
from edgefed.wire.tensors import digest
from edgefed.wire.topics import Topics

TOPICS = Topics("fuzz")
DEVICES = ("dev-1", "dev-2", "dev-3")
SESSIONS = ("a" * 16, "b" * 16)
BLOBS = tuple(bytes([number]) * (number * 70_000 + 5) for number in range(3))
POOLS: Pools = {
    "device": DEVICES,
    "session": SESSIONS,
    "exchange": ("r-1-0", "r-1-1", "r-1-0-x"),
    "run": ("r-1",),
    "index": (0, 1),
    "digest": tuple(digest(blob) for blob in BLOBS),
    "nonce": tuple(f"{number:08x}" for number in range(2000)),
    "chunks": ([], [0], [0, 1, 2], [99]),
}
KINDS: dict[str, type[Any]] = {
    "birth": Birth,
    "progress": Progress,
    "telemetry": Telemetry,
    "reply": Reply,
    "need": Need,
    "ping": Pong,
    "log": LogTail,
}


def make_arrival(draws: random.Random) -> bytes:
    """Return a topic and a payload as a broker delivers them to a coordinator."""
    device = draws.choice((*DEVICES, *DEVICES, "nobody"))
    kind = draws.random()
    if kind < 0.15:
        return join(TOPICS.up_chunk(device), payload(draws, (Chunk,), POOLS), draws)
    if kind < 0.2:
        return join(TOPICS.coordinator(), payload(draws, (CoordinatorState,), POOLS), draws)
    if kind < 0.25:
        return join(TOPICS.request("local/0"), payload(draws, (Request,), POOLS), draws)
    leaf = draws.choice((*KINDS,))
    kinds = (KINDS[leaf],) if draws.random() < 0.97 else MESSAGES
    return join(f"{TOPICS.root}/up/{device}/{leaf}", payload(draws, kinds, POOLS), draws)


@contextmanager
def dispatcher(folder: Path) -> Iterator[Reader]:
    """Hand messages to a dispatcher that has an exchange open; its limits are not applied."""
    clock = FuzzClock()
    link = UnconnectedLink(Inbox[NoReturn](clock))
    store = Store(folder / "store", durable=False)
    made = make_dispatcher(folder, clock, link, store)
    exchanges: list[PendingExchange] = []

    def read(data: bytes) -> None:
        take(made, exchanges, clock, data)
        link.forget()
        decode_again(TOPICS, split(data))

    yield read
    end(made, store)


def make_dispatcher(
    folder: Path, clock: FuzzClock, link: UnconnectedLink, store: Store, **more: Any
) -> Dispatcher:
    """Return a dispatcher that holds the first two blobs; its thread does not run."""
    journal = EventJournal("fuzz", clock)
    registry = DeviceRegistry(journal, clock)
    diagnostics = fuzz_diagnostics(link, TOPICS, registry, journal, clock)
    diagnostics.expect(POOLS["nonce"], DEVICES, SESSIONS[0])
    cache = BlobCache(folder / "blobs", 2**24)
    for blob in BLOBS[:2]:
        cache.put(blob)
    deps = {
        "link": link,
        "inbox": Inbox[NoReturn](clock),
        "topics": TOPICS,
        "registry": registry,
        "cache": cache,
        "relays": RelayedBlobs(cache, folder / "relays"),
        "staging": folder / "staging",
        "journal": journal,
        "clock": clock,
        "jitter": random.Random(1),
        "on_request": lambda client, request, signer: None,
        "on_up": lambda: None,
        "session": "c" * 16,
        "known": KnownDevices(store).__contains__,
        "on_diagnostic": diagnostics.take,
    }
    return Dispatcher(DispatcherDeps(**{**deps, **more}))


def take(made: Dispatcher, exchanges: list[PendingExchange], clock: FuzzClock, data: bytes) -> None:
    """Hand a message to a dispatcher, whose exchange is another one from time to time."""
    clock.move(0.05)
    if not exchanges or clock.monotonic() - exchanges[-1].started > 20:
        _next_exchange(made, exchanges, clock)
    with made._lock:
        made._take(split(data))
        made._tick()


def end(made: Dispatcher, store: Store) -> None:
    """End the threads of a dispatcher."""
    made._sender.stop()
    made._replies.stop()
    store.close()


def _next_exchange(made: Dispatcher, exchanges: list[PendingExchange], clock: FuzzClock) -> None:
    """Close the exchange that is open and open another, now and then the same again."""
    if exchanges:
        made.close(exchanges.pop())
        made.forget("r-1", 0)
    pending = PendingExchange(_exchange(), clock.monotonic())
    exchanges.append(pending)
    made.open(pending)


def _exchange() -> OpenExchange:
    ref = BlobRef(digest=digest(BLOBS[1]), size=len(BLOBS[1]))
    tasks = tuple(
        Task(
            run="r-1",
            exchange="r-1-1",
            index=1,
            round=1,
            question="fit",
            device=device,
            deadline=60.0,
            seed=1,
            algorithm="fedavg",
            settings={},
            model={},
            training={},
            codec="fp32",
            samples=5,
            blobs={"weights": ref},
            params={},
            receivers=DEVICES,
            max_relay_bytes=2**20,
        )
        for device in DEVICES
    )
    return OpenExchange(
        exchange="r-1-1",
        index=1,
        name="fit",
        round=1,
        tasks=tasks,
        wanted=3,
        quorum=1,
        deadline=60.0,
    )


# -- limits of senders ------------------------------------------------------------------------


@contextmanager
def limits(folder: Path) -> Iterator[Reader]:
    """Judge messages by their senders, and put those that are read into an inbox."""
    del folder
    clock = FuzzClock()
    gate = SenderLimits(TOPICS, clock, lambda device: device == "dev-1")
    inbox: Inbox[NoReturn] = Inbox(clock, gate=gate)

    def read(data: bytes) -> None:
        clock.move(0.001)
        inbox.put(split(data))
        while inbox.get(0.0) is not None:
            pass

    yield read


def make_sender(draws: random.Random) -> bytes:
    """Return a message of any sender on any topic."""
    levels = [draws.choice(("up", "control", "all", "", "x" * 500)), f"n-{draws.getrandbits(40)}"]
    levels += [draws.choice((*KINDS, "c/1/2", "", "birth", "request"))]
    topic = TOPICS.root + "/" + "/".join(levels[: draws.choice((1, 2, 3, 3, 3, 3))])
    return join(topic, draws.randbytes(draws.choice((0, 1, 9000))), draws)


# -- requests ---------------------------------------------------------------------------------


class RefusingService:
    """Starts nothing, and says so."""

    def start(self, recipe: Recipe, *, paused: bool) -> RunRecord:
        """Start nothing."""
        raise NotAllowedError("Nothing is started here.", code="run.busy")

    def order(self, run: str, action: str) -> str:
        """Take no order."""
        raise NotAllowedError("Nothing is at work here.", code="run.busy")

    def delete(self, run: str) -> None:
        """Delete nothing."""
        raise NotAllowedError("Nothing is deleted here.", code="run.busy")

    def check(self, recipe: Recipe) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def evaluate(self, run: str, on: EvaluationPlace | None, mode: str, *, best: bool) -> str:
        """Return an id."""
        return "e-1"


ACTIONS = (
    *("challenge", "snapshot", "run.list", "run.show", "run.summary", "run.check", "run.start"),
    *(
        "run.order",
        "run.evaluate",
        "run.evaluation",
        "run.delete",
        "device.forget",
        "label.order",
        "nothing",
    ),
    *("device.quarantine", "device.release", "device.pause", "device.resume"),
    *("device.ping", "device.log"),
)
ARGUMENTS = (
    *("run", "action", "device", "label", "recipe", "on", "mode", "best", "evaluation"),
    *("reason", "devices", "timeout", "lines", "after"),
)


def make_request(draws: random.Random) -> bytes:
    """Return a request with arguments that its action may not expect."""
    names = draws.sample(ARGUMENTS, draws.choice((0, 1, 2, 3)))
    values = (
        *("r-1", "", "dev-1", "open", "pause", {"name": "x"}, {"rounds": {"count": 3}}),
        *(["dev-1"], 2, 0.5),
    )
    pools = {
        **POOLS,
        "action": ACTIONS,
        "challenge": ("0" * 8,),
        "arguments": tuple(
            {
                name: draws.choice(values) if draws.random() < 0.7 else strange_value(draws)
                for name in names
            }
            for _ in range(2)
        ),
    }
    return payload(draws, (Request,), pools)


@contextmanager
def requests(folder: Path) -> Iterator[Reader]:
    """Answer requests over a store that has a run."""
    from edgefed.errors import EdgeFedError
    from edgefed.transport.inbox import InboxCounts
    from edgefed.wire.envelope import decode

    clock = FuzzClock()
    store = Store(folder / "store", durable=False)
    create_run(store, Recipe(), clock)
    challenges = Challenges(clock, lambda: "0" * 8)
    journal = EventJournal("fuzz", clock)
    registry = DeviceRegistry(journal, clock)
    journal.emit("device", device="dev-1", state="idle")
    link = UnconnectedLink(Inbox[NoReturn](clock))
    diagnostics = fuzz_diagnostics(link, TOPICS, registry, journal, clock)
    handler = RequestHandler(
        "c" * 16,
        store,
        journal,
        RefusingService(),
        challenges,
        InboxCounts,
        lambda name: None,
        fuzz_actions(registry, journal, clock, diagnostics),
    )

    def read(data: bytes) -> None:
        request = decode(data, Request)
        challenges.issue("")
        try:
            body = handler._carry_out(request, None)
        except EdgeFedError:
            body = None
        except ValueError:  # pydantic's, which becomes an answer
            body = None
        assert body is None or handler.answer(request, None)

    yield read
    store.close()


TARGETS = (
    Target("dispatcher", make_arrival, dispatcher, 10, "wire"),
    Target("senders", make_sender, limits, 8, "wire"),
    Target("request", make_request, requests, 5, "wire"),
)
