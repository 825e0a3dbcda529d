"""A whole fleet behind a broker with users and rules: the login of each part, and nothing more."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from broker.acl import acl
from broker.address import LOOPBACK, free_port
from broker.check import check
from broker.configuration import configuration
from edgefed.cli import processes
from edgefed.cli.follow_run import follow
from edgefed.cli.processes import Processes, wait_for_coordinator
from edgefed.clock import SystemClock
from edgefed.config.address import Address
from edgefed.control.coordinator_client import CoordinatorClient
from edgefed.errors import NotAllowedError
from tests.broker import servers

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
    rules.write_text(acl(FLEET))
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


@pytest.mark.slow
@pytest.mark.mosquitto
def test_a_run_over_users_and_rules(broker: Address, tmp_path: Path) -> None:
    with ExitStack() as stack:
        dispatcher = Processes(login(broker, "coordinator"), FLEET, tmp_path / "dispatcher")
        stack.enter_context(processes.running(dispatcher))
        dispatcher.start_coordinator()
        wait_for_coordinator(dispatcher)
        for seed, device in enumerate(DEVICES):
            own = Processes(login(broker, device), FLEET, tmp_path / device)
            stack.enter_context(processes.running(own))
            own.start_agent(device, f"npz:{write_data(tmp_path / f'{device}.npz', seed)}", 0.2)
        client = CoordinatorClient(dispatcher.address, FLEET)
        client.connect()
        stack.callback(client.close)
        run = client.order("run.start", recipe=RECIPE)["run"]
        follow(dispatcher.address, FLEET, run, SystemClock(), quiet=True, alive=dispatcher.check)
        record = client.ask("run.show", run=run)
    assert (record["status"], record["round"]) == ("finished", 2)
    assert record["accuracy"] is not None


@pytest.mark.mosquitto
def test_a_wrong_password_is_refused_and_told(broker: Address) -> None:
    wrong = replace(broker, user="cam-1", password="guess")
    with pytest.raises(NotAllowedError, match="refused us: not authorized") as told:
        CoordinatorClient(wrong, FLEET).connect()
    assert (told.value.code, "guess" in told.value.message) == ("broker.refused", False)
    with pytest.raises(NotAllowedError) as caught:
        check(wrong.with_login(), 5.0)
    assert caught.value.code == "broker.refused"
    assert "guess" not in caught.value.message
    assert check(login(broker, "coordinator").with_login(), 5.0, fleet=FLEET).ok
