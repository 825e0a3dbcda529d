"""The broker with TLS of ``edgefed broker``, in a fleet with an authority."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from edgefed.terminal.console import columns, talk

if TYPE_CHECKING:
    from pathlib import Path

    from broker.rule_checks import RuleReport
    from broker.secured_files import SecuredFiles
    from edgefed.cli.common.context import Globals
    from edgefed.config.fleet.settings import Settings
    from edgefed.config.values.address import Address
    from edgefed.errors import UsageError

EVERYWHERE = "0.0.0.0"


def files_of(settings: Settings) -> SecuredFiles | None:
    """Return the files of the fleet's broker; None in a fleet without an authority on this machine.

    A broker setting without TLS selects a broker without it.
    """
    from broker.secured_files import secured_files
    from edgefed.config.fleet.broker_address import trust_folder
    from edgefed.config.values.address import parse_address

    if settings.broker is not None and not parse_address(settings.broker).tls:
        return None
    files = secured_files(trust_folder(settings))
    return files if files.exist else None


def listen_address(files: SecuredFiles, bind: str | None, port: int | None) -> Address:
    """Return where the broker listens: on all addresses, or on loopback if clients look there.

    Raises:
        UsageError: ``bind`` is not an address.
        NotAllowedError: the broker's credentials cannot be used.
    """
    from broker.address import bind_host, parse_bind
    from edgefed.config.fleet.broker_address import load
    from edgefed.config.values.address import parse_address

    own = parse_address(load(files.folder).broker)
    host, typed = parse_bind(bind) if bind else (None, None)
    host = host or (bind_host(own) if own.is_loopback else EVERYWHERE)
    return replace(own, host=host, port=typed or port or own.port)


def run(options: Globals, files: SecuredFiles, address: Address, folder: Path) -> None:
    """Run the broker until SIGTERM or Ctrl-C, and restart it when it ends by itself."""
    from broker.foreground import sigterm_as_event
    from broker.secured_broker import SecuredBrokers
    from broker.secured_files import write_enrolment_access

    def tell(line: str) -> None:
        talk(f"broker: {line}")

    with sigterm_as_event() as stop:
        write_enrolment_access(files.access.parent, options.settings().value.fleet)
        brokers = SecuredBrokers(address, folder, files, tell)
        fleet, enrolment = brokers.fleet.broker, brokers.enrolment.broker
        answer = {"address": str(address), "kind": "mosquitto", "pid": fleet.pid}
        own = {"address": str(enrolment.address), "pid": enrolment.pid}
        with_tls = f"{address}  mosquitto, with certificates"
        for_enrolment = f"{enrolment.address}  mosquitto, for enrolment"
        options.answer({**answer, "enrolment": own}, f"{with_tls}\n{for_enrolment}")
        brokers.run(stop)


def configuration_text(
    files: SecuredFiles, address: Address, plugin: Path | None, *, enrolment: bool
) -> str:
    """Return the configuration for a Mosquitto that the system runs."""
    from broker.secured_configuration import enrolment_configuration, secured_configuration

    bind = "" if address.host == EVERYWHERE else address.host
    if enrolment:
        return enrolment_configuration(address.port, files, bind=bind)
    return secured_configuration(address.port, files, bind=bind, plugin=plugin)


def no_enrolment(fleet: str) -> UsageError:
    """Return the error of a fleet without an authority, where enrolment is not possible."""
    from edgefed.errors import UsageError

    return UsageError(
        f"Fleet {fleet} has no authority on this machine, and so no broker for enrolment.",
        code="broker.secured",
        hint="leave --enrolment out, or create an authority: edgefed init",
    )


def refuse_plain_options(fleet: str, **options: bool) -> None:
    """Refuse options of a broker without certificates.

    Raises:
        UsageError: ``broker.secured``.
    """
    from edgefed.errors import UsageError

    for option, given in options.items():
        if given:
            raise UsageError(
                f"Fleet {fleet} has an authority: its broker admits holders of certificates only, "
                f"and --{option.replace('_', '-')} does not apply.",
                code="broker.secured",
                hint="leave the option out, or choose a fleet without an authority with --fleet",
            )


def refuse_secured(settings: Settings) -> None:
    """Refuse to run a fleet without credentials that has an authority.

    Raises:
        UsageError: ``broker.secured``.
    """
    from edgefed.errors import UsageError

    if files_of(settings) is not None:
        raise UsageError(
            f"Fleet {settings.fleet} has an authority, and this is a demo without credentials.",
            code="broker.secured",
            hint="start its parts: edgefed broker up, edgefed coordinator; or choose another fleet "
            "with --fleet",
        )


def refuse_without_tls(address: Address, settings: Settings) -> None:
    """Refuse a broker without TLS that other machines reach, unless requested.

    Raises:
        NotAllowedError: ``broker.insecure``.
    """
    from edgefed.errors import NotAllowedError

    if not address.is_loopback and not settings.insecure:
        raise NotAllowedError(
            f"Other machines can reach {address.host}, and connections would not be encrypted.",
            code="broker.insecure",
            hint="make an authority with edgefed init; in a network that you trust, --insecure",
        )


def rule_reports(settings: Settings, address: Address, timeout: float) -> list[RuleReport]:
    """Try the rules of the broker as the holder of the address's credentials.

    Raises:
        UnreachableError: there is no answer, or the broker does not read its rules again.
        NotAllowedError: credentials, or the fleet's authority, cannot be used.
        StorageError: the broker's files cannot be written.
    """
    from broker.probe_parties import probe_parties
    from broker.rule_checks import try_rules
    from broker.secured_check import SecuredCheck
    from edgefed.config.fleet.broker_address import trust_folder
    from edgefed.process.clock import SystemClock
    from edgefed.trust.authority import AUTHORITY_FOLDER

    assert address.credentials is not None
    own, now, trust = address.credentials, SystemClock().now(), trust_folder(settings)
    if not (trust / AUTHORITY_FOLDER).is_dir():
        return try_rules(SecuredCheck(address, own, None, timeout, now))
    with probe_parties(trust, address, now, timeout) as parties:
        return try_rules(SecuredCheck(address, own, parties, timeout, now))


def rules_as_json(reports: list[RuleReport]) -> list[dict[str, Any]]:
    """Return the reports as ``--json`` prints them."""
    return [asdict(report) for report in reports]


def rules_as_rows(reports: list[RuleReport]) -> str:
    """Return the reports as lines."""
    outcomes = {"holds": "ok", "broken": "FAILED", "not tried": "not tried"}
    rows = [
        (report.name, outcomes[report.outcome], report.observation or report.rule)
        for report in reports
    ]
    return columns(rows)
