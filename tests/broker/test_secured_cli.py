"""``edgefed broker`` in a fleet with an authority, as somebody types it."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.address import LOOPBACK, free_ports
from broker.rule_checks import RULES
from tests.broker.clients import is_gone, until
from tests.cli.commands import edgefed as in_this_process
from tests.processes import edgefed
from tests.programs.forked_programs import run_module

pytestmark = pytest.mark.mosquitto


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The state folder of a machine with a fleet's authority."""
    port = free_ports()
    made = run(tmp_path, "init", "--host", LOOPBACK, "--port", str(port))
    assert made[0] == 0, made
    return tmp_path


@contextmanager
def broker(state: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    process = edgefed("--state", str(state), "broker", "up", "--json")
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()
        yield process, json.loads(line)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


def run(state: Path, *arguments: str) -> tuple[int, str, str]:
    return run_module("edgefed.cli.main", "--state", str(state), *arguments)


@pytest.mark.slow
def test_up_and_check_prove_every_rule_and_leave_nothing(state: Path) -> None:
    access = state / "trust" / "default" / "access"
    before = (access / "acl").read_text()
    with broker(state) as (process, told):
        code, out, err = run(state, "broker", "check", "--json")
        assert (code, err) == (0, "")
        report = json.loads(out)
        assert report["ok"]
        assert {rule["name"]: rule["outcome"] for rule in report["rules"]} == {
            rule.name: "holds" for rule in RULES
        }
        assert (access / "acl").read_text() == before
        found = {row["name"]: row for row in json.loads(run(state, "doctor", "--json")[1])}
        port = int(told["address"].rpartition(":")[2]) + 1
        assert found["enrolment"]["state"] == "good"
        assert f":{port} answers" in found["enrolment"]["text"]
        for words in ((), ("--port", str(free_ports()))):  # its folder is in use
            code, _, err = run(state, "broker", "up", *words)
            assert (code, "[state.locked]" in err) == (4, True)
        code, _, err = run(state, "broker", "up", "--folder", str(state / "other"))
        assert (code, "[broker.port_in_use]" in err) == (2, True)
        _check_finds_what_is_broken(state)
    assert process.returncode == 0
    assert until(lambda: is_gone(int(told["pid"])))
    assert until(lambda: is_gone(int(told["enrolment"]["pid"])))


def _check_finds_what_is_broken(state: Path) -> None:
    """Break a rule of the broker that runs, and take the authority to another machine."""
    acl = state / "trust" / "default" / "access" / "enrolment.acl"
    acl.write_text("topic write edgefed/default/enrol/#\n" + acl.read_text())
    shutil.move(state / "trust" / "default" / "authority", state / "elsewhere")
    said = [""]

    def found() -> bool:  # once the broker has read its files again
        code, said[0], _ = run(state, "broker", "check")
        return code == 8

    assert until(found), said
    assert "a client without a certificate reads other topics than its own" in said[0]
    assert "not tried" in said[0]


def test_what_is_for_fleets_without_an_authority_is_refused(state: Path) -> None:
    for words in (
        ("broker", "up", "--allow-anonymous"),
        ("broker", "up", "--kind", "embedded"),
        ("broker", "config", "--allow-anonymous"),
        ("up", "--headless"),
    ):
        code, out, err = run(state, *words)
        assert (code, out) == (2, ""), words
        assert "broker.secured" in err


def test_config_prints_the_configuration_and_the_rules(state: Path) -> None:
    code, out, _ = run(state, "broker", "config", "--files", "/etc/mosquitto/edgefed")
    assert code == 0
    assert "cafile /etc/mosquitto/edgefed/authority.pem" in out
    assert out.count("tls_version tlsv1.3") == 2
    folder = ("--files", "/etc/mosquitto/edgefed", "--enrolment")
    access = state / "trust" / "default" / "access"
    for path in access.glob("enrolment.*"):  # as an older version left the fleet
        path.unlink()
    code, out, _ = run(state, "broker", "config", *folder)
    assert code == 0
    assert len([*access.glob("enrolment.*")]) == 3
    assert "password_file /etc/mosquitto/edgefed/enrolment.passwords" in out
    code, out, _ = run(state, "broker", "config", "--acl", "--enrolment")
    assert (code, "user operator.admin" in out, "enrol/%c/request" in out) == (0, False, True)
    code, out, _ = run(state, "broker", "config", "--acl")
    assert code == 0
    assert "user operator.admin" in out


@pytest.mark.parametrize("built", [True, False])
def test_config_and_doctor_name_the_plug_in_or_say_that_it_is_missing(
    state: Path, built: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path("/opt/lib/_subscriptions.so") if built else None
    monkeypatch.setattr("broker.mosquitto.find_plugin", lambda: path)
    for words, line in (
        ((), f"plugin {path}"),
        (("--files", "/etc/mosquitto/edgefed"), "plugin /etc/mosquitto/edgefed/subscriptions.so"),
        (("--enrolment",), ""),
    ):
        told = in_this_process("broker", "config", *words, state=state)
        options = [each for each in told.out.splitlines() if each.startswith("plugin ")]
        assert options == ([line] if built and line else [])
        assert ("not built" in told.err) == (not built and line != "")
    rows = in_this_process("doctor", "--json", state=state).json
    (found,) = (each for each in rows if each["name"] == "mosquitto plug-in")
    assert found["state"] == ("good" if built else "warning")
    assert (found["text"] == str(path)) == built
    assert ("C compiler" in found["fix"]) == (not built)
