"""``edgefed device``: the devices of the fleet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from statistics import fmean
from typing import Annotated, Any

import typer

from edgefed.cli.common.cells import STANDING_COLOURS, ago, device_state
from edgefed.cli.common.context import globals_of
from edgefed.cli.common.help import examples
from edgefed.cli.common.options import DeviceId
from edgefed.cli.fleet import device_diagnostics, membership
from edgefed.terminal.command_line import CommandLine
from edgefed.terminal.console import Coloured, columns
from edgefed.terminal.units import counted, duration, size, used_of

MAX_LABELS_WIDTH = 40
"""Characters that the names of a device's labels may take in a list."""

_TIMES = ("seen_at", "state_since", "refused_at", "trust_since")
_BYTES = ("sent", "received", "shared_bytes")
_UNITS = {"joules": "J", "cpu": "%", "gpu": "%", "temperature": "°C", "power": "W", "battery": "%"}

app = CommandLine(help="Show, admit and remove the devices of the fleet.")


@app.command(
    "list", epilog=examples("edgefed device list", "edgefed device list --json"), json=True
)
def list_(context: typer.Context) -> None:
    """List devices: id, state, time since last seen, samples, labels held, hardware.

    If devices share averaged data, the list also shows the number of averages from each device
    (MEANS) and the fewest samples in one of them (GROUP).
    """
    options = globals_of(context)
    with options.connected() as coordinator:
        answer = coordinator.ask("snapshot")
    devices = answer["snapshot"]["devices"]
    options.answer(
        devices,
        lambda shown: columns(_rows(shown, answer["time"])),
        empty="No device yet. Start one: edgefed-agent run --data npz:FILE",
    )


app.command("ls", hidden=True, json=True)(list_)


@app.command(
    epilog=examples("edgefed device show jetson-07", "edgefed device show jetson-07 --json"),
    json=True,
)
def show(context: typer.Context, device: DeviceId) -> None:
    """Show everything known about one device."""
    options = globals_of(context)
    with options.connected() as coordinator:
        answer = coordinator.ask("snapshot")
    fields = _find(answer["snapshot"]["devices"], device)
    total = fields.get("memory_total")  # part of the text of ``memory``
    rows = [
        (name, _text(name, value, answer["time"], total))
        for name, value in fields.items()
        if name != "memory_total"
    ]
    options.answer(fields, columns([row for row in rows if row[1]]))


@app.command(
    epilog=examples("edgefed device forget jetson-07", "edgefed device forget --all-lost --json"),
    json=True,
)
def forget(
    context: typer.Context,
    device: DeviceId = "",
    *,
    all_lost: Annotated[bool, typer.Option("--all-lost", help="Forget every lost device.")] = False,
) -> None:
    """Forget a lost device until its agent connects again.

    A device that is online cannot be forgotten.
    """
    from edgefed.errors import UsageError

    options = globals_of(context)
    if bool(device) == all_lost:
        raise UsageError(
            "Name one device, or --all-lost.", hint="edgefed device list shows which are lost"
        )
    with options.connected() as coordinator:
        answer = coordinator.order("device.forget", device=device)
    options.done(answer, f"forgotten: {', '.join(answer['forgotten']) or 'no device is lost'}")


@app.command(epilog=examples("edgefed device pause jetson-07 --reason 'new fan'"), json=True)
def pause(
    context: typer.Context,
    device: DeviceId,
    *,
    reason: Annotated[
        str, typer.Option("--reason", help="Shown with the device; up to 200 characters.")
    ] = "",
) -> None:
    """Stop asking a device until it is resumed; it stays connected, and its trust is unchanged.

    It finishes its current task. The pause outlasts runs and restarts.
    """
    _order(context, "device.pause", device=device, reason=reason)


@app.command(epilog=examples("edgefed device resume jetson-07"), json=True)
def resume(context: typer.Context, device: DeviceId) -> None:
    """Let a paused device take part again."""
    _order(context, "device.resume", device=device)


@app.command(epilog=examples("edgefed device quarantine jetson-07"), json=True)
def quarantine(context: typer.Context, device: DeviceId) -> None:
    """Stop asking a device until it is released, and refuse its further replies."""
    _order(context, "device.quarantine", device=device)


@app.command(epilog=examples("edgefed device release jetson-07"), json=True)
def release(context: typer.Context, device: DeviceId) -> None:
    """Let a device take part again that is quarantined or announces far more samples than others.

    After a quarantine it stays suspect for a while.
    """
    _order(context, "device.release", device=device)


def _order(context: typer.Context, action: str, **arguments: Any) -> None:
    """Give an order about one device and print its effect."""
    options = globals_of(context)
    with options.connected() as coordinator:
        answer = coordinator.order(action, **arguments)
    options.done(answer, "; ".join(f"{done}: {name}" for done, name in answer.items()))


