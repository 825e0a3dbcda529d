"""Without a broker or a coordinator, every command says so at once and ends with 3."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.address import LOOPBACK, free_port
from broker.mosquitto import MosquittoBroker
from tests.cli.commands import edgefed

ASKING = [
    ["status"],
    ["device", "list"],
    ["device", "show", "d"],
    ["run", "list"],
    ["run", "show"],
    ["run", "watch"],
    ["run", "start"],
    ["run", "pause"],
    ["run", "resume", "r-1"],
    ["run", "step"],
    ["run", "finish"],
    ["run", "abort", "--yes"],
]


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
def test_no_broker(words: list[str]) -> None:
    url = f"mqtt://{LOOPBACK}:{free_port()}"
    told = edgefed("--broker", url, *words)
    told.failed(3, "broker.unreachable", f"No MQTT broker at {url}: Connection refused.", "  try: ")
    as_json = edgefed("--broker", url, "--json", *words)
    assert (as_json.code, as_json.out) == (3, "")
    assert json.loads(as_json.err)["error"]["code"] == "broker.unreachable"


def test_a_coordinator_without_a_broker_ends_at_once(tmp_path: Path) -> None:
    url = f"mqtt://{LOOPBACK}:{free_port()}"
    told = edgefed("--broker", url, "coordinator", state=tmp_path)
    told.failed(3, "broker.unreachable", url)


@pytest.mark.mosquitto
def test_no_coordinator(mosquitto: MosquittoBroker) -> None:
    told = edgefed("--broker", str(mosquitto.address), "--fleet", "plant", "status")
    told.failed(
        3, "coordinator.unreachable", "Fleet plant has no coordinator", "gateway run", "--fleet"
    )


def test_a_wrong_address_is_wrong_usage() -> None:
    edgefed("--broker", "localhost", "status").failed(2, "recipe.value", "mqtt://HOST:PORT")
    edgefed("--fleet", "A B", "status").failed(2, "recipe.value", "--fleet")


def test_the_dashboard_needs_a_terminal() -> None:
    edgefed("ui").failed(2, "ui.terminal", "edgefed status")


def test_without_a_broker_the_dashboard_names_what_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgefed.cli.common.terminal.require_terminal", lambda text: None)
    told = edgefed("--broker", f"mqtt://{LOOPBACK}:{free_port()}", "ui")
    told.failed(3, "broker.unreachable", "edgefed ui --replay latest")


def test_aborting_without_a_terminal_wants_yes() -> None:
    edgefed("run", "abort", "r-1").failed(2, "usage.confirm", "--yes")


def test_a_broker_of_no_known_kind_is_wrong_usage() -> None:
    edgefed("demo", "--broker-kind", "rabbit").failed(2, "usage", "'rabbit'", "embedded")


def test_doctor_tells_what_is_missing(tmp_path: Path) -> None:
    url = f"mqtt://{LOOPBACK}:{free_port()}"
    told = edgefed("--broker", url, "doctor", "--json", state=tmp_path)
    states = {each["name"]: each["state"] for each in told.json}
    assert told.code == 8
    assert states["broker"] == "bad"
    assert "coordinator" not in states
    assert states["python"] == states["settings"] == "good"
