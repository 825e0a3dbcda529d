"""Every screen while it is empty, loads, shows old numbers, or cannot show any."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from textual.pilot import Pilot

from edgefed.errors import NotAllowedError, TimeLimitError
from edgefed.events.base.model import Event
from edgefed.events.base.snapshot import DeviceSnapshot, Snapshot
from edgefed.events.history.known_runs import RunDetails
from edgefed.events.state.feed_update import FeedUpdate
from edgefed.tui.app import Dashboard
from edgefed.tui.screens.registry import ScreenName
from tests.cli.programs.test_run_launcher import Coordinator
from tests.tui.driving import press, screen_text, until
from tests.tui.recorded_fleet import recorded
from tests.tui.sample_runs import GONE, KnownRuns, past_run
from tests.tui.samples import ago, fine
from tests.tui.screenshot_apps import (
    LoggingControl,
    Replayed,
    Screenshot,
    Silence,
    follow,
    pass_time,
    recipes,
    showing,
)
from tests.tui.screenshots import A_FORM, A_LATE_DEVICE, TWO_RUNS

State = Literal["empty", "loading", "stale", "error"]
StateId = tuple[State, str]

METHODS: tuple[ScreenName, ...] = ("classes", "labels", "experts", "matching")
"""Each is empty in its own way; all panes load, are old and fail alike."""

SILENT = FeedUpdate(snapshot=None, broker=True, coordinator=False)
BROKER_LOST = "Broker unreachable: connection refused; next try in 4 s."
BUSY = NotAllowedError("Run r-0142 is at work.", code="run.busy", hint="edgefed run finish r-0142")
NO_LOG = TimeLimitError("xavier-07 did not answer within 10 s.", hint="edgefed doctor")


class Refusing(Coordinator):
    """Starts nothing, and knows runs unless it does not answer."""

    def __init__(self, *, silent: bool = False) -> None:
        super().__init__()
        self._silent = silent

    def ask(self, action: str, /, **arguments: Any) -> Any:
        if self._silent:
            raise GONE
        return super().ask(action, **arguments)

    def order(self, action: str, /, **arguments: Any) -> Any:
        raise BUSY


class Unread(KnownRuns):
    """Lists runs that cannot be read."""

    def run_details(self, run: str) -> RunDetails:
        raise GONE


class NoRuns(Coordinator):
    """Knows no run."""

    def ask(self, action: str, /, **arguments: Any) -> Any:
        return []


def table(state: State, shots: dict[str, Screenshot]) -> dict[StateId, Screenshot]:
    """Return the screens of a state."""
    return {(state, name): shot for name, shot in shots.items()}


# -- empty ----------------------------------------------------------------------------------------


def bare() -> FeedUpdate:
    """A run that has just begun, and no device."""
    run = recorded("fedprox").snapshot
    assert run is not None
    return fine(Snapshot(fleet="plant-a", time=run.time, run=run.run))


def showing_bare(screen: ScreenName) -> Dashboard:
    """Return a dashboard over a run that has just begun."""
    return showing(bare(), screen)


def joined() -> FeedUpdate:
    """A device that has just joined a fleet without a run."""
    device = DeviceSnapshot(device="rpi5-17", seen_at=ago(1))
    return fine(Snapshot(fleet="plant-a", time=ago(0), devices=(device,)))


def unrecorded() -> Dashboard:
    """A replay that begins before the first run."""
    events = [Event(time=ago(9 - n), kind="note", fields={"text": "waiting"}) for n in range(3)]
    path = Path("events.jsonl")
    path.write_text("".join(f"{event.line()}\n" for event in events))
    return Replayed(path).app


def without_run(screen: ScreenName, **settings: Any) -> Callable[[], Dashboard]:
    """Return what makes a dashboard over a fleet without devices and runs."""
    return lambda: showing(fine(Snapshot(fleet="plant-a")), screen, **settings)


NONE_PAST = KnownRuns(past_run(7, history=[], accuracy=None, loss=None, round=0, status="running"))

EMPTY: dict[str, Screenshot] = {
    "overview": Screenshot(without_run("overview")),
    "devices": Screenshot(without_run("devices")),
    "no-match": Screenshot(
        lambda: showing(recorded("fedprox"), "devices"), ("slash", *"jetson", "enter")
    ),
    "device": Screenshot(lambda: showing(joined(), "devices"), ("enter",)),
    "device-log": Screenshot(
        lambda: showing(recorded("fedprox"), "devices", control=LoggingControl(())),
        (*A_LATE_DEVICE, "l"),
    ),
    "rounds-map": Screenshot(lambda: showing(bare(), "devices"), ("m",)),
    **{str(name): Screenshot(partial(showing_bare, name)) for name in METHODS},
    "runs": Screenshot(without_run("runs", runs=KnownRuns())),
    "comparison": Screenshot(without_run("runs", runs=NONE_PAST), ("enter",)),
    "new-run": Screenshot(
        lambda: showing(joined(), launcher=recipes(NoRuns(), written=False)), ("n",)
    ),
    "form": Screenshot(lambda: showing(joined()), (*A_FORM, "slash", "z", "z")),
    "replay": Screenshot(unrecorded),
}


# -- loading --------------------------------------------------------------------------------------


def first_second(screen: ScreenName, *keys: str) -> Screenshot:
    """Return a screen a second after the dashboard was opened, before anything was told."""
    return Screenshot(lambda: showing(fine(None), screen), keys, pass_time)


def unanswered(screen: ScreenName, silent: str, *keys: str) -> Screenshot:
    """Return a screen that waits for an answer."""

    def make() -> Dashboard:
        silence = Silence(silent)
        return showing(
            recorded("fedprox"), screen, runs=silence, launcher=recipes(silence),
            closed=silence.closed, control=SilentControl(silence),
        )  # fmt: skip

    async def settled(pilot: Pilot[None]) -> None:
        await pilot.pause(0.2)  # what is answered is drawn by then

    return Screenshot(make, keys, settled, waits=True)


class SilentControl(LoggingControl):
    """Asks a silent device."""

    def __init__(self, silence: Silence) -> None:
        super().__init__()
        self._silence = silence

    def log(self, device: str) -> tuple[str, ...]:
        return self._silence.log(device)


LOADING: dict[str, Screenshot] = {
    "overview": first_second("overview"),
    "devices": first_second("devices"),
    "device-log": unanswered("devices", "log", *A_LATE_DEVICE, "l"),
    "rounds-map": first_second("devices", "m"),
    "classes": first_second("classes"),
    "runs": unanswered("runs", "list_runs"),
    "comparison": unanswered("runs", "run_details", *TWO_RUNS),
    "new-run": unanswered("overview", "run.list", "n"),
    "form": unanswered("overview", "run.show", "n", "end", "enter"),
}


# -- stale ----------------------------------------------------------------------------------------


def cut_off() -> FeedUpdate:
    """The end of a recording, at which the broker is lost."""
    return replace(recorded("fedprox"), broker=False, problem=BROKER_LOST, since=ago(0))


def old(screen: ScreenName, *keys: str) -> Screenshot:
    """Return a screen 12 seconds after the broker was lost."""
    return Screenshot(lambda: showing(cut_off(), screen), keys, partial(pass_time, seconds=12))


async def pass_time_below(pilot: Pilot[None]) -> None:
    """Let time pass until the screen below a dialog, which the next tick draws, says so."""
    await pass_time(pilot, 12)
    await until(pilot, lambda: "For 12 s" in screen_text(pilot))


def old_runs(*keys: str) -> Screenshot:
    """Return a screen of runs that were read before the coordinator was lost."""

    async def lose(pilot: Pilot[None]) -> None:
        assert isinstance(pilot.app, Dashboard)
        runs = pilot.app._board.runs
        assert isinstance(runs, KnownRuns)
        runs.error = GONE
        await pass_time(pilot, 12)
        await press(pilot, "question_mark", "escape")  # it is read again when it is seen again

    return Screenshot(lambda: showing(cut_off(), "runs", runs=KnownRuns(*SOME)), keys, lose)


SOME = tuple(past_run(number) for number in range(142, 136, -1))

STALE: dict[str, Screenshot] = {
    "overview": old("overview"),
    "devices": old("devices"),
    "device": old("devices", *A_LATE_DEVICE),
    "rounds-map": old("devices", "m"),
    "classes": old("classes"),
    "runs": old_runs(),
    "comparison": old_runs("m", "down", "enter"),
    "form": old("overview", *A_FORM),
    "abort": Screenshot(lambda: showing(cut_off(), "overview"), ("A",), pass_time_below),
}


# -- error ----------------------------------------------------------------------------------------


def unknown(screen: ScreenName, *keys: str) -> Screenshot:
    """Return a screen whose coordinator never answered."""
    return Screenshot(lambda: showing(SILENT, screen), keys)


def forgotten() -> Screenshot:
    """Return the screen of a device that leaves the fleet."""

    async def forget(pilot: Pilot[None]) -> None:
        whole = recorded("fedprox")
        assert whole.snapshot is not None
        assert isinstance(pilot.app, Dashboard)
        none = whole.snapshot.model_copy(update={"devices": ()})
        pilot.app._listen(replace(whole, snapshot=none))
        await pilot.pause()
        await pass_time(pilot, 0)

    return Screenshot(lambda: showing(recorded("fedprox"), "devices"), A_LATE_DEVICE, forget)


def vanished() -> Screenshot:
    """Return a replay whose file is deleted."""

    async def delete(pilot: Pilot[None]) -> None:
        Path("events.jsonl").unlink()
        await press(pilot, "full_stop")
        await follow(pilot)

    return Screenshot(lambda: Replayed().app, (), delete)


ERROR: dict[str, Screenshot] = {
    "overview": unknown("overview"),
    "devices": unknown("devices"),
    "device": forgotten(),
    "device-log": Screenshot(
        lambda: showing(recorded("fedprox"), "devices", control=LoggingControl(error=NO_LOG)),
        (*A_LATE_DEVICE, "l"),
    ),
    "rounds-map": unknown("devices", "m"),
    "classes": unknown("classes"),
    "runs": Screenshot(lambda: showing(SILENT, "runs", runs=KnownRuns(error=GONE))),
    "comparison": Screenshot(
        lambda: showing(recorded("fedprox"), "runs", runs=Unread(*SOME)), ("m", "down", "enter")
    ),
    "new-run": Screenshot(lambda: showing(SILENT, launcher=recipes(Refusing(silent=True))), ("n",)),
    "form": Screenshot(
        lambda: showing(joined(), launcher=recipes(Refusing())), (*A_FORM, "ctrl+j")
    ),
    "replay": vanished(),
}

STATES: dict[StateId, Screenshot] = {
    **table("empty", EMPTY),
    **table("loading", LOADING),
    **table("stale", STALE),
    **table("error", ERROR),
}
