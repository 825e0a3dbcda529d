"""``edgefed device``: the devices of the fleet."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from edgefed.cli.context import globals_of
from edgefed.cli.help import examples
from edgefed.cli.options import Json
from edgefed.command_line import CommandLine
from edgefed.console import columns, data, json_out, reported, talk

app = CommandLine(help="Show the devices of the fleet.")


@app.command("list", epilog=examples("edgefed device list", "edgefed device list --json"))
def list_(context: typer.Context, as_json: Json = False) -> None:
    """List devices: id, state, when last seen (UTC), samples, labels held, hardware.

    Once devices share averaged data, also how many averages each gave (MEANS), and the fewest
    samples behind one (GROUP).
    """
    options = globals_of(context)
    as_json = as_json or options.json
    with reported(as_json):
        from edgefed.cli.connection import connected

        with connected(options) as coordinator:
            devices = coordinator.ask("snapshot")["snapshot"]["devices"]
        if as_json:
            json_out(devices)
        elif not devices:
            talk("No device yet. Start one: edgefed-agent run --data npz:FILE")
        else:
            data(columns(_rows(devices)))


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
            devices = coordinator.ask("snapshot")["snapshot"]["devices"]
        found = _find(devices, device)
        if as_json:
            json_out(found)
        else:
            rows = [(name, _text(value)) for name, value in found.items()]
            data(columns([row for row in rows if row[1]]))


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


def _rows(devices: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return the table with its head; what is shared only where somebody shares."""
    head = ("DEVICE", "STATE", "SEEN", "SAMPLES", "LABELS")
    if not any(device["shared_entries"] for device in devices):
        return [(*head, "HARDWARE"), *((*_row(each), _hardware(each)) for each in devices)]
    rows = [(*_row(each), *_shared(each), _hardware(each)) for each in devices]
    return [(*head, "MEANS", "GROUP", "HARDWARE"), *rows]


def _shared(device: dict[str, Any]) -> tuple[str, str]:
    given = device["shared_entries"]
    return (str(given), str(device["shared_group"])) if given else ("", "")


def _hardware(device: dict[str, Any]) -> str:
    return str(device["hardware"] or device["accelerator"])


def _row(device: dict[str, Any]) -> tuple[str, ...]:
    held = [str(label) for label, count in enumerate(device["labels"]) if count]
    labels = ",".join(held) if len(held) <= 8 else f"{len(held)} labels"
    seen = device["seen_at"][11:19]
    return device["device"], device["state"], seen, str(device["samples"]), labels


def _text(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(str(each) for each in value)
    return "" if value is None else str(value)