device_diagnostics.add_commands(app)
membership.add_device_commands(app)


def _find(devices: list[dict[str, Any]], name: str) -> dict[str, Any]:
    from difflib import get_close_matches

    from edgefed.errors import UnknownNameError

    by_name = {device["device"]: device for device in devices}
    if name not in by_name:
        near = get_close_matches(name, by_name, n=1)
        meant = f"; did you mean '{near[0]}'?" if near else "."
        raise UnknownNameError(
            f"No device {name}{meant}", code="device.unknown", hint="edgefed device list"
        )
    return by_name[name]


_Cell = Callable[[dict[str, Any]], str]


def _rows(devices: list[dict[str, Any]], now: str) -> list[tuple[str, ...]]:
    """Return the table with its head; columns of trust and sharing only if they have values."""
    untrusted = any(device["standing"] != "trusted" for device in devices)
    sharing = any(device["shared_entries"] for device in devices)
    sited = any(device.get("site") for device in devices)

    def reason(device: dict[str, Any]) -> str:
        return _reason(device, now)

    shown: list[tuple[str, _Cell]] = [
        ("DEVICE", lambda device: str(device["device"])),
        ("STATE", lambda device: device_state(device["state"])),
        *([("REASON", reason)] if any(map(reason, devices)) else []),
        *([("TRUST", _trust)] if untrusted else []),
        ("SEEN", lambda device: ago(device["seen_at"], now)),
        ("SAMPLES", lambda device: str(device["samples"])),
        ("LABELS", _labels),
        *([("SITE", lambda device: str(device["site"]))] if sited else []),
        *([("MEANS", _shared("entries")), ("GROUP", _shared("group"))] if sharing else []),
        ("HARDWARE", lambda device: str(device["hardware"] or device["accelerator"])),
    ]
    head = tuple(name for name, _ in shown)
    return [head, *(tuple(cell(device) for _, cell in shown) for device in devices)]


def _trust(device: dict[str, Any]) -> str:
    """Return a device's trust score, or that it is quarantined."""
    standing = device["standing"]
    shown = "quarantined" if standing == "quarantined" else f"{device['trust']:.2f}"
    return Coloured(shown, STANDING_COLOURS[standing]) if standing in STANDING_COLOURS else shown


def _reason(device: dict[str, Any], now: str) -> str:
    """Return why a device is lost, silent, paused or not asked; empty for any other."""
    from edgefed.events.base.coordinator_states import REFUSED_DATA, why_excluded, why_paused
    from edgefed.events.base.snapshot import DeviceSnapshot
    from edgefed.events.state.awaited_devices import silent_for
    from edgefed.process.clock import moment_of

    view = DeviceSnapshot.model_validate(device)
    if view.state == "silent":
        return silent_for(view, moment_of(now))
    if view.state == "lost" or view.reason.startswith(REFUSED_DATA):
        return view.reason
    if view.state == "paused":
        return why_paused(view)
    return view.trust_reason if view.state == "quarantined" else why_excluded(view)


def _shared(what: str) -> _Cell:
    def cell(device: dict[str, Any]) -> str:
        return str(device[f"shared_{what}"]) if device["shared_entries"] else ""

    return cell


def _labels(device: dict[str, Any]) -> str:
    """Return the labels that a device holds, by name where they have names; many only counted."""
    named = dict(enumerate(device["class_names"]))
    held = [named.get(label) or str(label) for label, count in enumerate(device["labels"]) if count]
    text = ",".join(held)
    if len(held) <= 8 and len(text) <= MAX_LABELS_WIDTH:
        return text
    return counted(len(held), "label")


def _rounds(rounds: list[dict[str, Any]]) -> str:
    """Return how often each outcome came in the last rounds, and the mean time of a reply."""
    counts = Counter(row["outcome"] for row in rounds)
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
    seconds = [row["seconds"] for row in rounds if row["outcome"] == "accepted"]
    return f"{outcomes}, {duration(fmean(seconds))} each" if seconds else outcomes


_IN_WORDS: dict[str, Callable[[Any], str]] = {
    "rounds": _rounds,
    "state": device_state,
    "fraction": "{:.0%}".format,
}


def _text(name: str, value: Any, now: str, memory_total: int | None) -> str:
    """Return a field of a device for people."""
    if value is None:
        return ""
    if name in _IN_WORDS:
        return _IN_WORDS[name](value)
    if name in _TIMES:
        return ago(value, now) if value else ""
    if name == "memory":
        return used_of(value, memory_total)
    if name in _BYTES:
        return size(value)
    if name in _UNITS:
        return f"{value:.4g} {_UNITS[name]}"
    if isinstance(value, list):
        return " ".join(str(item) for item in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)
