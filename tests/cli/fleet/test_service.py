"""``service install``, ``status`` and ``uninstall`` of both programs, without systemd."""

from __future__ import annotations

import json
import pwd
from pathlib import Path

import pytest
from typer.testing import CliRunner

from device_agent.commands.cli import app as agent_app
from edgefed.process import installed_service
from tests.cli.commands import edgefed


@pytest.fixture(autouse=True)
def absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without systemd, and no units."""
    monkeypatch.setattr(installed_service, "BOOTED", tmp_path / "none")
    monkeypatch.setattr(installed_service, "SYSTEM_UNITS", tmp_path / "units")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("EDGEFED_NO_CONFIG", "1")
    monkeypatch.setattr("os.geteuid", lambda: 0)


def agent(*words: str) -> tuple[int, str, str]:
    told = CliRunner().invoke(agent_app, [*words])
    return told.exit_code, told.stdout, told.stderr


def test_a_dry_run_prints_the_unit_of_a_gateway(tmp_path: Path) -> None:
    told = edgefed(
        *("--fleet", "hall-2", "--state", tmp_path, "service", "install", "gateway", "--dry-run"),
        *("--json", "--cpu", "50%", "--", "--upstream-fleet", "plant", "--name", "hall-2"),
    )
    assert told.json["path"] == str(tmp_path / "units" / "edgefed-gateway-hall-2.service")
    lines = told.json["text"].splitlines()
    (start,) = (line for line in lines if line.startswith("ExecStart="))
    assert start.endswith("--fleet hall-2 gateway run --upstream-fleet plant --name hall-2")
    assert "After=network-online.target edgefed-broker-hall-2.service mosquitto.service" in lines
    assert {"CPUQuota=50%", f"ReadWritePaths={tmp_path}", "User=edgefed"} <= set(lines)
    assert "LogExtraFields=EDGEFED_SERVICE=gateway EDGEFED_FLEET=hall-2" in lines
    assert not (tmp_path / "units").exists()


def test_an_agents_unit_has_its_options_after_the_command() -> None:
    code, out, _ = agent(
        "service", "install", "--dry-run", "--data", "npz:x.npz", "--", "--threads=2"
    )
    (start,) = (line for line in out.splitlines() if line.startswith("ExecStart="))
    assert (code, start.rpartition(" run ")[2]) == (0, f"--data npz:{Path.cwd()}/x.npz --threads=2")
    assert "Environment=EDGEFED_STATE=%S/edgefed-agent HOME=%S/edgefed-agent" in out


def test_what_would_keep_a_service_from_starting_is_said_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install = ("--no-config", "--state", tmp_path, "service", "install", "coordinator")
    told = edgefed(*install)
    told.failed(4, "trust.missing", "There is no fleet default")
    gateway = (*install[:-1], "gateway", "--dry-run", "--", "--upstream-fleet", "plant")
    edgefed(*gateway).failed(2, "usage", "Missing option '--name'", "gateway run --help")
    edgefed(*gateway, "--nam", "x").failed(2, "usage", "No such option: --nam")
    broker = ("--broker", "mqtt://127.0.0.1:1883")
    edgefed(*broker, *install).failed(3, "service.no_systemd")
    monkeypatch.setattr(installed_service, "BOOTED", tmp_path)
    edgefed(*broker, *install, "--run-as", "no-such-user").failed(2, "service.user", "useradd")
    nobody = pwd.getpwuid(65534).pw_name
    monkeypatch.setattr("sys.executable", str(tmp_path / "bin" / "python"))
    (tmp_path / "bin").mkdir()
    tmp_path.chmod(0o700)
    edgefed(*broker, *install, "--run-as", nobody).failed(2, "service.user", "closed to others")


def test_a_password_and_a_wrong_limit_are_refused() -> None:
    install = ("service", "install", "coordinator", "--dry-run")
    login = edgefed("--broker", "mqtt://me:secret@192.0.2.7:1883", *install)
    login.failed(2, "service.password", "coordinator.env")
    assert "secret" not in login.err
    edgefed(*install, "--memory", "4G\nUser=root").failed(2, "usage", "--memory")
    edgefed(*install, "--cpu", "150").failed(2, "usage", "--cpu")


def test_an_agent_that_is_not_enrolled_or_has_no_data_is_not_installed(tmp_path: Path) -> None:
    install = ["--state", str(tmp_path), "service", "install", "--name", "cam-1"]
    code, _, err = agent(*install, "--data", "npz:/srv/x.npz")
    assert code == 4 and "[trust.missing]" in err
    code, _, err = agent("--broker", "mqtt://127.0.0.1:1", *install)
    assert code == 2 and "[data.unset]" in err


def test_services_that_are_not_installed(tmp_path: Path) -> None:
    told = edgefed("service", "status", "--json")
    assert (told.code, json.loads(told.out)) == (0, [])
    edgefed("service", "uninstall", "broker").failed(5, "service.unknown")
    (tmp_path / "units").mkdir()
    for name in ("edgefed-broker", "edgefed-broker-hall-2"):
        (tmp_path / "units" / f"{name}.service").touch()
    edgefed("service", "status").failed(3, "service.no_systemd")
    edgefed("--fleet", "hall-2", "service", "uninstall", "broker").failed(3, "service.no_systemd")
