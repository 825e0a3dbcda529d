"""A backup of a fleet with certificates: nobody who was removed comes back; the fleet moves."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from broker.address import free_ports
from edgefed.config.values.address import parse_address
from edgefed.trust.certificates import read_certificate
from edgefed.trust.tokens import parse_token
from tests.broker.test_secured_fleet import write_data
from tests.enrolment.hub import FLEET, Hub, Told, running_hub
from tests.enrolment.test_removal import wait
from tests.programs.forked_programs import run_module

pytestmark = [pytest.mark.mosquitto, pytest.mark.slow]


def on(state: Path, *words: str) -> Told:
    return run_module("edgefed.cli.main", "--no-config", "--state", str(state), *words)


def restored(state: Path, backup: Path, *words: str) -> dict[str, Any]:
    code, out, told = on(state, "restore", str(backup), "--json", *words)
    assert code == 0, told
    return dict(json.loads(out))


def serial(folder: Path) -> int:
    return read_certificate((folder / "certificate.pem").read_bytes()).serial


def test_a_restore_re_admits_nobody_and_a_fleet_moves(tmp_path: Path) -> None:
    backup = tmp_path / "b.tar"
    with running_hub(tmp_path) as hub:
        for name in ("cam-1", "cam-2"):
            hub.enroll(name)
        hub.invite("cam-3")  # its token is void after a restore
        assert hub.edgefed("backup", str(backup))[0] == 0
        code, _, told = on(tmp_path / "other", "restore", str(backup), "--yes")
        assert (code, "[restore.running]" in told) == (4, True), told
        hub.order("member.remove", user="cam-2")
        hub.enroll("cam-4")
        for name in ("maria", "petra"):  # operators on this machine, later than the backup
            token = hub.invite(name, "operator")
            assert hub.edgefed("operator", "enroll", token)[0] == 0
        hub.order("member.remove", user="operator.petra")
        hub.kill_coordinator()
        half = tmp_path / "half"  # the broker's folder is all that is left of this machine
        shutil.copytree(hub.trust / "access", half / "trust" / FLEET / "access")
        old = serial(hub.trust / "coordinator")
        done = restored(hub.state, backup, "--yes")
        assert done["admitted"] == ["cam-1", "cam-4", "operator.maria"]
        assert (hub.trust / "operator.maria" / "key.pem").exists()
        assert not (hub.trust / "operator.petra").exists()
        assert done["not_admitted"] == ["cam-2"]
        assert serial(hub.trust / "coordinator") != old
        hub.start_coordinator()
        states = {name: row["state"] for name, row in hub.members().items()}
        assert states["cam-1"] == states["cam-4"] == "enrolled"
        assert states["cam-2"] == "revoked"
        assert "cam-3" not in states
        agent, _ = hub.fork_agent("cam-1", write_data(tmp_path / "cam-1.npz", 1))
        try:
            wait(lambda: len(hub.ask("snapshot")["snapshot"]["devices"]) == 1, "the agent")
        finally:
            agent.kill()
            agent.wait()
        hub.kill_coordinator()
    # Without a broker, no restore waits for a coordinator.
    _of_what_is_left(backup, tmp_path / "empty", half)
    _moves(hub)


def _of_what_is_left(backup: Path, empty: Path, half: Path) -> None:
    """Restore on machines that know less of the present, each in a state folder of its own."""
    code, _, told = on(empty, "restore", str(backup))
    assert (code, "[usage.confirm]" in told) == (2, True), told
    assert "+  cam-2" in told  # the operator is shown who would come back
    assert not (empty / "trust").exists()
    code, _, told = on(empty, "restore", str(backup), "--admit", "cam-9")
    assert (code, "[enrol.unknown]" in told) == (5, True), told
    done = restored(empty, backup, "--admit", "cam-1")
    assert (done["admitted"], done["not_admitted"]) == (["cam-1"], ["cam-2"])
    assert "cam-2" not in (empty / "trust" / FLEET / "access" / "acl").read_text()
    assert restored(half, backup, "--yes")["not_admitted"] == ["cam-2"]
    # What was replaced is remembered: an older state does not bring anybody back.
    shutil.rmtree(half / "trust" / FLEET)
    assert restored(half, backup, "--yes")["not_admitted"] == ["cam-2"]


def _moves(hub: Hub) -> None:
    """Change the address of a fleet whose device learns the new one."""
    old, hub.port = hub.port, free_ports()
    lock_held = hub.edgefed("broker", "address", "--json")
    assert json.loads(lock_held[1])["broker"].endswith(f":{old}")
    code, out, told = hub.edgefed(
        "broker", "address", "--host", "127.0.0.1", "--host", "hub.example", "--port", str(hub.port)
    )
    assert code == 0, told
    address = f"mqtts://127.0.0.1:{hub.port}"
    assert address in out
    code, _, told = hub.agent("cam-1", "address", address)
    assert (code, "[broker.unreachable]" in told) == (3, True), told  # nothing is changed
    with hub.broker():
        hub.start_coordinator()
        try:
            code, _, told = hub.edgefed("broker", "address", "--port", "9999")
            assert (code, "[state.locked]" in told) == (4, True), told
            code, _, told = hub.agent("cam-1", "address", address)
            assert code == 0, told
            assert parse_token(hub.invite("cam-5")).port == hub.port + 1
            hub.enroll("cam-5")
            data = write_data(hub.folder / "cam-1.npz", 1)
            agent, _ = hub.fork_agent("cam-1", data)
            try:
                wait(lambda: len(hub.ask("snapshot")["snapshot"]["devices"]) == 1, "the agent")
            finally:
                agent.kill()
                agent.wait()
            code, _, told = hub.edgefed("operator", "address", str(parse_address(address)))
            assert code == 0, told
        finally:
            hub.kill_coordinator()
    code, _, told = hub.agent("cam-1", "address", "mqtt://127.0.0.1:1883")
    assert (code, "[broker.tls]" in told) == (2, True), told
