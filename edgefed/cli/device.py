"""``edgefed device``: the devices of the fleet."""

from __future__ import annotations

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


def _rows(devices: list[dict[str, Any]], now: str) -> list[tuple[str, ...]]:
    """Return the table with its head; what is shared only where somebody shares."""
    head = ("DEVICE", "STATE", "SEEN", "SAMPLES", "LABELS")
    if not any(device["shared_entries"] for device in devices):
        return [(*head, "HARDWARE"), *((*_row(each, now), _hardware(each)) for each in devices)]
    rows = [(*_row(each, now), *_shared(each), _hardware(each)) for each in devices]
    return [(*head, "MEANS", "GROUP", "HARDWARE"), *rows]


def _shared(device: dict[str, Any]) -> tuple[str, str]:
    given = device["shared_entries"]
    return (str(given), str(device["shared_group"])) if given else ("", "")


def _hardware(device: dict[str, Any]) -> str:
    return str(device["hardware"] or device["accelerator"])


def _row(device: dict[str, Any], now: str) -> tuple[str, ...]:
    seen = ago(device["seen_at"], now)
    return device["device"], device["state"], seen, str(device["samples"]), _labels(device)


def _labels(device: dict[str, Any]) -> str:
    """Return the labels that a device holds, by name where they have names; many only counted."""
    named = dict(enumerate(device["class_names"]))
    held = [named.get(label) or str(label) for label, count in enumerate(device["labels"]) if count]
    text = ",".join(held)
    if len(held) <= 8 and len(text) <= MAX_LABELS_WIDTH:
        return text
    return counted(len(held), "label")


def _text(name: str, value: Any, now: str) -> str:
    if name == "seen_at":
        return ago(value, now)
    if name in _BYTES and value is not None:
        return size(value)
    if isinstance(value, list):
        return " ".join(str(each) for each in value)
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)
