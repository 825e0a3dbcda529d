"""Metrics of an agent: its tasks, connection and health."""

from __future__ import annotations

from collections import Counter

from edgefed.process.clock import Clock
from edgefed.process.service_manager import ServiceManager
from edgefed.terminal.metrics_server import INFO, LOOP_AGE, Metric, Values
from edgefed.transport.inbox import InboxCounts
from edgefed.transport.link import Link
from edgefed.version import VERSION
from edgefed.wire.messages import DeviceState, Telemetry

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
