"""The check of a secured broker: every rule holds on ours, and each is found broken alone."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import pytest

from broker.address import free_ports
from broker.child_process import NO_LIMITS, ChildProcess, ProcessLimits
from broker.rule_checks import RULES, RuleReport, try_rules
from broker.secured_broker import ENROLMENT_PROCESS
from broker.secured_check import SecuredCheck
from edgefed.errors import NotAllowedError, UnreachableError
from edgefed.trust.credentials import Credentials
from tests.broker.tls_fleet import Change, TlsFleet, build_plugin, make_fleet, mosquitto

ALL = {rule.name for rule in RULES}


@dataclass
class Parties:
    """Probes that the test's fleet issues and withdraws."""

    fleet: TlsFleet
    broker: ChildProcess
    deaf: bool = False

    def __post_init__(self) -> None:
        named = self.fleet.parties
        self.devices: tuple[Credentials, Credentials] = (named["check-1"], named["check-2"])
        self.viewer: Credentials = named["viewer.check"]

    def withdraw(self) -> None:
        self.fleet.remove("check-1")
        if not self.deaf:
            os.kill(self.broker.pid, signal.SIGHUP)


def tried(
    tmp_path: Path,
    change: Change = str,
    rules: Change = str,
    *,
    enrolment: Change = str,
    limits: ProcessLimits = ENROLMENT_PROCESS,
    deaf: bool = False,
    alone: bool = False,
    plugin: tuple[str, str] | None = ("", ""),
    timeout: float = 2.0,
) -> dict[str, RuleReport]:
    """Check brokers whose configurations and access rules were changed."""
    fleet = make_fleet(
        tmp_path,
        free_ports(),
        [("device", "check-1"), ("device", "check-2"), ("viewer", "check"), ("operator", "al")],
    )
    fleet.files.acl.write_text(rules(fleet.files.acl.read_text()))
    built = None if plugin is None else build_plugin(tmp_path, *plugin)
    with mosquitto(fleet, tmp_path / "brokers", change, enrolment, limits, built) as child:
        parties = None if alone else Parties(fleet, child, deaf)
        own = fleet.parties["operator.al"]
        check = SecuredCheck(fleet.address, own, parties, timeout, datetime.now(timezone.utc))
        return {report.name: report for report in try_rules(check)}


def outcomes(found: dict[str, RuleReport], outcome: str) -> set[str]:
    return {name for name, report in found.items() if report.outcome == outcome}


@pytest.mark.mosquitto
def test_every_rule_holds_on_the_generated_configuration(tmp_path: Path) -> None:
    found = tried(tmp_path)
    assert outcomes(found, "holds") == ALL, found


@pytest.mark.mosquitto
def test_without_the_authority_some_rules_are_not_tried(tmp_path: Path) -> None:
    found = tried(tmp_path, alone=True)
    assert outcomes(found, "not tried") == {rule.name for rule in RULES if rule.needs_parties}
    assert outcomes(found, "broken") == set()
    assert "another machine" in found["device-write"].told


@pytest.mark.mosquitto
@pytest.mark.parametrize(
    ("plugin", "told"),
    [
        (None, "a device may subscribe to #, and freeze the broker"),
        (("PRICE = 32", "PRICE = 0"), "a device may subscribe to its own topics without end"),
        (("NULL || !begins(own, user)", "NULL"), "a device may subscribe to edgefed/lab/down/"),
    ],
    ids=["none", "unlimited", "others"],
)
def test_a_broker_without_the_plug_in_is_found(
    plugin: tuple[str, str] | None, told: str, tmp_path: Path
) -> None:
    found = tried(tmp_path, plugin=plugin)
    assert outcomes(found, "broken") == {"subscriptions"}
    assert told in found["subscriptions"].told


def without(*options: str) -> Change:
    def change(text: str) -> str:
        lines = text.splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith(options))

    return change


def replacing(old: str, new: str) -> Change:
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    return change


def anybody(text: str) -> str:
    """Let clients without certificates in; without users, only the connection itself works."""
    text = replacing("require_certificate true", "require_certificate false")(text)
    text = replacing("allow_anonymous false", "allow_anonymous true")(text)
    return without("use_identity_as_username", "use_username_as_clientid")(text)


