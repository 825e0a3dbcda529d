"""What systemd hears of a program: that it is ready, that its loop turns, and that it ends."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgefed.data.devices.shard_files import write_shard
from edgefed.process.service_manager import BEATS, ServiceManager
from tests.coordinator.light_devices import HandClock
from tests.processes import clean_environment
from tests.programs.forked_programs import ForkedProgram
from tests.run_fixture import shards
from tests.transport.listening import PATIENCE, wait_until


class Manager:
    """The socket of a service manager."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address.replace("@", "\0", 1))
        self._socket.setblocking(False)
        self.heard: list[str] = []

    def hear(self) -> list[str]:
        while True:
            try:
                self.heard.append(self._socket.recv(4096).decode())
            except BlockingIOError:
                return self.heard

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["file", "abstract"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    name = f"{os.getpid()}-{tmp_path.name}"
    return str(tmp_path / "notify") if request.param == "file" else f"@edgefed-{name}"


@pytest.fixture
def manager(address: str) -> Iterator[Manager]:
    made = Manager(address)
    yield made
    made.close()


def test_beats_are_as_often_as_the_manager_needs_them(manager: Manager, address: str) -> None:
    clock = HandClock()
    environment = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "30000000"}
    program = ServiceManager(environment, clock)
    program.ready()
    for _ in range(30):  # seconds
        program.due(clock.seconds)
        program.due(clock.seconds)
        clock.seconds += 1
    program.stopping()
    assert manager.hear() == ["READY=1", *BEATS * ["WATCHDOG=1"], "STOPPING=1"]


@pytest.mark.parametrize(
    "watchdog", [{}, {"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "x"}]
)
def test_without_a_watchdog_nothing_beats(
    manager: Manager, address: str, watchdog: dict[str, str]
) -> None:
    program = ServiceManager({"NOTIFY_SOCKET": address, **watchdog}, HandClock())
    program.due(2000.0)
    program.ready()
    assert manager.hear() == ["READY=1"]


def test_a_manager_that_has_gone_is_a_warning_and_none_is_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ServiceManager({}, HandClock()).ready()
    assert caplog.messages == []
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "none")}, HandClock()).ready()
    (warning,) = caplog.messages
    assert "does not take READY=1" in warning


@pytest.mark.parametrize("program", ["agent", "coordinator"])
@pytest.mark.mosquitto
def test_a_program_is_ready_beats_and_says_that_it_ends(
    program: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    broker = request.getfixturevalue("mosquitto")
    manager = Manager(str(tmp_path / "notify"))
    write_shard(data := tmp_path / "data.npz", shards((5,))[0])
    common = ["--no-config", "--state", str(tmp_path / "state"), "--broker", str(broker.address)]
    words = {
        "agent": ["device_agent.commands.cli", "run", *common, "--data", f"npz:{data}"],
        "coordinator": ["edgefed.cli.main", *common, "coordinator"],
    }[program]
    environment = {
        **clean_environment(),
        "NOTIFY_SOCKET": str(tmp_path / "notify"),
        "WATCHDOG_USEC": "3000000",
    }
    process = ForkedProgram(words, environment, tmp_path / "log")
    wait_until(lambda: manager.hear()[:1] == ["READY=1"], "word that it is ready")
    wait_until(lambda: manager.hear().count("WATCHDOG=1") >= 3, "beats")
    process.terminate()
    assert process.wait(PATIENCE) == 0, (tmp_path / "log").read_text()
    assert set(manager.hear()) == {"READY=1", "WATCHDOG=1", "STOPPING=1"}
    manager.close()
