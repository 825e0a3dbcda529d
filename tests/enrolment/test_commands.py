"""Enrolment by the real commands, over a real Mosquitto with TLS."""

from __future__ import annotations

import base64
import gc
import json
import stat
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from cryptography import x509

from broker.address import free_port
from broker.mosquitto import MosquittoBroker
from edgefed.control.enrolment_client import enroll
from edgefed.errors import EdgeFedError
from edgefed.process.clock import SystemClock
from edgefed.trust.credentials import load_credentials
from edgefed.trust.succession import succession_of
from edgefed.trust.tokens import Token, parse_token
from tests.enrolment.hub import FLEET, Hub, running_hub
from tests.processes import outcome
from tests.programs.forked_programs import run_module
from tests.transport.listening import wait_until

pytestmark = [pytest.mark.mosquitto, pytest.mark.slow]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with running_hub(tmp_path_factory.mktemp("fleet")) as made:
        yield made


class Shifted(SystemClock):
    """A machine whose wall clock is wrong."""

    def __init__(self, moment: datetime) -> None:
        self._off = moment - super().now()

    def now(self) -> datetime:
        return super().now() + self._off


def nothing_enrolled(hub: Hub, machine: str) -> bool:
    return not list((hub.device(machine) / "trust").glob("*/*/certificate.pem"))


def test_a_device_enrols_with_a_token_and_the_same_command_changes_nothing(hub: Hub) -> None:
    code, out, _ = hub.edgefed("device", "invite", "cam-1", "--quiet")
    assert code == 0
    token = out.strip()
    code, out, err = hub.agent("cam-1", "--json", "enroll", token)
    assert (code, err) == (0, "")
    told = json.loads(out)
    broker = f"mqtts://localhost:{hub.port}"
    assert (told["name"], told["fleet"], told["broker"]) == ("cam-1", FLEET, broker)
    folder = hub.credentials("cam-1")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert hub.agent("cam-1", "--json", "enroll", token.upper())[:2] == (0, out)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    for key in ("key.pem", "encryption.pem"):
        assert stat.S_IMODE((folder / key).stat().st_mode) == 0o600
    assert hub.members()["cam-1"]["fingerprint"] == told["key"]
    # The private keys exist on the device only.
    secret = base64.b64decode(b"".join(before["key.pem"].split(b"\n")[1:-2]))[-32:]
    leaked = [path for path in hub.state.rglob("*") if path.is_file()]
    assert not any(secret in path.read_bytes() for path in leaked)
    left = [p for p in hub.device("cam-1").rglob("*.pem") if p.parent != folder]
    assert left == []


def refusal(hub: Hub, machine: str, token: Token | str, name: str = "") -> EdgeFedError:
    """Return why a machine gets nothing."""
    with pytest.raises(EdgeFedError) as caught:
        enroll(hub.applicant(machine, token, name), SystemClock(), print)
    assert nothing_enrolled(hub, machine)
    return caught.value


def test_a_device_that_names_itself_is_approved_by_the_key_that_both_sides_show(hub: Hub) -> None:
    token = hub.invite()
    waiting = hub.start_agent("cam-3", "enroll", token, "--name", "cam-3")
    try:
        wait_until(lambda: hub.members().get("cam-3", {}).get("state") == "pending", "cam-3")
        shown = hub.members()["cam-3"]["fingerprint"]
        assert hub.edgefed("device", "approve", "cam-3")[0] == 0
    finally:
        code, out, err = outcome(waiting)
    assert code == 0
    assert f"with the key {shown}" in err
    assert shown in out
    assert refusal(hub, "cam-x", hub.invite(), "cam-3").code == "enrol.name"


def test_wrong_tokens(hub: Hub) -> None:
    token = hub.invite("cam-5")
    other = "a" if token[40] != "a" else "b"
    code, _, err = hub.agent("cam-5", "enroll", token[:40] + other + token[41:])
    assert (code, "[enrol.token]" in err, err.count("\n")) == (2, True, 2)
    parsed = parse_token(token)
    guessed = refusal(hub, "cam-5", replace(parsed, secret=bytes(16)))
    assert (guessed.code, guessed.exit_code) == ("enrol.unknown_token", 4)
    wrong = refusal(hub, "cam-5", replace(parsed, authority_key=bytes(32)))
    assert (wrong.code, wrong.exit_code) == ("enrol.wrong_authority", 4)
    nobody = refusal(hub, "cam-5", replace(parsed, port=free_port()))
    assert (nobody.code, nobody.exit_code) == ("enrol.unreachable", 3)
    assert "Connection refused" in nobody.message
    for_members = refusal(hub, "cam-5", replace(parsed, port=hub.port))
    assert for_members.code == "enrol.unreachable"
    assert "closed the connection" in for_members.message
    assert refusal(hub, "cam-5", token, "cam-6").code == "enrol.name"
    assert hub.members()["cam-5"]["state"] == "invited"
    enroll(hub.applicant("cam-5", token), SystemClock(), print)  # nothing has used it up


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_address_without_tls(hub: Hub, mosquitto: MosquittoBroker) -> None:
    token = replace(parse_token(hub.invite("cam-6")), port=mosquitto.address.port)
    told = refusal(hub, "cam-6", token)
    assert told.code == "enrol.unreachable"
    assert "TLS" in told.message or "closed" in told.message
    gc.collect()  # paho leaves the socket of a failed handshake to the collector


