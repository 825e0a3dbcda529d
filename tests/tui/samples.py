"""A fleet in the middle of a run, and a clock and a control that tests own."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone

from edgefed.errors import EdgeFedError
from edgefed.events.base.method_tables import (
    MethodTable,
    MethodTables,
    TableChange,
    table_events,
    within_limits,
)
from edgefed.events.base.snapshot import (
    DeviceSnapshot,
    LineView,
    RoundView,
    RunView,
    Snapshot,
)
from edgefed.events.methods import expert_tables
from edgefed.events.state.feed_update import FeedUpdate
from edgefed.process.clock import timestamp
from edgefed.tui.app import Dashboard
from edgefed.tui.feeds.recorded_feed import PERIOD, RecordedFeed
from edgefed.tui.screens.registry import ScreenName
from edgefed.tui.state.device_key_orders import DeviceAction
from edgefed.tui.state.interfaces import Control, Runs
from edgefed.tui.state.run_commands import OWN_COMMANDS, RunCommands
from edgefed.wire.messages import DeviceState

NOW = datetime(2026, 3, 4, 14, 2, 31, tzinfo=timezone.utc)
MIB = 1024 * 1024
STATES: tuple[DeviceState, ...] = (
    "done", "train", "upload", "train", "done", "idle", "train", "done", "idle", "rejected",
    "train", "paused", "idle", "done", "train", "idle", "lost", "done", "idle", "late",
)  # fmt: skip


class FakeClock:
    """A clock that moves only when told."""

    def __init__(self, now: datetime = NOW) -> None:
        self._start = now
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self.seconds)


class RecordingControl:
    """Takes every order and writes it down, or refuses it with ``error``."""

    def __init__(self, error: Exception | None = None) -> None:
        self.orders: list[tuple[str, str]] = []
        self.device_orders: list[tuple[str, str, str]] = []
        self.logs: dict[str, tuple[str, ...]] = {}
        self.threads: list[int] = []
        self._error = error

    def order(self, action: str, run: str) -> None:
        self.threads.append(threading.get_ident())
        if self._error is not None:
            raise self._error
        self.orders.append((action, run))

    def device_order(self, action: DeviceAction, device: str, reason: str = "") -> None:
        if self._error is not None:
            raise self._error
        self.device_orders.append((action, device, reason))

    def ping(self, device: str) -> float:
        if self._error is not None:
            raise self._error
        return len(device) / 1000

    def log(self, device: str) -> tuple[str, ...]:
        if self._error is not None:
            raise self._error
        return self.logs.get(device, ())


REFUSAL = EdgeFedError("The run has just ended.", code="run.ended", hint="edgefed run list")


def ago(seconds: float) -> str:
    """The stamp of a moment before ``NOW``."""
    return timestamp(NOW - timedelta(seconds=seconds))


def run_view(**changes: object) -> RunView:
    """Round 12 of 50, collecting answers."""
    values: dict[str, object] = {
        "run": "r-0142", "name": "nightly", "algorithm": "fedprox", "model": "cifar10",
        "status": "running", "round": 12, "rounds": 50, "exchange": "e-12", "question": "fit",
        "phase": "collect", "asked": 10, "wanted": 10, "quorum": 8, "accepted": 7,
        "deadline": 90.0, "opened_at": ago(52), "started_at": ago(1500),
    }  # fmt: skip
    return RunView.model_validate({**values, **changes})


def round_views(count: int = 11) -> tuple[RoundView, ...]:
    """Rounds whose accuracy rises and whose loss falls."""
    return tuple(
        RoundView(
            round=number,
            accuracy=0.75 - 0.6 * math.exp(-number / 4),
            loss=0.5 + 1.8 * math.exp(-number / 4),
            replies=9,
            late=number % 3,
            seconds=62.0 + number % 4,
            sent=(30 + number % 5 * 2) * MIB,
            received=(28 + number % 3 * 3) * MIB,
        )
        for number in range(1, count + 1)
    )


def device_view(index: int, **changes: object) -> DeviceSnapshot:
    """One device; its numbers follow from its index."""
    state = STATES[(index - 1) % len(STATES)]
    done = state in ("upload", "done", "late", "rejected")
    values: dict[str, object] = {
        "device": f"jetson-{index:02d}",
        "state": state,
        "fraction": 1.0 if done else (index * 31 % 100) / 100 if state == "train" else 0.0,
        "seen_at": ago(48 if state == "lost" else index % 9),
        "samples": 512 + index,
        "labels": tuple((index * 7 + label * label * 5) % 60 for label in range(10)),
        "sent": (index * 37 % 30) * MIB,
        "received": (index * 53 % 29) * MIB,
        "temperature": None if state == "lost" else 43.0 + index * 17 % 42,
        "power": None if state == "lost" else 3.0 + index * 1.7 % 12,
        "gpu": None if state == "lost" else float(index * 29 % 100),
        "rejected": int(state == "rejected"),
        "late": int(state == "late"),
    }
    return DeviceSnapshot.model_validate({**values, **changes})


def lines() -> tuple[LineView, ...]:
    """The newest events."""
    return (
        LineView(time=ago(2), mark="✓", text="jetson-08  r12  1.2 MiB  n=512  loss 0.810  in 41 s"),
        LineView(time=ago(9), mark="■", text="jetson-10  rejected: norm 19.4 exceeds 10.0"),
        LineView(
            time=ago(15), mark="✓", text="jetson-05  r12  1.2 MiB  n=498  loss 0.880  in 35 s"
        ),
        LineView(time=ago(33), mark="✗", text="jetson-17  lost: no heartbeat for 30 s"),
        LineView(time=ago(50), mark="·", text="r-0142 running"),
        LineView(time=ago(51), mark="✓", text="round 11 done in 63 s: accuracy 0.712, 9 replies"),
        LineView(time=ago(60), mark="!", text="the broker is slow: 2.1 s for one message"),
    )


def snapshot(devices: int = 20, run: RunView | None = None, **changes: object) -> Snapshot:
    """A fleet of ``devices`` in the middle of a run."""
    values: dict[str, object] = {
        "fleet": "plant-a", "time": ago(0), "run": run or run_view(), "rounds": round_views(),
        "devices": tuple(device_view(index) for index in range(1, devices + 1)),
        "lines": lines(), "sent": 412 * MIB, "received": 388 * MIB,
    }  # fmt: skip
    return Snapshot(**{**values, **changes})


SHARES: dict[str, object] = {
    "shared_entries": 4,
    "shared_group": 128,
    "shared_bytes": 3 * 1024 + 200,
}
"""What a device shares of averaged data."""


def sharing(devices: int = 20) -> Snapshot:
    """A fleet in which every third device shares averaged data."""
    views = [
        device_view(index, **(SHARES if index % 3 == 0 else {})) for index in range(1, devices + 1)
    ]
    told = "jetson-09  shared 4 entries of 128 samples or more, 3.2 KiB"
    line = LineView(time=ago(1), mark="✓", text=told)
    whole = snapshot(run=run_view(algorithm="fedmix"), lines=(line, *lines()))
    return whole.model_copy(update={"devices": tuple(views)})


SUPPLEMENTED = {"open_bounties": 2, "received_mixes": 1120, "noise_samples": 480}
"""What a device has of supplements for labels that it lacks."""


def supplementing(devices: int = 20) -> Snapshot:
    """A fleet in which every fourth device has supplements."""
    views = [
        device_view(index, **(SUPPLEMENTED if index % 4 == 0 else {}))
        for index in range(1, devices + 1)
    ]
    line = LineView(time=ago(1), mark="·", text="label bounties: 10 open, 15 closed")
    whole = snapshot(lines=(line, *lines()))
    return whole.model_copy(update={"devices": tuple(views)})


CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship",
               "truck")  # fmt: skip


def shares(number: int, experts: int, sharpness: float = 2.0) -> tuple[float, ...]:
    """Shares of the experts that follow from a number."""
    weights = [math.exp(sharpness * math.sin(number * 1.7 + 2.3 * k)) for k in range(experts)]
    return tuple(round(weight / sum(weights), 4) for weight in weights)


def mixing(
    devices: int = 20, experts: int = 4, states: Mapping[int, str] | None = None
) -> Snapshot:
    """A fleet whose devices use experts, but for every fifth, which has not answered."""
    told = [index for index in range(1, devices + 1) if index % 5]
    mixtures = [
        expert_tables.mixture_row(
            f"jetson-{index:02d}", 512 + index, 11, shares(index, experts), (0, 2)
        )
        for index in told
    ]
    rows = [(str(label), shares(label, experts, 3.0)) for label in range(10)]
    views = [
        device_view(index, **({"mixture": shares(index, experts)} if index in told else {}))
        for index in range(1, devices + 1)
    ]
    tables = MethodTables()
    cells = [row for _, row in mixtures]
    for number in range(1, 12):
        load = shares(5, experts, number / 6)
        entropy = max(0.0, math.log(experts) - number / 20)
        for table in (
            expert_tables.load_table(experts, number, load, entropy, states or {}, (), cells),
            expert_tables.share_table("label", experts, rows),
            expert_tables.mixture_table(experts, mixtures),
        ):
            apply(tables, table, number)
    whole = snapshot(run=run_view(algorithm="fedmoe", class_names=CLASS_NAMES))
    return whole.model_copy(update={"devices": tuple(views), "tables": tables.views()})


def apply(tables: MethodTables, table: MethodTable, number: int) -> None:
    """Apply what a table of a round has, as its events do."""
    (view,) = within_limits([table])
    for fields in table_events("r", number, tables.view(table.name), view):
        tables.apply(TableChange.of(fields))


def fine(view: Snapshot | None) -> FeedUpdate:
    """An update without a problem."""
    return FeedUpdate(snapshot=view, broker=True, coordinator=True)


def feed(clock: FakeClock, *updates: FeedUpdate) -> RecordedFeed:
    """A feed that gives one update a period, when a test says ``deliver``."""
    timed = [(index * PERIOD, update) for index, update in enumerate(updates)]
    return RecordedFeed(timed, clock, play=False)


def dashboard(
    *updates: FeedUpdate,
    control: Control | None = None,
    screen: ScreenName = "overview",
    letters: bool = False,
    runs: Runs | None = None,
    commands: RunCommands = OWN_COMMANDS,
    clock: FakeClock | None = None,
) -> Dashboard:
    """The app at ``NOW`` in UTC, after the first of ``updates``."""
    clock = clock or FakeClock()
    source = feed(clock, *(updates or (fine(snapshot()),)))
    return Dashboard(
        source,
        control,
        clock,
        letters,
        zone=timezone.utc,
        screen=screen,
        runs=runs,
        commands=commands,
    )
