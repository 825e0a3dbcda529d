"""What an agent counts of its work, and which of its states fail the check for monitoring."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from typer.testing import CliRunner

from device_agent.commands.cli import app
from device_agent.reports.progress_reporter import AgentActivity, agent_values
from device_agent.reports.status_file import write_status_file
from edgefed.process.lock import FolderLock
from edgefed.process.service_manager import ServiceManager
from edgefed.transport.inbox import InboxCounts
from edgefed.transport.link import Link
from edgefed.wire.messages import Telemetry
from tests.coordinator.light_devices import HandClock


def test_work_is_timed_from_task_to_task() -> None:
    clock = HandClock()
    activity = AgentActivity(clock)
    for seconds, state, exchange in (
        (1, "download", "e1"),
        (2, "train", "e1"),
        (3, "train", "e1"),  # progress
        (5, "upload", "e1"),
        (7, "done", ""),
        (7, "done", ""),
        (11, "evaluate", "e2"),
        (13, "failed", "e2"),
        (17, "train", "e3"),
    ):
        activity.note(state, exchange)  # type: ignore[arg-type]
        clock.seconds += seconds
    # Each number is the time from its state to the next one.
    assert activity.worked == 2 + 3 + 11 + 17
    assert activity.ended == {"done": 1, "failed": 1}


def test_health_is_in_base_units_and_what_no_sensor_has_is_absent() -> None:
    clock, link = HandClock(), mock.Mock(spec=Link, connected=False, sent=5, received=7)
    manager = ServiceManager({}, clock)
    clock.seconds += 2
    manager.due(clock.monotonic())
    clock.seconds += 4
    health = Telemetry(session="0" * 16, cpu=25.0, memory=2**30, temperature=61.5)
    counts = InboxCounts(1, 2, 4)
    values = agent_values(AgentActivity(clock), link, counts, health, manager)
    assert values["edgefed_agent_cpu_ratio"] == 0.25
    assert values["edgefed_agent_gpu_ratio"] is None
    assert values["edgefed_agent_temperature_celsius"] == 61.5
    assert values["edgefed_agent_memory_bytes"] == 2**30
    assert values["edgefed_agent_inbox_dropped_total"] == 7
    assert values["edgefed_agent_payload_bytes_total"] == {"sent": 5, "received": 7}
    assert values["edgefed_main_loop_age_seconds"] == 4
    assert "edgefed_agent_power_watts" not in agent_values(
        AgentActivity(clock), link, counts, None, manager
    )


@pytest.mark.parametrize(
    ("fields", "code", "name"),
    [
        ({}, 0, ""),
        ({"state": "late", "reason": "nobody waits"}, 0, ""),
        ({"connected": False}, 3, "broker.unreachable"),
        ({"state": "failed", "reason": "diverged"}, 8, "agent.unhealthy"),
        ({"state": "paused"}, 8, "agent.unhealthy"),
        ({"state": "rejected"}, 8, "agent.unhealthy"),
        ({"reason": "the broker drops its messages"}, 8, "agent.unhealthy"),
        ({"running": False}, 3, "agent.stopped"),
    ],
)
def test_each_problem_has_its_exit_code(
    tmp_path: Path, fields: dict[str, Any], code: int, name: str
) -> None:
    folder = tmp_path / "agents" / "default" / "cam-1"
    status = {"device": "cam-1", "broker": "mqtt://x:1", "connected": True, "state": "idle"}
    write_status_file(folder, {**status, "reason": "", "samples": 3, **fields})
    lock = FolderLock(folder, "the agent") if fields.get("running", True) else None
    words = ["--no-config", "--state", str(tmp_path), "status", "--name", "cam-1", "--check"]
    told = CliRunner().invoke(app, words)
    if lock is not None:
        lock.release()
    assert told.exit_code == code, told.stderr
    assert f"[{name}]" in told.stderr if code else told.stdout.startswith("healthy: cam-1")
