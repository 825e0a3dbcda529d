"""Log the journal's important events, one line for each, at a bounded rate."""

from __future__ import annotations

import logging
from typing import Any

from edgefed.events.base.alert_events import alert_in_words
from edgefed.events.base.model import Event
from edgefed.events.state.lines import describe
from edgefed.process.clock import Clock
from edgefed.terminal.units import counted, score_of

log = logging.getLogger(__name__)

WINDOW = 10.0
"""Seconds for which lines about devices are counted."""

MAX_LINES = 50
"""Most lines about devices in a window, so that a large fleet that reconnects does not fill the
disk."""

_SERIOUS = {"lost", "failed", "rejected", "refused"}
_ENDED = ("finished", "aborted", "failed")


class EventLog:
    """Listens to a journal: runs, rounds, bounties, alerts, notes, devices, and bad replies.

    Args:
        clock: for the rate of lines about devices.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._window = clock.monotonic()
        self._lines = 0
        self._rounds = 0
        self._status = ("", "", "")

    def take(self, event: Event, number: int) -> None:
        """Log an event, if it is important enough."""
        del number
        if self._lines and self._clock.monotonic() - self._window >= WINDOW:
            self._end_window()
        fields = event.fields
        match event.kind:
            case "run":
                self._run(fields)
            case "scored" | "labels":
                self._of_run(event)
            case "note":
                serious = fields.get("level") == "warning"
                log.log(logging.WARNING if serious else logging.INFO, "%s", fields["text"])
            case "alert":
                level = logging.INFO if fields["over"] else logging.WARNING
                log.log(level, "%s", alert_in_words(fields))
            case "device":
                self._device(event, str(fields.get("state", "")))
            case "reply" if fields["outcome"] != "accepted":
                self._device(event, fields["outcome"])

    def _run(self, fields: dict[str, Any]) -> None:
        """Log a run whose status has changed."""
        run, status, reason = fields["run"], fields.get("status", ""), fields.get("reason", "")
        self._rounds = fields.get("rounds", self._rounds)
        if not status or self._status == (run, status, reason):
            return
        self._status = (run, status, reason)
        parts = [f"run {run} {status}"]
        if status in _ENDED and "round" in fields:
            parts[0] += f" after round {fields['round']} of {self._rounds}"
            parts.append(score_of(fields))
        elif "algorithm" in fields:
            parts.append(f"{fields['algorithm']}, {counted(self._rounds, 'round')}")
        line = ", ".join(part for part in parts if part)
        level = logging.WARNING if status == "failed" else logging.INFO
        log.log(level, "%s%s", line, f": {reason}" if reason else "")

    def _of_run(self, event: Event) -> None:
        line = describe(event)
        if line is not None:
            log.info("run %s: %s", event.fields["run"], line.text)

    def _device(self, event: Event, state: str) -> None:
        """Log a line about a device, unless there were too many."""
        line = describe(event)
        if line is None:
            return
        if not self._lines:
            self._window = self._clock.monotonic()
        self._lines += 1
        if self._lines <= MAX_LINES:
            level = logging.WARNING if state in _SERIOUS else logging.INFO
            log.log(level, "device %s", " ".join(line.text.split()))

    def _end_window(self) -> None:
        left_out, self._lines = self._lines - MAX_LINES, 0
        if left_out > 0:
            log.warning("%d more lines about devices were omitted", left_out)
