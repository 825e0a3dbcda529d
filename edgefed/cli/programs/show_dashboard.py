"""Show the dashboard of a live fleet, or of a recording."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Sequence
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
from edgefed.tui.state.closing import ENDS_DEMO, ENDS_REPLAY, WATCHES, Closing


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
    start: StartOptions | None = None,
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
        start: options of runs that are started from the screen; None to start none.
    """
    feed = MqttFeed(address, fleet, clock)
    control = None if read_only else feed
    launcher = None
    if start is not None and not read_only:
        launcher = RunLauncher(feed.coordinator, start.around, start.words)
    letters = only_ascii(os.environ) if ascii is None else ascii
    gc.freeze()  # what is loaded stays, so that searching it for garbage would be in vain
    Dashboard(
        feed,
        control,
        clock,
        letters,
        preferences=state / FILE,
        closing=closing,
        bell=bell,
        keys=keys,
        launcher=launcher,
        processor=time.thread_time,
        runs=feed,
    ).run()


def show_recording(
    recording: Recording,
    fleet: str,
    clock: Clock,
    *,
    speed: float,
    ascii: bool | None = None,  # noqa: A002
    state: Path,
    keys: Keymap = OWN_KEYS,
) -> None:
    """Show the dashboard on a recording until it is closed.

    Args:
        recording: to replay.
        fleet: the fleet's name; empty if unknown.
        clock: source of the time.
        speed: recorded seconds that pass in one; infinite for no waiting.
        ascii: letters in place of symbols; None follows the locale.
        state: folder with the user's choices, and with the runs to compare.
        keys: the keys that the user chose.
    """
    feed = ReplayFeed(recording, clock, fleet, speed=speed)
    Dashboard(
        feed,
        None,
        clock,
        only_ascii(os.environ) if ascii is None else ascii,
        preferences=state / FILE,
        closing=ENDS_REPLAY,
        starting="The recording has not come to a run yet.",
        runs=StateFolderRuns(state),
        replay=feed,
        keys=keys,
    ).run()


def show_until_ended(
    address: Address, fleet: str, run: str, clock: Clock, state: Path, keys: Keymap = OWN_KEYS
) -> bool:
    """Show the dashboard of a run that was just started until the user closes it.

    Returns:
        Whether the run had ended by then.
    """
    ended = threading.Event()

    def look(update: FeedUpdate) -> None:
        shown = update.snapshot.run if update.snapshot else None
        if shown is None or shown.run != run or shown.status not in ENDED or ended.is_set():
            return
        ended.set()
        dashboard.call_later(dashboard.run_ended)

    feed = MqttFeed(address, fleet, clock, look)
    dashboard = Dashboard(
        feed,
        feed,
        clock,
        only_ascii(os.environ),
        preferences=state / FILE,
        closing=ENDS_DEMO,
        starting=f"Starting {run}: the devices connect.",
        runs=feed,
        keys=keys,
    )
    dashboard.run()
    return ended.is_set()
