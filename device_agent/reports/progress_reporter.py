"""The state of an agent, for the coordinator, in the status file and as metrics."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from device_agent.identity.identity import Identity
from device_agent.limits.decision import Pause
from device_agent.reports.status_file import write_status_file
from edgefed.config.values.address import Address
from edgefed.errors import StorageError
from edgefed.process.clock import Clock, timestamp
from edgefed.process.service_manager import ServiceManager
from edgefed.terminal.metrics_server import INFO, LOOP_AGE, Metric, Values
from edgefed.transport.inbox import InboxCounts
from edgefed.transport.link import Link
from edgefed.version import VERSION
from edgefed.wire.messages import DeviceState, Progress, Receipt, Telemetry

log = logging.getLogger(__name__)

AGENT_METRICS = (
    Metric("edgefed_agent_connected", "1 while the broker is connected, otherwise 0."),
    Metric("edgefed_agent_connections_total", "Connections to the broker so far.", "counter"),
    Metric("edgefed_agent_state", "1 for the state of the device.", "gauge", "state"),
    Metric("edgefed_agent_samples", "Samples to train on."),
    Metric("edgefed_agent_tasks_total", "Ended tasks by outcome.", "counter", "outcome"),
    Metric("edgefed_agent_work_seconds_total", "Time of training and evaluation.", "counter"),
    Metric("edgefed_agent_payload_bytes_total", "Bytes of messages.", "counter", "direction"),
    Metric("edgefed_agent_inbox_dropped_total", "Messages that a full queue dropped.", "counter"),
    Metric("edgefed_agent_cpu_ratio", "Load of the CPU, from 0 to 1."),
    Metric("edgefed_agent_gpu_ratio", "Load of the GPU, from 0 to 1."),
    Metric("edgefed_agent_memory_bytes", "Memory of the board in use."),
    Metric("edgefed_agent_temperature_celsius", "Hottest thermal zone."),
    Metric("edgefed_agent_power_watts", "Power draw of the board."),
    LOOP_AGE,
    INFO,
)  # fmt: skip

WORK = ("train", "evaluate")
ENDS = ("done", "failed", "late", "rejected")


class AgentActivity:
    """Counts of an agent's tasks and connections.

    Args:
        clock: measures the time of work.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.state: DeviceState = "idle"
        self.exchange = ""
        self.connections = 0
        self.samples = 0
        self.ended: Counter[str] = Counter()
        self._worked, self._since = 0.0, 0.0

    def note(self, state: DeviceState, exchange: str) -> None:
        """Note the state that the agent reports."""
        if (state, exchange) == (self.state, self.exchange):
            return
        now = self._clock.monotonic()
        if self.state in WORK:
            self._worked += now - self._since
        if state in ENDS:
            self.ended[state] += 1
        self.state, self.exchange, self._since = state, exchange, now

    @property
    def worked(self) -> float:
        """Seconds of training and evaluation, with those of the task at work."""
        going = self._clock.monotonic() - self._since if self.state in WORK else 0.0
        return self._worked + going


def agent_values(
    activity: AgentActivity,
    link: Link,
    counts: InboxCounts,
    health: Telemetry | None,
    manager: ServiceManager,
) -> Values:
    """Return the values of an agent's metrics now; ``health`` is the last telemetry, if any."""
    values: dict[str, float | dict[str, float] | None] = {
        "edgefed_agent_connected": float(link.connected),
        "edgefed_agent_connections_total": activity.connections,
        "edgefed_agent_state": {activity.state: 1.0},
        "edgefed_agent_samples": activity.samples,
        "edgefed_agent_tasks_total": {word: float(activity.ended[word]) for word in ENDS},
        "edgefed_agent_work_seconds_total": activity.worked,
        "edgefed_agent_payload_bytes_total": {"sent": link.sent, "received": link.received},
        "edgefed_agent_inbox_dropped_total": counts.dropped,
        LOOP_AGE.name: manager.age(),
        INFO.name: {VERSION: 1.0},
    }
    if health is not None:
        for load in ("cpu", "gpu"):
            percent = getattr(health, load)
            values[f"edgefed_agent_{load}_ratio"] = None if percent is None else percent / 100
        values["edgefed_agent_memory_bytes"] = health.memory
        values["edgefed_agent_temperature_celsius"] = health.temperature
        values["edgefed_agent_power_watts"] = health.power
    return values


_Shown = tuple[str, str, str, str, int, tuple[tuple[str, int], ...], int, bool, int]

WRITE_EVERY = 0.2
"""Seconds between two writes of the status file: a short task has more states than that."""

UPLOAD_AFTER = 0.25
"""Seconds after which an upload is reported. Most replies are confirmed before, and each report
costs the coordinator as much as a small reply."""


