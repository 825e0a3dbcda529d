"""A fleet behind a broker with users and access rules: each login has minimal rights."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from broker.acl import password_acl
from broker.address import LOOPBACK, free_port
from broker.check import check
from broker.configuration import configuration
from edgefed.config.values.address import Address
from edgefed.control.coordinator_client import CoordinatorClient
from edgefed.errors import NotAllowedError
from tests.broker import servers
from tests.processes import clean_environment
from tests.programs.forked_programs import ForkedProgram, run_module
from tests.transport.listening import wait_until

FLEET = "lab"
DEVICES = ("cam-1", "cam-2")
RECIPE = {
    "model": {"name": "mlp"},
    "data": {"name": "none"},
    "rounds": {"count": 2, "min_devices": len(DEVICES), "deadline": 60},
    "evaluation": {"on": "devices"},
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Address]:
    """The address of a broker that lets in the coordinator and two devices."""
    with secured_broker(tmp_path, DEVICES) as address:
        yield address


@contextmanager
def secured_broker(tmp_path: Path, devices: Sequence[str]) -> Iterator[Address]:
    """Run a broker that lets in the coordinator and these devices."""
    passwords, rules = tmp_path / "passwords", tmp_path / "acl"
    passwords.touch(mode=0o600)
    rules.write_text(password_acl(FLEET))
    rules.chmod(0o600)
    for user in ("coordinator", *devices):
        subprocess.run(["mosquitto_passwd", "-b", str(passwords), user, secret(user)], check=True)
    address = Address(LOOPBACK, free_port())
    text = configuration(
        address, allow_anonymous=False, passwords=passwords, acl=rules, user=servers.USER
    )
    with servers.running(text, address, tmp_path):
        yield address


def secret(user: str) -> str:
    return f"p@ss %/{user}"


def login(address: Address, user: str) -> Address:
    return replace(address, user=user, password=secret(user))


def write_data(path: Path, seed: int) -> Path:
    rng = np.random.default_rng(seed)
    inputs = rng.standard_normal((20, 3), dtype=np.float32)
    np.savez(path, x=inputs, y=rng.integers(0, 2, 20), classes=2)
    return path


@pytest.mark.mosquitto
def test_a_wrong_password_is_refused_and_told(broker: Address) -> None:
    wrong = replace(broker, user="cam-1", password="guess")
    with pytest.raises(NotAllowedError, match="refused the connection: not authorized") as told:
        CoordinatorClient(wrong, FLEET).connect()
    assert (told.value.code, "guess" in told.value.message) == ("broker.refused", False)
    with pytest.raises(NotAllowedError) as caught:
        check(wrong, 5.0)
    assert caught.value.code == "broker.refused"
    assert "guess" not in caught.value.message
    assert check(login(broker, "coordinator"), 5.0, fleet=FLEET).ok


def agent(command: str, broker: Address, folder: Path, name: str) -> list[str]:
    """Return the words of a command of an agent of this name that logs in as cam-1."""
    words = [command, "--broker", login(broker, "cam-1").with_login(), "--fleet", FLEET]
    data = f"npz:{write_data(folder / 'data.npz', 1)}"
    named = ["--name", name, "--data", data, "--state", str(folder)]
    return ["device_agent.commands.cli", *words, *named]


@contextmanager
def running_agent(broker: Address, folder: Path, name: str) -> Iterator[tuple[ForkedProgram, Path]]:
    """Yield an agent that runs, and its log."""
    log = folder / "agent.log"
    program = ForkedProgram(agent("run", broker, folder, name), clean_environment(), log)
    try:
        yield program, log
    finally:
        program.kill()
        program.wait()


def status(folder: Path, name: str) -> dict[str, object]:
    words = ("status", "--json", "--fleet", FLEET, "--name", name, "--state", str(folder))
    code, out, err = run_module("device_agent.commands.cli", *words)
    assert (code, err) == (0, "")
    return dict(json.loads(out))


@pytest.mark.mosquitto
def test_an_agent_whose_messages_the_broker_drops_says_so(broker: Address, tmp_path: Path) -> None:
    notice = tmp_path / "agents" / FLEET / "cam-2" / "status.json"
    with running_agent(broker, tmp_path, "cam-2") as (running, log):
        wait_until(lambda: notice.exists() and "drops messages" in notice.read_text(), "the notice")
        assert "drops messages of device cam-2" in str(status(tmp_path, "cam-2")["reason"])
        assert running.poll() is None  # the rules may be corrected
    (line,) = (line for line in log.read_text().splitlines() if "device.unheard" in line)
    assert "drops messages of device cam-2 of fleet lab published as user cam-1" in line
    assert "try: give the device the name of its user, --name cam-1" in line


@pytest.mark.mosquitto
@pytest.mark.parametrize(("name", "state"), [("cam-1", "good"), ("cam-2", "bad")])
def test_doctor_checks_that_the_device_may_publish(
    name: str, state: str, broker: Address, tmp_path: Path
) -> None:
    told = run_module(*agent("doctor", broker, tmp_path, name))[1]
    mark = {"good": "✓", "bad": "✗"}[state]
    (line,) = (line for line in told.splitlines() if " presence " in line)
    assert line.startswith(mark)
    assert ("--name cam-1" in line) == (state == "bad")