@pytest.mark.parametrize(
    ("moment", "code", "says"),
    [
        (datetime(1970, 1, 1, tzinfo=timezone.utc), "trust.clock", "clock says 1970-01-01"),
        (datetime(2050, 1, 1, tzinfo=timezone.utc), "trust.expired", "clock says 2050-01-01"),
    ],
)
def test_a_device_whose_clock_is_wrong_sends_nothing(
    hub: Hub, moment: datetime, code: str, says: str
) -> None:
    name = f"year-{moment.year}"
    applicant = hub.applicant(name, hub.invite(name))
    with pytest.raises(EdgeFedError, match=says) as caught:
        enroll(applicant, Shifted(moment), print)
    assert caught.value.code == code
    assert hub.members()[name]["state"] == "invited"
    assert nothing_enrolled(hub, name)
    soon = SystemClock().now() + timedelta(minutes=50)
    assert enroll(applicant, Shifted(soon), print).certificate.name == name


def test_leaving_asks_only_who_is_enrolled_and_needs_a_yes(hub: Hub) -> None:
    code, _, err = hub.agent("cam-14", "leave", "--name", "cam-14", "--fleet", FLEET)
    assert (code, "trust.missing" in err, "Delete" in err) == (4, True, False)
    hub.enroll("cam-14")
    code, _, err = hub.agent("cam-14", "leave")
    assert (code, "usage.confirm" in err) == (2, True)
    assert (hub.credentials("cam-14") / "key.pem").exists()


def test_a_device_that_enrols_again_signs_its_next_key_until_it_leaves(hub: Hub) -> None:
    hub.enroll("cam-15")
    before = load_credentials(hub.credentials("cam-15"), SystemClock().now()).certificate
    assert hub.edgefed("device", "remove", "cam-15", "--yes")[0] == 0
    hub.enroll("cam-15")
    after = load_credentials(hub.credentials("cam-15"), SystemClock().now()).certificate
    made = succession_of(hub.credentials("cam-15"), after.public_bytes)
    assert made.keys == (before.public_bytes, after.public_bytes)
    assert made.leads(before.public_bytes, after.public_bytes)
    assert hub.agent("cam-15", "leave", "--yes")[0] == 0
    assert not list(hub.credentials("cam-15").parent.glob(".cam-15*"))


def test_leaving_revokes_the_certificate_and_deletes_the_credentials(hub: Hub) -> None:
    hub.enroll("cam-9")
    old = load_credentials(hub.credentials("cam-9"), SystemClock().now())
    code, _, err = hub.agent("cam-9", "leave", "--yes")
    assert (code, "its certificate is revoked" in err) == (0, True)
    assert not hub.credentials("cam-9").exists()
    assert hub.members()["cam-9"]["state"] == "revoked"
    pem = (hub.trust / "access" / "revoked.pem").read_bytes()
    assert old.certificate.serial in revoked(pem)
    assert "user cam-9" not in (hub.trust / "access" / "acl").read_text()
    code, _, err = hub.agent("cam-9", "leave", "--yes", "--name", "cam-9", "--fleet", FLEET)
    assert (code, "[trust.missing]" in err) == (4, True)


def revoked(pem: bytes) -> set[int]:
    return {each.serial_number for each in x509.load_pem_x509_crl(pem)}


def test_an_operator_on_another_machine_orders_and_a_viewer_only_looks(hub: Hub) -> None:
    def use(machine: str, *words: str) -> tuple[int, str, str]:
        own = ("--state", str(hub.device(machine)), "--fleet", FLEET)
        return run_module("edgefed.cli.main", *own, *words)

    code, out, _ = hub.edgefed("operator", "invite", "maria")
    assert code == 0
    assert use("maria", "operator", "enroll", out.strip())[0] == 0
    viewer = hub.invite("hall-2", "viewer")
    enroll(replace(hub.applicant("hall-2", viewer), roles=("viewer",)), SystemClock(), print)
    assert use("maria", "device", "invite", "cam-10")[0] == 0
    assert use("hall-2", "device", "enrolled")[0] == 0
    code, _, err = use("hall-2", "device", "remove", "cam-10", "--yes")
    assert code == 4, err
    told = {row["name"]: row["role"] for row in json.loads(hub.edgefed(*LIST)[1])}
    assert told == {"admin": "operator", "maria": "operator", "hall-2": "viewer"}
    assert hub.edgefed("operator", "remove", "maria", "--yes")[0] == 0
    code, _, err = use("maria", "device", "invite", "cam-11")
    assert code in (3, 4), err
    assert "cam-11" not in hub.members()


LIST = ("operator", "list", "--json")


def test_the_qr_code_is_on_stderr_and_the_token_alone_on_stdout(hub: Hub) -> None:
    code, out, err = hub.edgefed("device", "invite", "cam-12", "--qr")
    assert code == 0
    assert parse_token(out).name == "cam-12"
    assert len([line for line in err.splitlines() if "█" in line or "▀" in line]) > 15
    assert out.strip() not in err
