"""Follow a run to its end with a progress line, for ``run watch`` and a demo without a screen."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import typer

from edgefed.config.values.address import Address
from edgefed.control.snapshot_watcher import SnapshotWatcher
from edgefed.events.base.device_rounds import waiting_until
from edgefed.events.base.snapshot import RunView, Snapshot, WaitingView
from edgefed.events.state.feed_update import FeedUpdate
from edgefed.process.clock import Clock
from edgefed.terminal.console import data, hide_progress, show_progress, talk
from edgefed.terminal.units import counted, score_of

_WARNINGS = ("!", "■", "✗")
"""Marks of warnings, and of answers that were refused, rejected or failed."""

ENDED = ("finished", "aborted", "failed")


def follow(
    address: Address,
    fleet: str,
    run: str,
    clock: Clock,
    *,
    quiet: bool = False,
    as_json: bool = False,
    alive: Callable[[], None] = lambda: None,
) -> RunView:
    """Return the run once it has ended.

    Args:
        address: the broker.
        fleet: whose run it is.
        run: its id.
        clock: for the watcher.
        quiet: print nothing.
        as_json: print one JSON object a round on stdout.
        alive: called now and then; raises when there is nothing to wait for any more.
    """
    ended = threading.Event()
    printer = _Printer(run, quiet, as_json, ended)
    watcher = SnapshotWatcher(address, fleet, clock, printer.take)
    watcher.start()
    try:
        while not ended.wait(0.5):
            alive()
    finally:
        watcher.stop()
        hide_progress()
    if printer.left is not None:
        raise printer.left
    assert printer.last is not None
    return printer.last


class _Printer:
    """Prints on the watcher's thread.

    Attributes:
        last: the last known state of the run.
        left: the exception that ends the command once its output is not read any more.
    """

    def __init__(self, run: str, quiet: bool, as_json: bool, ended: threading.Event) -> None:
        self.last: RunView | None = None
        self.left: typer.Exit | None = None
        self._run = run
        self._quiet = quiet
        self._json = as_json
        self._ended = ended
        self._round = 0
        self._problem = ""
        self._waiting = ""
        self._warned: set[tuple[str, str]] = set()

    def take(self, update: FeedUpdate) -> None:
        if update.problem != self._problem and not self._quiet:
            self._problem = update.problem
            if update.problem:
                talk(f"! {update.problem}")
        snapshot = update.snapshot
        if snapshot is None or snapshot.run is None or snapshot.run.run != self._run:
            return
        self.last = snapshot.run
        try:
            self._print(snapshot, snapshot.run)
        except typer.Exit as left:
            self.left = left
            self._ended.set()
        if snapshot.run.status in ENDED:
            self._ended.set()

    def _print(self, snapshot: Snapshot, run: RunView) -> None:
        live = False
        if not self._json and not self._quiet:
            self._print_warnings(snapshot)
            live = show_progress(
                f"{run.run}  {run.status}",
                snapshot.finished_rounds,
                run.rounds,
                _note(snapshot, run),
            )
            if not live:
                self._print_lost(run.waiting)
        for point in snapshot.rounds:
            if point.round <= self._round:
                continue
            self._round = point.round
            if self._json:
                data(json.dumps(point.model_dump(mode="json")))
            elif not live and not self._quiet:
                scores = score_of(point.model_dump())
                tested = f"  {scores}" if scores else ""
                replies = counted(point.replies, "reply", "replies")
                talk(f"round {point.round}/{run.rounds}{tested}  {replies}")

    def _print_warnings(self, snapshot: Snapshot) -> None:
        """Print each warning, and each failure of a device, once."""
        failed = f"alert: {snapshot.run.run} failed" if snapshot.run else ""
        for line in reversed(snapshot.lines):
            if failed and line.text.startswith(failed):
                continue  # the error that ends the command says so
            if line.mark in _WARNINGS and (line.time, line.text) not in self._warned:
                self._warned.add((line.time, line.text))
                talk(f"{line.mark} {line.text}")

    def _print_lost(self, waiting: WaitingView | None) -> None:
        """Say once whom the round waits for although it is lost."""
        awaited = waiting_until(waiting) if waiting is not None and waiting.lost else ""
        if awaited and awaited != self._waiting:
            talk(f"waiting for {awaited}")
        self._waiting = awaited


def _note(snapshot: Snapshot, run: RunView) -> str:
    """Return the text beside a bar of rounds: the current round, its replies, the last scores."""
    devices = [device for device in snapshot.devices if device.state != "lost"]
    done = f"{run.accepted}/{run.wanted}" if run.wanted else counted(len(devices), "device")
    parts = [
        run.reason,
        f"round {run.round}",
        run.question_in_words if run.detail else "",
        done,
        score_of(run.model_dump()),
        f"waiting for {waiting_until(run.waiting)}" if run.waiting else "",
    ]
    return "  ".join(filter(None, parts))
