"""``edgefed doctor``: check whether the coordinator's machine meets all requirements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from edgefed.cli.common.context import Globals, globals_of
from edgefed.cli.common.help import examples
from edgefed.terminal.console import checks

if TYPE_CHECKING:
    from edgefed.config.values.address import Address
    from edgefed.terminal.diagnostics import Diagnosis

EPILOG = examples("edgefed doctor", "edgefed --broker mqtt://192.0.2.7:1883 doctor --json")


def doctor(context: typer.Context) -> None:
    """Check Python, torch, kernels, plug-ins, settings, brokers, coordinator and disk."""
    from edgefed.terminal import diagnostics

    options = globals_of(context)
    findings = find(options)
    options.answer(diagnostics.as_json(findings), checks(diagnostics.as_rows(findings)))
    problem = diagnostics.verdict(findings)
    if problem is not None:
        raise problem


def find(options: Globals) -> list[Diagnosis]:
    """Return the findings on this machine; a bad one is not raised as an error."""
    from broker.mosquitto import find_mosquitto
    from edgefed.algorithms.composed.installed_plugins import installed_plugins
    from edgefed.terminal import diagnostics

    findings = [
        diagnostics.python(),
        diagnostics.torch_and_accelerator(),
        diagnostics.kernels(),
        *diagnostics.plug_ins(installed_plugins()),
    ]
    settings = diagnostics.look_at("settings", lambda: _address(options))
    findings.append(settings)
    program = find_mosquitto()
    findings.append(
        diagnostics.Diagnosis("mosquitto", "good", str(program))
        if program
        else diagnostics.Diagnosis(
            "mosquitto", "warning", "not installed here", "apt install mosquitto, for real fleets"
        )
    )
    if program:
        findings.append(_plugin())
    if settings.state == "good":
        findings.append(diagnostics.disk(options.settings().value.state))
        findings.append(diagnostics.look_at("broker", lambda: _broker(options)))
        if findings[-1].state == "good":
            findings.append(diagnostics.look_at("coordinator", lambda: _coordinator(options)))
        if findings[-1].state == "good":
            findings.append(_inbox(options))
        address = _broker_address(options)
        if address.tls:
            findings.append(diagnostics.look_at("enrolment", lambda: _enrolment(address)))
    return findings


def _plugin() -> Diagnosis:
    """Look at Mosquitto's plug-in, which limits subscriptions in a fleet with an authority."""
    from broker.mosquitto import PLUGIN_HINT, find_plugin
    from broker.secured_broker import UNLIMITED
    from edgefed.terminal.diagnostics import Diagnosis

    plugin = find_plugin()
    if plugin is None:
        return Diagnosis("mosquitto plug-in", "warning", f"not built; {UNLIMITED}", PLUGIN_HINT)
    return Diagnosis("mosquitto plug-in", "good", str(plugin))


def _broker_address(options: Globals) -> Address:
    from edgefed.config.fleet.broker_address import broker_address

    return broker_address(options.settings().value)


def _address(options: Globals) -> str:
    return str(_broker_address(options))


def _enrolment(address: Address) -> str:
    """Look whether the broker for enrolment answers, as a device without a certificate would."""
    import secrets
    from contextlib import closing

    from broker.probe import Probe
    from edgefed.wire.topics import CLIENT_ID_PREFIX

    own, name = address.credentials, CLIENT_ID_PREFIX + secrets.token_hex(16)
    at = address.for_enrolment()
    with closing(Probe(at, 5.0, name, tls=own.tls_context() if own else None)):
        return f"{at} answers"


def _broker(options: Globals) -> str:

    with options.connected():
        return f"{_address(options)} answers"


def _coordinator(options: Globals) -> str:

    with options.connected() as coordinator:
        coordinator.wait_until_online()
        return f"fleet {options.settings().value.fleet} has one"


def _inbox(options: Globals) -> Diagnosis:
    """Look whether the coordinator keeps up with its devices' messages."""
    from edgefed.cli.fleet.status import refused_in_words
    from edgefed.errors import EdgeFedError
    from edgefed.terminal.diagnostics import Diagnosis

    try:
        with options.connected() as coordinator:
            inbox = coordinator.ask("snapshot")["inbox"]
    except EdgeFedError as error:
        return Diagnosis("inbox", "bad", error.message, error.hint)
    dropped, refused = inbox["dropped"], inbox["refused"]
    if refused:
        return Diagnosis(
            "inbox",
            "warning",
            f"senders over their limits; {refused_in_words(refused)}",
            "look at these senders; on a broker with an access list, take away their rights",
        )
    if not dropped:
        return Diagnosis("inbox", "good", "the coordinator dropped no message")
    text = f"messages that the coordinator dropped because they came too fast: {dropped}"
    return Diagnosis("inbox", "warning", text, "run it on a faster machine, or with fewer devices")
