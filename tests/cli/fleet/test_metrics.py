"""Metrics and health of a real coordinator and a real agent, before, during and after a run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

from broker.address import LOOPBACK, free_port
from broker.child_process import ChildProcess
from device_agent.commands.cli import app as agent_app
from device_agent.reports.progress_reporter import AGENT_METRICS
from edgefed.cli.programs.processes import running, wait_for_coordinator
from edgefed.config.values.address import Address
from edgefed.coordinator.models.run_model import load_dataset
from edgefed.coordinator.process.service_metrics import SERVICE_METRICS
from edgefed.data.devices.partition import deal
from edgefed.data.devices.shard_files import write_shard
from edgefed.version import VERSION
from tests.cli.commands import TINY, edgefed, loaded, recipe_file
from tests.cli.conftest import FLEET, SmallFleet
from tests.programs.forked_fleet import ForkedProcesses
from tests.transport.listening import wait_until

parser = pytest.importorskip("prometheus_client.parser", reason="edgefed[metrics]")
pytestmark = pytest.mark.mosquitto

Samples = dict[tuple[str, str], float]

NAME = "cam-1"
ABSENT = ("gpu_ratio", "cpu_ratio", "memory_bytes", "temperature_celsius", "power_watts")
"""Values of the agent that depend on the board, or on the next telemetry."""


class MeasuredProcesses(ForkedProcesses):
    """Programs that serve metrics, and write their logs as JSON."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Address(LOOPBACK, free_port()), FLEET, folder)
        self.ports: dict[str, int] = {}

    def _child(self, name: str, arguments: Sequence[str]) -> ChildProcess:
        self.ports[name] = free_port()
        further = ("--metrics", str(self.ports[name]), "--log-format", "json")
        return super()._child(name, (*arguments, *further))


class Measured(SmallFleet):
    """A fleet of one device."""

    processes: MeasuredProcesses

    def read(self, name: str) -> Samples:
        """Return the samples of a program by name and value of the label."""
        with urlopen(f"http://127.0.0.1:{self.processes.ports[name]}/metrics") as answer:
            families = parser.text_string_to_metric_families(answer.read().decode())
            return {
                (sample.name, next(iter(sample.labels.values()), "")): sample.value
                for family in families
                for sample in family.samples
            }

    def agent(self, *words: str) -> tuple[int, str, str]:
        state = ("--state", str(self.processes.folder), "--fleet", FLEET, "--no-config")
        told = CliRunner().invoke(agent_app, [*state, *words, "--name", NAME])
        return told.exit_code, told.stdout, told.stderr


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    folder = tmp_path_factory.mktemp("measured")
    path = recipe_file(folder, TINY)
    recipe = loaded(path)
    processes = MeasuredProcesses(folder / "state")
    with running(processes):
        processes.start_broker("mosquitto")
        processes.start_coordinator()
        (shard,) = deal(load_dataset(recipe, None), recipe.data, 1, 0.0, recipe.seed)
        write_shard(folder / "data.npz", shard)
        processes.start_agent(NAME, f"npz:{folder / 'data.npz'}")
        wait_for_coordinator(processes)
        made = Measured(processes, path)
        wait_until(lambda: len(json.loads(made("device", "list", "--json").out)) == 1, "device")
        yield made


def test_a_run_is_in_the_metrics_of_both_programs(fleet: Measured) -> None:
    before = fleet.read("coordinator")
    assert before["edgefed_run_active", ""] == 0
    assert ("edgefed_round_seconds", "") not in before
    one = ("--set", "rounds.min_devices=1", "--rounds", "2")
    run = fleet.begin(*one)
    shown = fleet.wait_for(run, "finished")
    after, status = fleet.read("coordinator"), fleet("status", "--json").json
    assert after["edgefed_devices_ready", ""] == 1
    assert sum(number for (name, _), number in after.items() if name == "edgefed_devices") == 1
    last = shown["history"][-1]
    assert after["edgefed_run_score", "accuracy"] == pytest.approx(last["accuracy"])
    assert after["edgefed_round_seconds", ""] == pytest.approx(last["seconds"])
    assert (after["edgefed_run_round", ""], after["edgefed_run_rounds", ""]) == (2, 2)
    assert after["edgefed_rounds_total", ""] == 2
    assert after["edgefed_replies_total", "accepted"] == status["devices"][0]["accepted"] > 0
    assert after["edgefed_payload_bytes_total", "sent"] > status["sent"] > 0
    assert after["edgefed_payload_bytes_total", "received"] > status["received"] > 0
    assert after["edgefed_attention", "alarm"] == 0
    assert after["edgefed_messages_refused_total", ""] == 0
    assert after["edgefed_inbox_dropped_total", "urgent"] == 0
    assert 0 <= after["edgefed_main_loop_age_seconds", ""] < 60
    assert after["edgefed_version_info", VERSION] == 1
    agent = fleet.read(NAME)
    assert agent["edgefed_agent_tasks_total", "done"] == after["edgefed_replies_total", "accepted"]
    assert agent["edgefed_agent_tasks_total", "failed"] == 0
    assert agent["edgefed_agent_samples", ""] == status["devices"][0]["samples"]
    assert agent["edgefed_agent_connected", ""] == agent["edgefed_agent_connections_total", ""] == 1
    assert agent["edgefed_agent_work_seconds_total", ""] > 0
    assert agent["edgefed_agent_payload_bytes_total", "received"] > status["devices"][0]["sent"] / 9
    read = {name for name, _ in after} | {name for name, _ in agent}
    known = {metric.name for metric in (*SERVICE_METRICS, *AGENT_METRICS)}
    assert {f"edgefed_agent_{name}" for name in ABSENT} >= known - read
    assert {name for name in read if name.startswith("edgefed_")} <= known


def test_a_log_is_json(fleet: Measured) -> None:
    logs = [fleet.processes.folder / "logs" / f"{name}.log" for name in (NAME, "coordinator")]
    logged = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    texts = [line["message"] for line in logged]
    assert any(text.startswith(f"coordinator of fleet {FLEET} on mqtt://") for text in texts)
    assert "connected to the broker" in texts
    assert {tuple(line) for line in logged} == {("time", "level", "logger", "message")}
    assert {line["level"] for line in logged} <= {"info", "warning"}


def test_an_address_in_use_is_refused(fleet: Measured, tmp_path: Path) -> None:
    taken = fleet.processes.ports["coordinator"]
    told = edgefed(
        *("--broker", fleet.url, "--fleet", "other", "--state", tmp_path, "-q"),
        *("coordinator", "--metrics", f"127.0.0.1:{taken}"),
    )
    told.failed(2, "metrics.address", f"127.0.0.1:{taken}")


def test_health_is_a_line_and_an_exit_code(fleet: Measured) -> None:
    told = fleet("status", "--check")
    assert (told.code, told.out.count("\n")) == (0, 1) and "1 of 1 devices online" in told.out
    code, out, _ = fleet.agent("status", "--check")
    assert (code, out.split()[:2]) == (0, ["healthy:", NAME])
    fleet.processes.agents[NAME].stop()
    code, out, err = fleet.agent("status", "--check")
    assert (code, out) == (3, "") and "[agent.stopped]" in err
    coordinator = fleet.processes.coordinator
    assert coordinator is not None
    coordinator.stop()
    fleet("status", "--check").failed(3, "coordinator.unreachable")