@pytest.mark.slow
@pytest.mark.mosquitto
@pytest.mark.parametrize(
    ("broken", "change"),
    [
        ({"tls-version"}, without("tls_version")),
        ({"certificate", "authority"}, anybody),
        ({"packet-size"}, without("max_packet_size")),
        ({"take-over"}, without("clientid_prefixes")),
        ({"one-connection"}, without("use_username_as_clientid")),
        ({"device-write", "device-read", "viewer"}, without("acl_file", "plugin")),
    ],
    ids=lambda value: "-".join(sorted(value)) if isinstance(value, set) else "",
)
def test_a_missing_option_is_found(broken: set[str], change: Change, tmp_path: Path) -> None:
    assert outcomes(tried(tmp_path, change), "broken") >= broken


@pytest.mark.slow
@pytest.mark.mosquitto
@pytest.mark.parametrize(
    ("broken", "change"),
    [
        ("user", without("password_file")),
        ("packet-size", replacing("max_packet_size 16384", "max_packet_size 262144")),
        ("enrolment", without("acl_file")),
        ("retained", without("retain_available")),
        ("tls-version", without("tls_version")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_missing_option_of_enrolment_is_found(
    broken: str, change: Change, tmp_path: Path
) -> None:
    assert outcomes(tried(tmp_path, enrolment=change), "broken") == {broken}


@pytest.mark.slow
@pytest.mark.mosquitto
def test_connections_to_enrolment_without_a_limit_are_found(tmp_path: Path) -> None:
    """Where Mosquitto counts wrongly, as where it does not count."""
    found = tried(tmp_path, enrolment=without("max_connections"), limits=NO_LIMITS)
    assert outcomes(found, "broken") == {"connections"}
    assert "admits 72 connections" in found["connections"].told
    assert "LimitNOFILE=64" in found["connections"].told


@pytest.mark.slow
@pytest.mark.mosquitto
def test_the_system_limits_connections_that_mosquitto_does_not(tmp_path: Path) -> None:
    found = tried(tmp_path, enrolment=without("max_connections"))
    assert outcomes(found, "holds") == ALL


@pytest.mark.slow
@pytest.mark.mosquitto
@pytest.mark.parametrize(
    ("broken", "rules"),
    [
        (
            "device-write",
            replacing("write edgefed/lab/up/check-1/birth", "write edgefed/lab/up/+/birth"),
        ),
        (
            "device-write",
            replacing("user check-1\n", "user check-1\ntopic write edgefed/lab/all/#\n"),
        ),
        ("device-read", replacing("user check-1\n", "user check-1\ntopic read edgefed/lab/up/#\n")),
        (
            "viewer",
            replacing("user viewer.check\n", "user viewer.check\ntopic edgefed/lab/down/#\n"),
        ),
        (
            "viewer-read",
            replacing("user viewer.check\n", "user viewer.check\ntopic read edgefed/lab/up/#\n"),
        ),
        (
            "viewer-read",
            replacing("user viewer.check\n", "user viewer.check\ntopic read edgefed/lab/check/#\n"),
        ),
    ],
)
def test_a_wider_rule_is_found(broken: str, rules: Change, tmp_path: Path) -> None:
    assert outcomes(tried(tmp_path, rules=rules), "broken") == {broken}


@pytest.mark.slow
@pytest.mark.mosquitto
@pytest.mark.parametrize("rule", ["read edgefed/lab/enrol/#", "write edgefed/lab/enrol/#"])
def test_a_wider_rule_of_enrolment_is_found(rule: str, tmp_path: Path) -> None:
    def widen(text: str) -> str:
        (path,) = (line.split()[1] for line in text.splitlines() if line.startswith("acl_file"))
        Path(path).write_text(f"topic {rule}\n" + Path(path).read_text())
        return text

    assert outcomes(tried(tmp_path, enrolment=widen), "broken") == {"enrolment"}


@pytest.mark.mosquitto
def test_a_broker_that_does_not_read_its_files_again_is_found(tmp_path: Path) -> None:
    assert outcomes(tried(tmp_path, deaf=True), "broken") == {"revocation"}


def test_a_broker_that_is_not_there_is_no_broken_rule(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path, free_ports(), [("operator", "al")])
    own = fleet.parties["operator.al"]
    with pytest.raises((UnreachableError, NotAllowedError)):
        try_rules(SecuredCheck(fleet.address, own, None, 2.0, datetime.now(timezone.utc)))
