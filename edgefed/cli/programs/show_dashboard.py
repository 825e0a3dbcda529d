"""Show the dashboard of a live fleet, or of a recording."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from edgefed.cli.programs.follow_run import ENDED
from edgefed.cli.programs.mqtt_feed import MqttFeed
from edgefed.cli.programs.run_launcher import RunLauncher, StartOptions
from edgefed.config.values.address import Address
from edgefed.events.history.known_runs import RunDetails, RunRow
from edgefed.events.history.recording import Recording
from edgefed.events.state.feed_update import FeedUpdate
from edgefed.process.clock import Clock
from edgefed.tui.app import Dashboard
from edgefed.tui.feeds.replay_feed import ReplayFeed
from edgefed.tui.keys.keymap import OWN_KEYS, Keymap
from edgefed.tui.look.terminal_locale import only_ascii
from edgefed.tui.preferences import FILE
from edgefed.tui.screens.registry import ScreenName
from edgefed.tui.state.closing import ENDS_DEMO, ENDS_REPLAY, WATCHES, Closing
from edgefed.tui.state.run_commands import RunCommands


class StateFolderRuns:
    """Reads the runs again at each call.

    Args:
        state: the folder.
    """

    def __init__(self, state: Path) -> None:
        self._state = state

    def list_runs(self) -> Sequence[RunRow]:
        """Return every run, the newest first.

        Raises:
            StorageError: a database of runs cannot be read.
        """
        from edgefed.cli.common.local_runs import local_runs

        return [RunRow.model_validate(row) for row in local_runs(self._state)]

    def run_details(self, run: str) -> RunDetails:
        """Return a run with its settings and its rounds.

        Raises:
            UnknownNameError: no run, or several, have this name.
            StorageError: its database cannot be read.
        """
        from edgefed.cli.common.local_runs import local_run

        return RunDetails.model_validate(local_run(self._state, run))


def show(
    address: Address,
    fleet: str,
    clock: Clock,
    *,
    read_only: bool,
    ascii: bool | None = None,  # noqa: A002
    state: Path,
    closing: Closing = WATCHES,
    bell: bool = True,
    keys: Keymap = OWN_KEYS,
    start: StartOptions,
) -> None:
    """Show the dashboard until it is closed.

    Args:
        address: the broker's.
        fleet: the fleet's name.
        clock: source of the time.
        read_only: watch without giving orders.
        ascii: letters in place of symbols; None follows the locale.
        state: folder that keeps the user's choices.
        closing: describes the processes that end with the dashboard.
        bell: ring the terminal's bell for an alert.
        keys: the keys that the user chose.
        start: options of runs that are started from the screen, and of command lines.
    """
    letters = only_ascii(os.environ) if ascii is None else ascii

    def make(screen: ScreenName) -> Dashboard:
        feed = MqttFeed(address, fleet, clock)
        return Dashboard(
            feed,
            None if read_only else feed,
            clock,
            letters,
            screen=screen,
            preferences=state / FILE,
            closing=closing,
            bell=bell,
            keys=keys,
            launcher=(
                None
                if read_only
                else RunLauncher(feed.coordinator, start.around, start.words, state)
            ),
            processor=time.thread_time,
            runs=feed,
            events=feed,
            commands=RunCommands(start.program),
        )

    gc.freeze()  # what is loaded stays, so that searching it for garbage would be in vain
    _show_with_replays(make, clock, letters, state, keys)


def _show_with_replays(
    make: Callable[[ScreenName], Dashboard],
    clock: Clock,
    letters: bool,
    state: Path,
    keys: Keymap,
) -> None:
    """Show a dashboard until it is closed, and the replays that are chosen from its list of runs.

    After a replay, the dashboard is opened again on the list.
    """
    dashboard = make("overview")
    dashboard.run()
    while dashboard.chosen_replay is not None:
        recording = dashboard.chosen_replay
        show_recording(recording, clock, speed=1.0, ascii=letters, state=state, keys=keys)
        dashboard = make("runs")
        dashboard.run()


def show_recording(
    recording: Recording,
    clock: Clock,
    *,
    speed: float,
    first: int = 0,
    ascii: bool | None = None,  # noqa: A002
    state: Path,
    keys: Keymap = OWN_KEYS,
) -> None:
    """Show the dashboard on a recording until it is closed.

    Args:
        recording: to replay.
        clock: source of the time.
        speed: recorded seconds that pass in one; infinite for no waiting.
        first: number of events before the place where it begins.
        ascii: letters in place of symbols; None follows the locale.
        state: folder with the user's choices, and with the runs to compare.
        keys: the keys that the user chose.
    """
    letters = only_ascii(os.environ) if ascii is None else ascii

    def make(screen: ScreenName) -> Dashboard:
        feed = ReplayFeed(recording, clock, _fleet(recording.path), speed=speed, first=first)
        return Dashboard(
            feed,
            None,
            clock,
            letters,
            screen=screen,
            preferences=state / FILE,
            closing=ENDS_REPLAY,
            starting="The recording has not come to a run yet.",
            runs=StateFolderRuns(state),
            replay=feed,
            events=feed,
            keys=keys,
        )

    _show_with_replays(make, clock, letters, state, keys)


def _fleet(path: Path) -> str:
    """Return the fleet of a run's event file, from its place in the state folder."""
    runs = path.absolute().parent.parent
    return runs.parent.name if runs.name == "runs" else ""


def show_until_ended(
    address: Address,
    fleet: str,
    run: str,
    clock: Clock,
    state: Path,
    commands: RunCommands,
    keys: Keymap = OWN_KEYS,
) -> bool:
    """Show the dashboard of a run that was just started until the user closes it.

    Returns:
        Whether the run had ended by then.
    """
    ended = threading.Event()
    letters = only_ascii(os.environ)

    def make(screen: ScreenName) -> Dashboard:
        def look(update: FeedUpdate) -> None:
            shown = update.snapshot.run if update.snapshot else None
            if shown is None or shown.run != run:
                return
            if shown.status not in ENDED:  # also after it was resumed
                ended.clear()
            elif not ended.is_set():
                ended.set()
                dashboard.call_later(dashboard.run_ended)

        feed = MqttFeed(address, fleet, clock, look)
        dashboard = Dashboard(
            feed,
            feed,
            clock,
            letters,
            screen=screen,
            preferences=state / FILE,
            closing=ENDS_DEMO,
            starting=f"Starting {run}: the devices connect.",
            runs=feed,
            events=feed,
            keys=keys,
            commands=commands,
        )
        return dashboard

    _show_with_replays(make, clock, letters, state, keys)
    return ended.is_set()