class ProgressReporter:
    """Knows the agent's state; owned by one thread.

    Args:
        identity: of the agent.
        address: the broker.
        folder: of the status file.
        clock: for the status file.
        publish: sends a progress message; does nothing while the broker is away.

    Attributes:
        activity: counts of the reported states.
    """

    def __init__(
        self,
        identity: Identity,
        address: Address,
        folder: Path,
        clock: Clock,
        publish: Callable[[Progress], None],
    ) -> None:
        self._identity = identity
        self._address = address
        self._unwritten = ""
        self._folder = folder
        self._clock = clock
        self._publish = publish
        self._progress = Progress(session=identity.birth.session, state="idle")
        self._written: _Shown | None = None
        self._next_write = 0.0
        self._next_report: float | None = None
        self._connected = False
        self._dropped = 0
        self._over_limits: tuple[tuple[str, int], ...] = ()
        self._refused = 0
        self._unheard = ""
        self._data_problem = ""
        self._pause: Pause | None = None
        self.activity = AgentActivity(clock)
        self._samples = self.activity.samples = identity.birth.samples
        self._was_down = False

    def tell(
        self,
        state: DeviceState,
        connected: bool,
        *,
        fraction: float = 0.0,
        exchange: str = "",
        reason: str = "",
    ) -> None:
        """Set the state and report it; an upload is reported once it has lasted a moment."""
        self.activity.note(state, exchange)
        self._progress = Progress(
            session=self._identity.birth.session,
            state=state,
            fraction=1.0 if state in ("upload", "done") else fraction,
            exchange=exchange,
            reason=reason[:1000],
        )
        # A device that may not train any more says so before its reply can close the round
        if state == "upload" and self._pause is None:
            self._next_report = self._clock.monotonic() + UPLOAD_AFTER
            self._note_connection(connected)
        else:
            self.repeat(connected)

    def note_pause(self, pause: Pause | None) -> None:
        """Report from now on why the device may not train; None if it may."""
        self._pause = pause

    def connected(self) -> None:
        """Report that the broker is connected, for the first time or again."""
        self.activity.connections += 1
        restored = "connection to the broker restored"
        log.info("%s", restored if self._was_down else "connected to the broker")
        self._was_down = False
        self.repeat(connected=True)

    def disconnected(self, reason: str) -> None:
        """Report that the broker is disconnected."""
        log.warning("connection to the broker lost: %s; reconnecting", reason)
        self._unheard = ""
        self._was_down = True
        self.repeat(connected=False)

    def repeat(self, connected: bool) -> None:
        """Report the state again, after a request or a change of the connection."""
        reason = self._progress.reason or self._data_problem
        pause = self._pause
        left = None if pause is None else pause.seconds_left(self._clock.now())
        update = {"reason": reason, "may_train": pause is None, "resumes_in": left}
        self._next_report = None
        self._publish(self._progress.model_copy(update=update))
        self._note_connection(connected)

    def _note_connection(self, connected: bool) -> None:
        self._connected = connected
        self.due(self._clock.monotonic())

    def note_overflow(self, dropped: int, over_limits: Mapping[str, int]) -> None:
        """Show how many messages the inbox had no room for, and how many were over a limit."""
        self._dropped, self._over_limits = dropped, tuple(over_limits.items())
        self.due(self._clock.monotonic())

    def note_refused(self, refused: int) -> None:
        """Show how many messages were refused, such as for a wrong signature."""
        self._refused = refused
        self.due(self._clock.monotonic())

    def note_unheard(self, problem: str) -> None:
        """Show that the broker drops the device's messages; an empty text ends this."""
        self._unheard = problem
        self.due(self._clock.monotonic())

    def note_samples(self, samples: int) -> None:
        """Show the new number of samples."""
        self._samples = self.activity.samples = samples
        self.due(self._clock.monotonic())

    def note_data(self, problem: str, connected: bool) -> None:
        """Report why changed data are not used; an empty text ends this."""
        if problem != self._data_problem:
            self._data_problem = problem
            self.repeat(connected)

    def next_due(self) -> float | None:
        """Return the monotonic second of the next report or write of the status file, or None."""
        write = self._next_write if self._shown() != self._written else None
        return min((due for due in (self._next_report, write) if due is not None), default=None)

    def due(self, now: float) -> None:
        """Report an upload that takes long, and write the status file if it is out of date."""
        if self._next_report is not None and now >= self._next_report:
            self.repeat(self._connected)
        if now >= self._next_write:
            self.write()

    def write(self) -> None:
        """Write the file that ``edgefed-agent status`` shows, if anything has changed."""
        shown = self._shown()
        if shown == self._written:
            return
        self._written = shown
        self._next_write = self._clock.monotonic() + WRITE_EVERY
        state, exchange, reason, until, dropped, over_limits, refused, connected, samples = shown
        status = {
            "device": self._identity.device,
            "fleet": self._identity.fleet,
            "broker": str(self._address),
            "connected": connected,
            "state": state,
            "exchange": exchange,
            "reason": reason,
            "may_train": self._pause is None,
            "resumes_at": until,
            "samples": samples,
            "dropped": dropped,
            "over_limits": dict(over_limits),
            "refused": refused,
            "since": timestamp(self._clock.now()),
        }
        try:
            write_status_file(self._folder, status)
            self._unwritten = ""
        except StorageError as error:
            if error.message != self._unwritten:
                log.warning("edgefed-agent status shows an earlier state: %s", error.message)
            self._unwritten = error.message

    def _shown(self) -> _Shown:
        progress, pause = self._progress, self._pause
        return (
            progress.state,
            progress.exchange,
            progress.reason or self._unheard or self._data_problem,
            timestamp(pause.until) if pause is not None and pause.until is not None else "",
            self._dropped,
            self._over_limits,
            self._refused,
            self._connected,
            self._samples,
        )


def log_receipt(receipt: Receipt) -> None:
    """Log the verdict on a reply."""
    reason = f": {receipt.reason}" if receipt.reason else ""
    level = logging.WARNING if receipt.outcome == "rejected" else logging.INFO
    log.log(level, "reply to %s %s%s", receipt.exchange, receipt.outcome, reason)
