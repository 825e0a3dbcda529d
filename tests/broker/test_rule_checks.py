"""The check of a secured broker finds each broken rule, whatever else is broken.

That every rule holds on the broker of ``edgefed broker up`` is in ``test_secured_cli.py``.
"""

from __future__ import annotations

import functools
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


def in_turn(*changes: Change) -> Change:
    return lambda text: functools.reduce(lambda made, change: change(made), changes, text)


@pytest.mark.slow
@pytest.mark.mosquitto
@pytest.mark.parametrize(
    ("change", "enrolment", "broken"),
    [
        (
            without("tls_version", "max_packet_size", "use_username_as_clientid"),
            without("password_file", "retain_available"),
            {"tls-version", "packet-size", "one-connection", "user", "retained"},
        ),
        (
            without("clientid_prefixes", "acl_file", "plugin"),
            in_turn(
                replacing("max_packet_size 16384", "max_packet_size 262144"),
                without("tls_version", "acl_file"),
            ),
            {"take-over", "device-write", "device-read", "viewer", "viewer-read", "subscriptions"}
            | {"tls-version", "packet-size", "enrolment", "revocation"},
        ),
    ],
    ids=["one", "other"],
)
def test_each_of_several_missing_options_is_found(
    change: Change, enrolment: Change, broken: set[str], tmp_path: Path
) -> None:
    assert outcomes(tried(tmp_path, change, enrolment=enrolment), "broken") == broken


@pytest.mark.slow
@pytest.mark.mosquitto
def test_certificates_and_connections_without_a_limit_are_found(tmp_path: Path) -> None:
    """Where Mosquitto counts connections wrongly, as where it does not count."""
    unlimited = without("max_connections")
    found = tried(tmp_path, anybody, enrolment=unlimited, limits=NO_LIMITS, alone=True)
    assert outcomes(found, "broken") >= {"certificate", "authority", "connections"}
    assert "admits 72 connections" in found["connections"].observation
    assert "LimitNOFILE=64" in found["connections"].observation
    assert outcomes(found, "not tried") == {rule.name for rule in RULES if rule.needs_parties}
    assert "another machine" in found["device-write"].observation


@pytest.mark.slow
@pytest.mark.mosquitto
def test_the_system_limits_connections_that_mosquitto_does_not(tmp_path: Path) -> None:
    found = tried(tmp_path, enrolment=without("max_connections"))
    assert outcomes(found, "holds") == {rule.name for rule in RULES}


def adding(rule: str, user: str = "") -> Change:
    """Add an access rule, for one user or for all; a configuration's are in its file."""
    if user:
        return replacing(f"user {user}\n", f"user {user}\ntopic {rule}\n")

    def widen(text: str) -> str:
        (path,) = (line.split()[1] for line in text.splitlines() if line.startswith("acl_file"))
        Path(path).write_text(f"topic {rule}\n" + Path(path).read_text())
        return text

    return widen


@pytest.mark.slow
@pytest.mark.mosquitto
@pytest.mark.parametrize(
    ("rules", "enrolment", "plugin", "told", "broken"),
    [
        (
            in_turn(
                replacing("write edgefed/lab/up/check-1/birth", "write edgefed/lab/up/+/birth"),
                adding("read edgefed/lab/up/#", "check-1"),
                adding("edgefed/lab/down/#", "viewer.check"),
                adding("read edgefed/lab/up/#", "viewer.check"),
            ),
            adding("read edgefed/lab/enrol/#"),
            None,
            "a device may subscribe to #, and freeze the broker",
            {"device-write", "device-read", "viewer", "viewer-read", "enrolment", "subscriptions"},
        ),
        (
            in_turn(
                adding("write edgefed/lab/all/#", "check-1"),
                adding("read edgefed/lab/check/#", "viewer.check"),
            ),
            adding("write edgefed/lab/enrol/#"),
            ("NULL || !begins(own, user)", "NULL"),
            "a device may subscribe to edgefed/lab/down/",
            {"device-write", "viewer-read", "enrolment", "subscriptions"},
        ),
    ],
    ids=["without plug-in", "plug-in for others' topics"],
)
def test_each_of_several_wider_rules_is_found(
    rules: Change,
    enrolment: Change,
    plugin: tuple[str, str] | None,
    told: str,
    broken: set[str],
    tmp_path: Path,
) -> None:
    found = tried(tmp_path, rules=rules, enrolment=enrolment, plugin=plugin)
    assert outcomes(found, "broken") == broken
    assert told in found["subscriptions"].observation


@pytest.mark.mosquitto
def test_endless_subscriptions_and_a_broker_that_keeps_its_old_files_are_found(
    tmp_path: Path,
) -> None:
    found = tried(tmp_path, plugin=("PRICE = 32", "PRICE = 0"), deaf=True)
    assert outcomes(found, "broken") == {"subscriptions", "revocation"}
    endless = "a device may subscribe to its own topics without end"
    assert endless in found["subscriptions"].observation


def test_a_broker_that_is_not_there_is_no_broken_rule(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path, free_ports(), [("operator", "al")])
    own = fleet.parties["operator.al"]
    with pytest.raises((UnreachableError, NotAllowedError)):
        try_rules(SecuredCheck(fleet.address, own, None, 2.0, datetime.now(timezone.utc)))
