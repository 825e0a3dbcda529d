"""A gateway from its invitation to its removal, with the real programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.mosquitto import MosquittoBroker
from edgefed.transport.link import Link
from edgefed.wire.messages import Birth, Progress
from edgefed.wire.topics import Topics
from tests.enrolment.hub import FLEET, Hub, running_hub
from tests.processes import clean_environment
from tests.programs.forked_programs import ForkedProgram, run_module
from tests.transport.listening import PATIENCE, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

SITE = Topics("hall-2")
SESSION = "a" * 16


def device(site: Link, name: str, samples: int) -> None:
    """Let a device appear at the site."""
    birth = Birth(session=SESSION, status="online", samples=samples)
    site.send(SITE.birth(name), birth, retain=True)
    site.send(SITE.progress(name), Progress(session=SESSION, state="idle"))


def shown(hub: Hub) -> dict[str, object]:
    """Return the only gateway, as its list has it."""
    (row,) = json.loads(hub.edgefed("gateway", "list", "--json")[1])
    return dict(row)


def test_a_gateway_is_invited_with_limits_and_removed(
    mosquitto: MosquittoBroker, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    machine = ("--state", str(tmp_path / "machine"), "--fleet", "hall-2")

    def edgefed(*words: str) -> tuple[int, str, str]:
        return run_module("edgefed.cli.main", *machine, *words)

    with running_hub(tmp_path) as hub:
        invite = ("gateway", "invite", "gw-2", "--devices", "2", "--samples", "100")
        _, out, said = hub.edgefed(*invite)
        assert said.startswith("for gateway gw-2, with 2 devices and 100 samples at most; once")
        token = out.strip()
        code, _, said = run_module(
            "device_agent.commands.cli", "--state", str(tmp_path / "other"), "enroll", token
        )
        assert code == 4 and "edgefed gateway enroll" in said
        code, out, said = edgefed("gateway", "enroll", token)
        assert (code, out) == (0, f"gateway gw-2 of fleet {FLEET}\n")
        step = f"gateway run --upstream-fleet {FLEET} --name gw-2"
        assert f"edgefed --fleet hall-2 --state {tmp_path / 'machine'} {step}\n" in said

        code, _, said = edgefed("gateway", "run", "--upstream-fleet", "hall-2", "--name", "gw-2")
        assert code == 2 and "gateway.fleet" in said
        code, _, said = edgefed(
            "gateway", "run", "--upstream-fleet", "other", "--name", "gw-2",
            "--upstream", f"mqtts://127.0.0.1:{hub.port}",
        )  # fmt: skip
        assert code == 4 and "trust.missing" in said

        assert shown(hub)["state"] == "enrolled"
        code, _, said = edgefed("gateway", "run", "--upstream-fleet", FLEET, "--name", "gw-9")
        assert code == 4 and "no credentials of gateway gw-9" in said
        (log := tmp_path / "gateway.log").touch()
        broker = ("--broker", str(mosquitto.address))
        run = ("gateway", "run", "--upstream-fleet", FLEET, "--name", "gw-2")
        gateway = ForkedProgram(
            ["edgefed.cli.main", *machine, *broker, *run], clean_environment(), log
        )
        request.addfinalizer(gateway.kill)
        site = Link(mosquitto.address, "devices", lambda arrival: None)
        site.start_now(PATIENCE)

        for name, samples in (("cam-1", 40), ("cam-2", 61), ("cam-3", 60)):
            wait_until(lambda: log.read_text().count(" INFO connected to ") == 2, "the gateway")
            device(site, name, samples)
            wait_until(lambda: f"device {name} joined" in log.read_text(), name)  # noqa: B023
        wait_until(lambda: shown(hub)["devices"] == 2, "two devices")
        assert shown(hub) == {
            "name": "gw-2", "site": "hall-2", "state": "online",
            "devices": 2, "online": 2, "samples": 100, "most_devices": 2, "most_samples": 100,
        }  # fmt: skip
        code, _, said = edgefed(*broker, *run)
        assert code == 4 and "is in use by a gateway, process" in said
        assert "2 of 2   2       100 of 100" in hub.edgefed("gateway", "list")[1]
        assert "cam-2 was refused: its gateway was invited with 100 samples at most" in hub.said()
        device(site, "cam-4", 1)
        refused = "cam-4 was refused: its gateway was invited with 2 devices at most"
        wait_until(lambda: refused in hub.said(), "the refusal of a third device")

        assert "it speaks for" not in hub.said()

        (tmp_path / "own.toml").write_text("""[data]\nname = "digits"\n""")
        code, _, said = edgefed(*broker, "run", "start", str(tmp_path / "own.toml"))
        assert (code, "run.gateway" in said) == (4, True)
        assert hub.edgefed("run", "start", str(tmp_path / "own.toml"))[0] == 0
        wait_until(lambda: "r-0001" in edgefed(*broker, "status")[1], "the run upstream")
        code, _, said = edgefed(*broker, "run", "pause")
        assert (code, "is at the coordinator" in said) == (4, True)
        assert hub.edgefed("run", "abort", "--yes")[0] == 0
        assert hub.members()["gw-2"]["role"] == "gateway"
        for words, reason in (
            (("device", "remove", "gw-2"), "gw-2 is a gateway, not a device"),
            (("gateway", "remove", "cam-9"), "edgefed gateway list"),
            (("device", "remove", "cam-1"), "edgefed --fleet SITE device remove cam-1"),
            (("device", "invite", "gw-2"), "edgefed gateway remove gw-2"),
            (("device", "invite", "cam-1"), "Device cam-1 is at the site of gateway gw-2"),
        ):
            code, _, said = hub.edgefed(*words, *(["--yes"] if words[1] == "remove" else []))
            assert code in (4, 5) and reason in said
        assert hub.edgefed("gateway", "remove", "gw-2", "--yes")[0] == 0
        assert gateway.wait(PATIENCE) == 4
        assert "was removed from fleet" in log.read_text()
        wait_until(lambda: shown(hub)["state"] == "revoked", "the end of its site")
        assert hub.ask("snapshot")["snapshot"]["devices"] == []
        _, events, _ = hub.edgefed("events")
        for order in ("gateway invite gw-2", "device remove cam-1", "gateway remove gw-2"):
            assert f"ordered {order}" in events
        site.stop()
