"""The parts of a report that show devices, bytes and events."""

from __future__ import annotations

from edgefed.charts.bars import Bar, bar_chart
from edgefed.charts.heat import heat_map
from edgefed.charts.lines import LineChart, Series, line_chart
from edgefed.events.label_skew import in_order
from edgefed.events.summary import DeviceSummary, RunSummary
from edgefed.report.html import scroll, section, table, tiles
from edgefed.report.run_data import RunData
from edgefed.units import short_time, size

MAX_ROWS = 300
"""Devices that a chart has a row for."""


def labels(summary: RunSummary) -> str:
    """Return who holds which labels."""
    names = summary.run.class_names if summary.run else ()
    rows = [
        (device.device, in_order(device.labels, device.class_names, names))
        for device in summary.devices
        if device.labels
    ]
    if not rows:
        return section("Labels per device", note="No device told its labels.")
    chart = heat_map(rows[:MAX_ROWS], title="training samples by device and label", axis="label")
    note = "Training samples that each device holds of each label." + _cut(len(rows))
    if names:
        note += f" Labels: {', '.join(f'{number} {name}' for number, name in enumerate(names))}."
    return section("Labels per device", scroll(chart), note=note)


def traffic(run_data: RunData) -> str:
    """Return the bytes of each round."""
    chart = LineChart(
        "bytes per round",
        [
            Series("to devices", [(row["round"], row.get("sent")) for row in run_data.rounds]),
            Series(
                "from devices", [(row["round"], row.get("received")) for row in run_data.rounds]
            ),
        ],
        bounds=(0.0,),
        shown=size,
        base=1024,
        height=220,
    )
    note = "Payload of all devices together."
    return section("Bytes per round", line_chart(chart), note=note)


def answers(summary: RunSummary) -> str:
    """Return what each device sent, and how long it took."""
    busy = [device for device in summary.devices if device.accepted]
    if not busy:
        return section("Devices", note="No answer was merged.")
    sent = [Bar(device.device, device.sent) for device in busy[:MAX_ROWS]]
    taken = [_time(device) for device in busy[:MAX_ROWS]]
    return section(
        "Bytes per device",
        scroll(bar_chart(sent, size, title="bytes of merged answers by device")),
        note="What each device's merged answers weighed." + _cut(len(busy)),
    ) + section(
        "Time per device",
        scroll(bar_chart(taken, _duration, title="time to answer by device", colour=5)),
        note="From question to answer: mean, and the range from fastest to slowest."
        " In a simulation, a device's own work, without waiting for its turn.",
    )


def device_table(summary: RunSummary) -> str:
    """Return the devices as a table."""
    counts = ("samples", "merged", "not merged", "late", "lost", "last loss")
    head: tuple[str, ...] = ("device", *counts, "hardware")
    rows = [_device_row(device) for device in summary.devices[:MAX_ROWS]]
    if not any(row[-1] for row in rows):
        head, rows = head[:-1], [row[:-1] for row in rows]
    if any(device.excluded for device in summary.devices):
        head = (*head, "excluded because")
        pairs = zip(rows, summary.devices, strict=False)
        rows = [(*row, device.excluded) for row, device in pairs]
    note = _cut(len(summary.devices) + summary.more_devices).strip()
    return section("Devices", scroll(table(head, rows, range(1, 7))), note=note)


def averages(summary: RunSummary) -> str:
    """Return what averaged data each device shared; nothing where none did."""
    sharers = [device for device in summary.devices if device.shared_entries]
    if not sharers:
        return ""
    totals = tiles(
        [
            ("devices that share", str(len(sharers))),
            ("entries", str(sum(device.shared_entries for device in sharers))),
            ("fewest samples behind one", str(min(device.shared_group for device in sharers))),
            ("bytes", size(sum(device.shared_bytes for device in sharers))),
        ]
    )
    rows = [
        (
            device.device,
            str(device.shared_entries),
            str(device.shared_group),
            size(device.shared_bytes),
        )
        for device in sharers[:MAX_ROWS]
    ]
    head = ("device", "entries", "fewest samples behind one", "bytes")
    note = "Averages of samples that devices gave, for all to train with." + _cut(len(sharers))
    return section("Averaged data", totals, scroll(table(head, rows, range(1, 4))), note=note)


def events(summary: RunSummary) -> str:
    """Return the notable events: what was not merged, who was lost, warnings."""
    counted = tiles(
        [
            ("answers merged", str(sum(device.accepted for device in summary.devices))),
            ("not merged", str(sum(device.rejected for device in summary.devices))),
            ("too late", str(sum(device.late for device in summary.devices))),
            ("devices lost", str(sum(device.lost for device in summary.devices))),
        ]
    )
    rows = [(line.time.replace("T", " "), f"{line.mark} {line.text}") for line in summary.lines]
    gap = f"{size(summary.left_out)} in the middle of the log were not read. "
    note = (gap if summary.left_out else "") + "Newest first."
    return section("Events", counted, scroll(table(("time (UTC)", "event"), rows)), note=note)


def round_table(run_data: RunData) -> str:
    """Return the rounds as a table."""
    names = tuple(dict.fromkeys(key for row in run_data.rounds for key in row))
    rows = [[_cell(name, row.get(name)) for name in names] for row in run_data.rounds]
    head = [name.replace("_", " ") for name in names]
    return scroll(table(head, rows, range(len(names))))


def _cell(name: str, value: object) -> str:
    if value is None:
        return ""
    if name in ("sent", "received") and isinstance(value, (int, float)):
        return size(value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _time(device: DeviceSummary) -> Bar:
    mean = device.seconds / device.accepted
    return Bar(device.device, mean, device.fastest, device.slowest)


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if 1 <= seconds < 10 else short_time(seconds)


def _device_row(device: DeviceSummary) -> tuple[str, ...]:
    loss = "" if device.loss is None else f"{device.loss:.4g}"
    counts = (device.samples, device.accepted, device.rejected, device.late, device.lost)
    hardware = device.accelerator or device.hardware
    return (device.device, *map(str, counts), loss, hardware)


def _cut(count: int) -> str:
    return f" The first {MAX_ROWS} of {count} are shown." if count > MAX_ROWS else ""
