"""Keys are replaced and certificates renewed while a fleet works: real broker, programs and TLS."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.probe import Probe
from edgefed.config.values.address import parse_address
from edgefed.errors import EdgeFedError
from edgefed.process.clock import SystemClock, timestamp
from edgefed.trust.certificates import Certificate, read_certificate
from edgefed.trust.credentials import Credentials, load_credentials
from edgefed.wire.topics import CLIENT_ID_PREFIX
from tests.broker.test_secured_fleet import write_data
from tests.enrolment.hub import Hub, running_hub
from tests.programs.forked_programs import ForkedProgram

pytestmark = [pytest.mark.mosquitto, pytest.mark.slow]

PATIENCE = 300.0
DEVICES = ("cam-1", "cam-2")
RECIPE = {
    "model": {"name": "mlp"},
    "data": {"name": "none"},
    "evaluation": {"every": 0},
}


def wait(until: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not until():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.1)


@contextmanager
def agents(hub: Hub, tmp_path: Path) -> Iterator[dict[str, ForkedProgram]]:
    """Run the agents of two enrolled devices, until both are connected."""
    started = {}
    try:
        for seed, name in enumerate(DEVICES):
            hub.enroll(name)
            data = write_data(tmp_path / f"{name}.npz", seed)
            started[name] = hub.fork_agent(name, data)[0]
        wait(lambda: len(hub.ask("snapshot")["snapshot"]["devices"]) == 2, "both devices")
        yield started
    finally:
        for process in started.values():
            process.kill()
            process.wait()


def presented(hub: Hub) -> Certificate:
    """Return the certificate that the broker shows to the holder of the operator's."""
    own = load_credentials(hub.trust / "operator.admin", SystemClock().now())
    plain = socket.create_connection(("localhost", hub.port), timeout=10)
    with own.tls_context().wrap_socket(plain, server_hostname="localhost") as connection:
        return read_certificate(connection.getpeercert(binary_form=True) or b"")


def connects(held: Credentials) -> bool:
    """Whether the broker lets the holder of these credentials in."""
    user, tls = held.certificate.user, held.tls_context()
    try:
        Probe(parse_address(held.broker), 5.0, CLIENT_ID_PREFIX + f"{user}-x", tls=tls).close()
    except EdgeFedError:
        return False
    return True


def copied(credentials: Credentials, to: Path) -> Credentials:
    """Return what a thief has: a copy of the folder."""
    to.mkdir(parents=True)
    for path in credentials.folder.iterdir():
        (to / path.name).write_bytes(path.read_bytes())
        (to / path.name).chmod(0o600)
    return load_credentials(to, SystemClock().now())


def run(hub: Hub, rounds: int) -> str:
    own = {"count": rounds, "min_devices": 2, "deadline": 3600}
    return str(hub.order("run.start", recipe={**RECIPE, "rounds": own})["run"])


def finished(hub: Hub, name: str) -> dict[str, Any]:
    with hub.coordinator() as client:
        wait(lambda: client.ask("run.show", run=name)["status"] == "finished", "the run")
        return dict(client.ask("run.show", run=name))


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """The machine of all tests whose certificates live long."""
    with running_hub(tmp_path_factory.mktemp("hub")) as made:
        yield made


def test_all_keys_are_replaced_in_mid_run(hub: Hub, tmp_path: Path) -> None:
    with agents(hub, tmp_path), hub.coordinator() as watching:
        undisturbed = finished(hub, run(hub, 8))["weights_digest"]
        held = [
            hub.trust / "coordinator",
            hub.trust / "operator.admin",
            *map(hub.credentials, DEVICES),
        ]
        stolen = [
            copied(load_credentials(each, SystemClock().now()), tmp_path / "thief" / each.name)
            for each in held
        ]
        shown = presented(hub)
        assert all(connects(each) for each in stolen[:2])
        started = run(hub, 8)
        wait(lambda: hub.ask("run.show", run=started)["round"] >= 3, "the third round")
        code, out, err = hub.edgefed("rotate-keys", "--all", "--yes", "--json")
        assert code == 0, err
        assert {each["user"]: each["outcome"] for each in json.loads(out)} == {
            "broker": "replaced",
            "cam-1": "asked",
            "cam-2": "asked",
            "coordinator": "replaced",
            "operator.admin": "replaced",
        }
        # A client that was open before goes on with the operator's new keys.
        assert watching.ask("run.show", run=started)["run"] == started
        wait(
            lambda: all(
                load_credentials(
                    hub.credentials(each.certificate.user), SystemClock().now()
                ).certificate.signing_key
                != each.certificate.signing_key
                for each in stolen[2:]
            ),
            "the devices' new keys",
        )
        assert finished(hub, started)["weights_digest"] == undisturbed
        assert presented(hub).signing_key != shown.signing_key
        wait(lambda: not any(connects(each) for each in stolen), "the old certificates' end")
        keys = {name: member["state"] for name, member in hub.members().items()}
        assert {name: keys[name] for name in DEVICES} == dict.fromkeys(DEVICES, "enrolled")
        # Both sides still understand each other after a restart.
        hub.kill_coordinator()
        hub.start_coordinator()
        wait(lambda: len(hub.ask("snapshot")["snapshot"]["devices"]) == 2, "both devices again")
        assert finished(hub, run(hub, 8))["weights_digest"] == undisturbed


def test_a_device_that_is_away_replaces_its_keys_when_it_comes_back(
    hub: Hub, tmp_path: Path
) -> None:
    hub.enroll("cam-7")
    folder = hub.credentials("cam-7")
    old = load_credentials(folder, SystemClock().now()).certificate
    code, out, err = hub.edgefed("rotate-keys", "cam-7")
    assert (code, "asked" in out, "when it comes back" in err) == (0, True, True)
    hub.kill_coordinator()
    hub.start_coordinator()
    process, _ = hub.fork_agent("cam-7", write_data(tmp_path / "data.npz", 1))
    try:
        wait(
            lambda: load_credentials(folder, SystemClock().now()).certificate != old,
            "the new certificate",
        )
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("words", "code", "word"),
    [
        ((), 2, "usage.users"),
        (("coordinator", "--all"), 2, "usage.users"),
        (("--all",), 2, "usage.confirm"),
        (("cam-9",), 5, "enrol.unknown"),
    ],
)
def test_whose_keys_is_to_be_said(hub: Hub, words: tuple[str, ...], code: int, word: str) -> None:
    told, _, err = hub.edgefed("rotate-keys", *words)
    assert (told, word in err) == (code, True), err


def test_certificates_renew_themselves_in_a_fleet_that_works(tmp_path: Path) -> None:
    """Certificates live for 30 seconds, and all programs go on for longer than that."""
    with running_hub(tmp_path, days=30 / 86_400) as hub, agents(hub, tmp_path) as running:
        first = hub.members()
        last = max(member["expires"] for member in first.values())
        undisturbed = finished(hub, run(hub, 2))["weights_digest"]

        def renewed() -> bool:
            assert finished(hub, run(hub, 2))["weights_digest"] == undisturbed
            time.sleep(4.0)
            now = hub.members()
            return all(now[name]["expires"] > first[name]["expires"] for name in first)

        wait(renewed, "the next certificates")
        wait(lambda: timestamp(SystemClock().now()) > last, "the end of the first ones")
        assert finished(hub, run(hub, 2))["weights_digest"] == undisturbed
        assert all(process.poll() is None for process in running.values())
        assert {"broker", "coordinator", "admin", "cam-1", "cam-2"} <= first.keys()
        assert hub.members()["cam-1"]["fingerprint"] != first["cam-1"]["fingerprint"]
