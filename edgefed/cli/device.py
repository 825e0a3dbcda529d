"""``edgefed device``: the devices of the fleet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from statistics import fmean
from typing import Annotated, Any

import typer

from edgefed.cli.ages import ago
from edgefed.cli.context import globals_of
from edgefed.cli.device_membership import add_commands
from edgefed.cli.help import examples
from edgefed.cli.options import Json
from edgefed.command_line import CommandLine
from edgefed.console import columns, data, json_out, reported, talk
from edgefed.units import counted, size

MAX_LABELS_WIDTH = 40
"""Characters that the names of a device's labels may take in a list."""

_TIMES = ("seen_at", "state_since", "refused_at", "trust_since")
_BYTES = ("sent", "received", "memory", "shared_bytes")

app = CommandLine(help="Show, admit and remove the devices of the fleet.")
add_commands(app)


@app.command("list", epilog=examples("edgefed device list", "edgefed device list --json"))
def list_(context: typer.Context, as_json: Json = False) -> None:
    """List devices: id, state, time since last seen, samples, labels held, hardware.

    If devices share averaged data, the list also shows the number of averages from each device
    (MEANS) and the fewest samples in one of them (GROUP).
    """
    options = globals_of(context)
    as_json = as_json or options.json
    with reported(as_json):
        from edgefed.cli.connection import connected

        with connected(options) as coordinator:
            answer = coordinator.ask("snapshot")
        devices = answer["snapshot"]["devices"]
        if as_json:
            json_out(devices)
        elif not devices:
            talk("No device yet. Start one: edgefed-agent run --data npz:FILE")
        else:
            data(columns(_rows(devices, answer["time"])))


app.command("ls", hidden=True)(list_)


@app.command(
    epilog=examples("edgefed device show jetson-07", "edgefed device show jetson-07 --json")
)
def show(
    context: typer.Context,
    device: Annotated[str, typer.Argument(help="Device id.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Show everything known about one device."""
    options = globals_of(context)
    as_json = as_json or options.json
    with reported(as_json):
        from edgefed.cli.connection import connected

        with connected(options) as coordinator:
            answer = coordinator.ask("snapshot")
        found = _find(answer["snapshot"]["devices"], device)
        if as_json:
            json_out(found)
        else:
            rows = [(name, _text(name, value, answer["time"])) for name, value in found.items()]
            data(columns([row for row in rows if row[1]]))


@app.command(
    epilog=examples("edgefed device forget jetson-07", "edgefed device forget --all-lost --json")
)
def forget(
    context: typer.Context,
    device: Annotated[str, typer.Argument(help="Device id.", show_default=False)] = "",
    *,
    all_lost: Annotated[bool, typer.Option("--all-lost", help="Forget every lost device.")] = False,
    as_json: Json = False,
) -> None:
    """Forget a lost device until its agent connects again.

    A device that is online cannot be forgotten.
    """
    options = globals_of(context)
    as_json = as_json or options.json
    with reported(as_json):
        from edgefed.cli.connection import connected
        from edgefed.errors import UsageError

        if bool(device) == all_lost:
            raise UsageError(
                "Name one device, or --all-lost.", hint="edgefed device list shows which are lost"
            )
        with connected(options) as coordinator:
            told = coordinator.order("device.forget", device=device)
        if as_json:
            json_out(told)
        elif not options.quiet:
            talk(f"forgotten: {', '.join(told['forgotten']) or 'no device is lost'}")


@app.command(epilog=examples("edgefed device quarantine jetson-07"))
def quarantine(
    context: typer.Context,
    device: Annotated[str, typer.Argument(help="Device id.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Ask a device no more until it is released, and refuse what it still replies."""
    _order(context, "device.quarantine", device, as_json)


@app.command(epilog=examples("edgefed device release jetson-07"))
def release(
    context: typer.Context,
    device: Annotated[str, typer.Argument(help="Device id.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Let a quarantined device take part again; it stays suspect for a while."""
    _order(context, "device.release", device, as_json)


def _order(context: typer.Context, action: str, device: str, as_json: bool) -> None:
    """Give an order about one device and say what it did."""
    options = globals_of(context)
    as_json = as_json or options.json
    with reported(as_json):
        from edgefed.cli.connection import connected

        with connected(options) as coordinator:
            told = coordinator.order(action, device=device)
        if as_json:
            json_out(told)
        elif not options.quiet:
            talk("; ".join(f"{done}: {name}" for done, name in told.items()))


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
    """Return the table with its head; trust and what is shared only where there is some to show."""
    untrusted = any(device["standing"] != "trusted" for device in devices)
    sharing = any(device["shared_entries"] for device in devices)
    shown: list[tuple[str, _Cell]] = [
        ("DEVICE", lambda device: str(device["device"])),
        ("STATE", lambda device: str(device["state"])),
        *([("TRUST", _trust)] if untrusted else []),
        ("SEEN", lambda device: ago(device["seen_at"], now)),
        ("SAMPLES", lambda device: str(device["samples"])),
        ("LABELS", _labels),
        *([("MEANS", _shared("entries")), ("GROUP", _shared("group"))] if sharing else []),
        ("HARDWARE", lambda device: str(device["hardware"] or device["accelerator"])),
    ]
    head = tuple(name for name, _ in shown)
    return [head, *(tuple(cell(device) for _, cell in shown) for device in devices)]


def _trust(device: dict[str, Any]) -> str:
    """Return a device's trust score, or that it is quarantined."""
    standing = device["standing"]
    return "quarantined" if standing == "quarantined" else f"{device['trust']:.2f}"


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
    counts = Counter(each["outcome"] for each in rounds)
    told = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
    seconds = [each["seconds"] for each in rounds if each["outcome"] == "accepted"]
    return f"{told}, {fmean(seconds):.1f} s each" if seconds else told


def _text(name: str, value: Any, now: str) -> str:
    if name in _TIMES:
        return ago(value, now) if value else ""
    if name == "rounds":
        return _rounds(value)
    if name in _BYTES and value is not None:
        return size(value)
    if isinstance(value, list):
        return " ".join(str(each) for each in value)
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)
