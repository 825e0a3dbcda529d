"""Record a run of 40 boards: the coordinator's own journal writes what happens into a file.

Some boards are lost, hot, throttled, late or refused, and one is quarantined. All follows from a
seed, so that a recording is the same wherever it is made. A run has one method, so that there is a
recording for each: ``fedprox``, ``bounties``, ``fedmoe`` and ``fedma``.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from edgefed.config.recipes.checks_section import ChecksSection
from edgefed.coordinator.devices.device_registry import DeviceRegistry
from edgefed.coordinator.devices.trust_scores import Judged, TrustScores
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.evaluation.confusion import Confusion
from edgefed.events.state.feed_update import FeedUpdate
from edgefed.process.clock import timestamp
from edgefed.tui.feeds.recorded_feed import last_of_events
from edgefed.wire.messages import Birth, DeviceState, Progress, Telemetry
from tests.tui.recorded_methods import Method, method_of
from tests.tui.samples import CLASS_NAMES, MIB, NOW, FakeClock

RUN, ROUNDS, OPEN_ROUND = "r-0142", 50, 13
ROUND_SECONDS, DEADLINE = 60.0, 50.0
ENDS = 750.0
"""Seconds from the start of the run to ``NOW``, in the middle of the open round."""

COHORT, QUORUM = 24, 18

LOST = {"rpi5-03": (13, 12.0), "orin-12": (13, 5.0), "rpi5-09": (11, 20.0), "xavier-02": (7, 9.0)}
"""Devices that are lost, in which round and how many seconds after its beginning."""

REFUSED = {
    "rpi5-11": ("norm 19.4 exceeds 10.0", (5, 12, 13)),
    "gateway-line3-04": ("conv2.weight is not finite", (4, 5, 6, 7, 8, 9)),
}
"""Devices whose updates a check refuses, why, and in which rounds."""

LATE = {"xavier-07": range(3, 13), "rpi5-12": (6, 11)}
HOT = {"orin-05": 84.0, "xavier-06": 92.0}
THROTTLED = "xavier-06"
LOW_BATTERY = {"rpi5-06": 14.0}

BOARDS = {
    "orin": ("NVIDIA Jetson Orin Nano", "cuda", 16, 9.0),
    "xavier": ("NVIDIA Jetson Xavier NX", "cuda", 8, 14.0),
    "rpi5": ("Raspberry Pi 5 8 GB", "cpu", 12, 26.0),
    "gateway-line3": ("Intel NUC 11", "cpu", 4, 12.0),
}
"""Families of boards: hardware, accelerator, how many, seconds to train a round."""

LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
"""Classes of the recording with more of them than a matrix has room for."""


@dataclass(frozen=True)
class Board:
    """One device of the fleet."""

    device: str
    hardware: str
    accelerator: str
    seconds: float
    labels: tuple[int, ...]

    @property
    def session(self) -> str:
        """The life of its agent."""
        return f"{sum(map(ord, self.device)):08x}"


def boards(rng: random.Random, classes: int) -> list[Board]:
    """Return the fleet; each device lacks some labels and has much of others."""
    found = []
    for family, (hardware, accelerator, number, seconds) in BOARDS.items():
        for index in range(1, number + 1):
            weights = [rng.gammavariate(0.5, 1.0) for _ in range(classes)]
            samples = rng.randint(300, 900)
            labels = tuple(int(samples * weight / sum(weights)) for weight in weights)
            own = seconds * rng.uniform(0.8, 1.3)
            found.append(Board(f"{family}-{index:02d}", hardware, accelerator, own, labels))
    return found


@dataclass
class Recorder:
    """Lets things happen in the order of their times, and has the journal write them down."""

    path: Path
    method: Method
    class_names: tuple[str, ...] = CLASS_NAMES
    clock: FakeClock = field(default_factory=lambda: FakeClock(NOW - timedelta(seconds=ENDS)))
    rng: random.Random = field(default_factory=lambda: random.Random(15))

    def __post_init__(self) -> None:
        self.journal = EventJournal("plant-a", self.clock)
        self.trust = TrustScores()
        self.registry = DeviceRegistry(self.journal, self.clock, self.trust)
        self.fleet = boards(self.rng, len(self.class_names))
        self._queue: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = count()
        self._bytes = [0, 0]

    def at(self, seconds: float, call: Callable[[], object]) -> None:
        """Let something happen so many seconds after the recording began."""
        heapq.heappush(self._queue, (seconds, next(self._numbers), call))

    def record(self) -> None:
        """Write the whole run, up to the middle of its open round."""
        for index, board in enumerate(self.fleet):
            self.at(-5 + index * 0.1, partial(self._join, board))
        self.at(0, self._begin)
        for number in range(1, OPEN_ROUND + 1):
            self.at(2 + ROUND_SECONDS * (number - 1), partial(self._open_round, number))
        while self._queue and self._queue[0][0] <= ENDS:
            seconds, _, call = heapq.heappop(self._queue)
            self.clock.seconds = seconds
            call()
        self.journal.close()

    # -- the fleet ------------------------------------------------------------------------------

    def _join(self, board: Board) -> None:
        birth = Birth(
            session=board.session, status="online", agent="0.1.0", torch="2.9.1",
            accelerator=board.accelerator, hardware=board.hardware, samples=sum(board.labels),
            labels=board.labels, classes=len(self.class_names), class_names=self.class_names,
            shape=(3, 32, 32),
        )  # fmt: skip
        self.registry.take_birth(board.device, birth)
        self._measure(board, 0)

    def _measure(self, board: Board, number: int) -> None:
        cuda = board.accelerator == "cuda"
        health = Telemetry(
            session=board.session,
            cpu=self.rng.uniform(20, 95),
            gpu=self.rng.uniform(30, 98) if cuda else None,
            memory=int(self.rng.uniform(1.2, 5.5) * 1024 * MIB),
            temperature=HOT.get(board.device, 0) if number > 9 and board.device in HOT
            else self.rng.uniform(48, 71),
            power=self.rng.uniform(5, 14) if cuda else None,
            battery=LOW_BATTERY.get(board.device),
            sent=number * 2 * MIB,
            received=number * 2 * MIB,
        )  # fmt: skip
        self.registry.take_telemetry(board.device, health)

    def _progress(
        self, board: Board, state: DeviceState, fraction: float, exchange: str, reason: str = ""
    ) -> None:
        told = Progress(
            session=board.session, state=state, fraction=fraction, exchange=exchange, reason=reason
        )
        self.registry.take_progress(board.device, told)

    def _lose(self, board: Board) -> None:
        self.registry.take_birth(board.device, Birth(session=board.session, status="lost"))

    # -- the run --------------------------------------------------------------------------------

    def _begin(self) -> None:
        self.journal.open(self.path)
        self.journal.emit(
            "run", run=RUN, name="nightly", algorithm=self.method.algorithm, model="resnet8",
            rounds=ROUNDS, round=0, status="running", reason="", accuracy=None, loss=None,
            weights_digest="", class_names=list(self.class_names), min_devices=8,
        )  # fmt: skip
        self.method.begin(self.journal, RUN, [(each.device, each.labels) for each in self.fleet])

    def _open_round(self, number: int) -> None:
        began, exchange = self.clock.seconds, f"{RUN}-{2 * number - 1}"
        self.journal.emit("round", run=RUN, round=number)
        there = [
            each for each in self.fleet
            if LOST.get(each.device, (99, 0))[0] >= number
            and not self.trust.is_quarantined(each.device)
            and not (each.device == THROTTLED and number > 10)
        ]  # fmt: skip
        named = {*LOST, *LATE, *REFUSED}
        cohort = sorted(there, key=lambda each: (each.device not in named, self.rng.random()))
        self._exchange(number, exchange, "fit", "broadcast", cohort[:COHORT])
        self.accepted: list[str] = []
        self.refused: dict[str, str] = {}
        for board in self.fleet:
            self.at(began + self.rng.uniform(1, 9), partial(self._measure, board, number))
        for board in cohort[:COHORT]:
            self._take_part(board, number, exchange, began)
        for device, (lost_in, after) in LOST.items():
            if lost_in == number:
                (lost,) = [each for each in self.fleet if each.device == device]
                self.at(began + after, partial(self._lose, lost))
        if number == 11:
            (hot,) = [each for each in self.fleet if each.device == THROTTLED]
            self.at(began + 4, partial(self._progress, hot, "paused", 0.0, "", "92 °C, limit 90"))
        self.asked = cohort[:COHORT]
        if number < OPEN_ROUND:
            self.at(began + 52, partial(self._evaluate, number, there))

    def _exchange(
        self, number: int, exchange: str, question: str, phase: str, asked: Sequence[Board]
    ) -> None:
        self.journal.emit(
            "exchange", round=number, exchange=exchange, question=question,
            detail=self.method.detail(number) if question == "fit" else "", phase=phase,
            asked=len(asked), wanted=len(asked), quorum=QUORUM, deadline=DEADLINE,
        )  # fmt: skip

    def _take_part(self, board: Board, number: int, exchange: str, began: float) -> None:
        """Let a device answer a round: in time, late, refused, or not at all."""
        late = number in LATE.get(board.device, ())
        seconds = 53.0 if late else board.seconds * self.rng.uniform(0.95, 1.1)
        seconds *= 1.5 if HOT.get(board.device) and number > 9 else 1.0
        gone = LOST.get(board.device, (0, 0.0))
        ends = gone[1] if gone[0] == number else 1e9
        steps: list[tuple[float, DeviceState, float]] = [(1.5, "download", 0.5)]
        steps += [(2 + share * (seconds - 3), "train", share) for share in (0.05, 0.4, 0.67, 0.83)]
        steps += [(seconds - 0.6, "upload", 0.5)]
        for after, state, fraction in steps:
            if after < ends:
                self.at(began + after, partial(self._progress, board, state, fraction, exchange))
        if seconds < ends:
            self.at(began + seconds, partial(self._reply, board, number, exchange, seconds, late))

    def _reply(self, board: Board, number: int, exchange: str, seconds: float, late: bool) -> None:
        why, rounds = REFUSED.get(board.device, ("", ()))
        refused = number in rounds
        outcome = "late" if late else "rejected" if refused else "accepted"
        if refused:
            self.refused[board.device] = why
        elif not late:
            self.accepted.append(board.device)
        if len(self.accepted) == 1 and outcome == "accepted":
            self.journal.emit("exchange", round=number, exchange=exchange, phase="collect")
        size = int(1.1 * MIB)
        self._bytes[0] += size
        self.journal.emit(
            "reply", round=number, exchange=exchange, device=board.device, outcome=outcome,
            reason=why if refused else "after the deadline" if late else "",
            samples=sum(board.labels), loss=round(2.3 / (1 + number / 5), 3), question="fit",
            shared=None, bytes=size, seconds=round(seconds, 3), accepted=len(self.accepted),
        )  # fmt: skip
        if len(self.accepted) == QUORUM and outcome == "accepted":
            self._wait(exchange)
        state: DeviceState = "late" if late else "rejected" if refused else "done"
        self._progress(board, state, 1.0, "", why if refused else "")

    def _wait(self, exchange: str) -> None:
        """Tell whom the exchange waits for once its quorum is there."""
        answered = {*self.accepted, *self.refused}
        waiting = [each.device for each in self.asked if each.device not in answered]
        lost = [each for each in waiting if each in self.registry.lost()]
        online = [each for each in waiting if each not in lost]
        if waiting:
            until = timestamp(self.clock.now() + timedelta(seconds=20))
            told = {"lost": lost, "online": online[:8], "more": len(online[8:]), "until": until}
            self.journal.emit("exchange", exchange=exchange, waiting=told)

    def _evaluate(self, number: int, there: Sequence[Board]) -> None:
        """Merge, test on the coordinator and on the devices, and end the round."""
        fit, exchange = f"{RUN}-{2 * number - 1}", f"{RUN}-{2 * number}"
        self.journal.emit("exchange", phase="merge")
        judged = Judged(fit, tuple(self.accepted), dict(self.refused))
        self.trust.judge(judged, ChecksSection(), timestamp(self.clock.now()))
        for change in self.trust.changes():
            self.journal.emit("device", **change)
        self.method.merged(self.journal, RUN, number)
        tested = [each for each in there if each.device not in self.registry.lost()]
        accuracies = [self._accuracy(board, number) for board in tested]
        self._exchange(number, exchange, "evaluate", "broadcast", tested)
        for place, (board, accuracy) in enumerate(zip(tested, accuracies, strict=True), 1):
            self.journal.emit(
                "reply", round=number, exchange=exchange, device=board.device, outcome="accepted",
                reason="", samples=100, loss=None, question="evaluate", shared=None, bytes=900,
                seconds=round(self.rng.uniform(0.5, 2.5), 3), accepted=place, accuracy=accuracy,
            )  # fmt: skip
        self._score(number, tested, accuracies)

    def _accuracy(self, board: Board, number: int) -> float:
        own = -0.34 if board.device == "rpi5-07" else self.rng.uniform(-0.08, 0.08)
        return round(min(0.99, 0.82 - 0.6 * 0.75**number + own), 4) if number else 0.1

    def _score(self, number: int, tested: Sequence[Board], accuracies: Sequence[float]) -> None:
        for place, samples, silent in (("coordinator", 2000, 0), ("devices", 3600, 2)):
            confusion = self._confusion(number, samples)
            self.journal.emit(
                "confusion", run=RUN, place=place, round=number, counts=confusion.rows(),
                devices=len(tested) - silent if silent else 0, tested=len(tested) if silent else 0,
            )  # fmt: skip
            if place == "coordinator":
                accuracy = float(confusion.hits.sum() / samples)
        self.journal.emit(
            "scored", run=RUN, round=number, accuracy=accuracy, loss=2.3 * 0.86**number,
            train_loss=2.2 * 0.84**number, replies=len(self.accepted),
            late=COHORT - len(self.accepted), seconds=52.0 + number % 5,
            sent=COHORT * MIB, received=self._bytes[0],
            device_accuracy_worst=min(accuracies),
        )  # fmt: skip
        self._bytes[0] = 0

    def _confusion(self, number: int, samples: int) -> Confusion:
        """Return counts in which one class is never right: most of its samples are the next one."""
        numbers, classes = np.random.default_rng([number, samples]), len(self.class_names)
        labels = numbers.integers(0, classes, samples)
        predicted = labels.copy()
        wrong = numbers.random(samples) < 0.18 + 0.6 * 0.75**number
        predicted[wrong] = numbers.integers(0, classes, int(wrong.sum()))
        never = 3
        cats = np.flatnonzero(labels == never)
        predicted[cats] = np.where(numbers.random(len(cats)) < 0.7, 5, (cats % 2) * 2 + 4)
        predicted[(predicted == never) & (labels != never)] = 5
        return Confusion.of(labels, predicted, classes)


def record(path: Path, name: str = "fedprox") -> Path:
    """Write the recording of a method into a file and return its path."""
    path.write_bytes(_recording(name))
    return path


@cache
def _recording(name: str) -> bytes:
    classes = LETTERS if name == "fedma" else CLASS_NAMES
    with TemporaryDirectory() as folder:
        path = Path(folder) / "events.jsonl"
        Recorder(path, method_of(name), classes).record()
        assert list(Path(folder).iterdir()) == [path]
        return path.read_bytes()


@cache
def recorded(name: str) -> FeedUpdate:
    """Return what a feed tells at the end of a method's recording, which is read from its file."""
    with TemporaryDirectory() as folder:
        return last_of_events(record(Path(folder) / "events.jsonl", name), "plant-a")
