"""Every program reports a refused password as such, not as a missing broker."""

from __future__ import annotations

import os
import pty
import queue
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from broker.address import LOOPBACK, free_port
from broker.configuration import configuration
from device_agent.commands.cli import app as agent_app
from edgefed.config.fleet.broker_errors import refused
from edgefed.config.values.address import Address
from edgefed.control.snapshot_watcher import SnapshotWatcher
from edgefed.events.state.feed_update import FeedUpdate
from edgefed.process.clock import SystemClock
from tests.broker import servers
from tests.broker.test_secured_fleet import write_data
from tests.cli.commands import edgefed
from tests.processes import PATIENCE, clean_environment, start_module
from tests.programs.forked_programs import run_module
from tests.transport.listening import wait_until

HINT = refused(Address(LOOPBACK), "").hint
pytestmark = pytest.mark.mosquitto

ASKING = [
    ["status"],
    ["run", "start"],
    ["coordinator"],
    ["broker", "check"],
]


def users(folder: Path, address: Address, password: str) -> str:
    """A configuration that lets in nobody but user ``ops`` with this password."""
    file = folder / "passwords"
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)
    subprocess.run(["mosquitto_passwd", "-b", str(file), "ops", password], check=True)
    return configuration(address, allow_anonymous=False, passwords=file, user=servers.USER)


@pytest.fixture
def wrong(tmp_path: Path) -> Iterator[Address]:
    """The address of a broker, with a login that it refuses."""
    address = Address(LOOPBACK, free_port(), "ops", "guess")
    with servers.running(users(tmp_path, address, "right"), address, tmp_path):
        yield address


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
def test_a_command_says_that_the_broker_refuses(
    words: list[str], wrong: Address, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = edgefed(*words, "--quiet", "--broker", wrong.with_login(), state=tmp_path)
    assert told.code == 4
    assert "[broker.refused]" in told.err
    assert f"  try: {HINT}\n" in told.err
    assert "no mqtt broker" not in told.err.lower()
    assert "guess" not in told.err
    assert [record.getMessage() for record in caplog.records] == []  # it is told once


def test_up_says_that_the_broker_refuses(wrong: Address, tmp_path: Path) -> None:
    words = ("up", "--headless", "--state", str(tmp_path), "--broker", wrong.with_login())
    code, out, err = run_module("edgefed.cli.main", *words)
    assert (code, out) == (4, "")
    assert "[broker.refused]" in err
    assert "no mqtt broker" not in err.lower()


def test_doctors_say_that_the_broker_refuses(wrong: Address, tmp_path: Path) -> None:
    data = f"npz:{write_data(tmp_path / 'data.npz', 1)}"
    own = edgefed("doctor", "--json", "--broker", wrong.with_login(), state=tmp_path)
    words = ["doctor", "--no-config", "--state", str(tmp_path), "--data", data, "--json"]
    device = CliRunner().invoke(agent_app, [*words, "--broker", wrong.with_login()])
    for code, out, err in (
        (own.code, own.out, own.err),
        (device.exit_code, device.stdout, device.stderr),
    ):
        assert code == 8
        assert "refused the connection: not authorized" in out
        assert HINT in out
        assert "no mqtt broker" not in (out + err).lower()


def test_an_agent_logs_that_the_broker_refuses_and_keeps_trying(
    wrong: Address, tmp_path: Path
) -> None:
    data = f"npz:{write_data(tmp_path / 'data.npz', 1)}"
    words = ("run", "--quiet", "--data", data, "--state", str(tmp_path), "--name", "cam")
    agent = start_module("device_agent.commands.cli", *words, "--broker", wrong.with_login())
    try:
        assert agent.stderr is not None
        line = agent.stderr.readline()
        assert (
            f"The MQTT broker at {wrong} refused the connection: not authorized; trying again"
            in line
        )
        assert f"[broker.refused]; try: {HINT}" in line
        assert agent.poll() is None
    finally:
        agent.kill()
        agent.communicate()


def test_the_dashboard_says_that_the_broker_refuses(wrong: Address, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "edgefed.cli.main", "ui", "--broker", wrong.with_login()]
    environment = {**clean_environment(), "EDGEFED_STATE": str(tmp_path)}
    shown = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    try:
        assert shown.wait(PATIENCE) == 4
        said = os.read(ours, 1 << 16).decode()
    finally:
        shown.kill()
        os.close(theirs)
        os.close(ours)
    assert "broker.refused" in said
    assert "no mqtt broker" not in said.lower()


def test_a_watcher_says_when_a_broker_begins_to_refuse(tmp_path: Path) -> None:
    address = Address(LOOPBACK, free_port(), "ops", "right")
    seen: queue.SimpleQueue[FeedUpdate] = queue.SimpleQueue()
    watcher = SnapshotWatcher(address, "lab", SystemClock(), seen.put)
    problems: list[str] = []

    def told(words: str) -> bool:
        while not seen.empty():
            problems.append(seen.get().problem)
        return any(words in problem for problem in problems)

    try:
        with servers.running(users(tmp_path, address, "right"), address, tmp_path):
            watcher.start()
        wait_until(lambda: told("is unreachable"), "the broker's end")
        with servers.running(users(tmp_path, address, "other"), address, tmp_path):
            wait_until(lambda: told("refused the connection: not authorized"), "the refusal")
    finally:
        watcher.stop()
