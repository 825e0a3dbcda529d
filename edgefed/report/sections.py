"""The values and charts of a report's sections about classes, devices, bytes and events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edgefed.charts.grids import LEAST_SHARE, MANY, matrix_chart
from edgefed.charts.lines import LineChart, Series, line_chart
from edgefed.charts.rows import Bar, bar_chart, heat_map
from edgefed.evaluation.classification import averages as averages_of
from edgefed.events.base.class_names import name_of
from edgefed.events.base.class_table import confusion_json, whose
from edgefed.events.base.confusion_events import confusion_of
from edgefed.events.base.evaluation_views import ConfusionView
from edgefed.events.history.summary import DeviceSummary, RunSummary
from edgefed.events.methods.label_skew import in_order
from edgefed.report.run_data import RunData
from edgefed.terminal.units import counted, duration, size

MAX_ROWS = 300
"""Devices that a chart has a row for."""

SCORES = ("recall", "precision", "f1")

UNFOLDED = 30
"""Classes of which the table is shown at once."""

CLASS_HEAD = (
    *("class", "samples", "predicted", "recall", "precision", "F1"),
    *("most mistaken for", "samples"),
)

TITLES = {
    "coordinator": "Classes, tested on the coordinator",
    "devices": "Classes, tested on the devices",
}


def classes(run_data: RunData) -> Iterator[Mapping[str, Any]]:
    """Yield the confusion matrix and the scores of each class, for each place that counted them."""
    names = run_data.record.get("class_names") or ()
    for view in run_data.summary.confusions:
        yield _classes(view, names)


def _classes(view: ConfusionView, names: Sequence[str]) -> Mapping[str, Any]:
    confusion, fields = confusion_of(view), confusion_json(view, names)
    number = counted(confusion.classes, "class", "classes")
    matrix = ""
    if fields["matrix"] is not None:
        called = [name_of(label, names) for label in range(confusion.classes)]
        matrix = matrix_chart(fields["matrix"], called, title=f"confusion matrix of {number}")
    few = f" Cells below {LEAST_SHARE:.1%} of their class are not drawn."
    rows = [_class_row(row) for row in fields["classes"]]
    summary = f"{counted(len(rows), 'class', 'classes')}, lowest F1 first"
    return {
        "title": TITLES[view.place],
        "note": f"{whose(fields).capitalize()}.{few if len(view.counts) > MANY else ''}",
        "scores": [
            (name.replace("_", " "), f"{value:.4f}")
            for name, value in averages_of(confusion).items()
        ],
        "matrix": matrix,
        "head": CLASS_HEAD,
        "rows": rows,
        "folded": summary if len(rows) > UNFOLDED else "",
    }


def _class_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    scores = ("" if row[name] is None else f"{row[name]:.3f}" for name in SCORES)
    counts = (str(row["samples"]), str(row["predicted"]))
    return (row["name"], *counts, *scores, row["mistaken_for"] or "", str(row["mistaken"] or ""))


def labels(summary: RunSummary) -> Mapping[str, str]:
    """Return the labels of each device."""
    names = summary.run.class_names if summary.run else ()
    rows = [
        (device.device, in_order(device.labels, device.class_names, names))
        for device in summary.devices
        if device.labels
    ]
    if not rows:
        return {"note": "No device told its labels.", "chart": ""}
    chart = heat_map(rows[:MAX_ROWS], title="training samples by device and label", axis="label")
    note = "Training samples that each device holds of each label." + _cut(len(rows))
    if names:
        note += f" Labels: {', '.join(f'{number} {name}' for number, name in enumerate(names))}."
    return {"note": note, "chart": chart}


def traffic(rounds: Sequence[Mapping[str, Any]]) -> str:
    """Return a chart of the bytes of each round."""
    series = [
        Series("to devices", [(row["round"], row.get("sent")) for row in rounds]),
        Series("from devices", [(row["round"], row.get("received")) for row in rounds]),
    ]
    chart = LineChart("bytes per round", series, bounds=(0.0,), shown=size, base=1024, height=220)
    return line_chart(chart)


def answers(summary: RunSummary) -> Mapping[str, str]:
    """Return charts of the bytes and times of each device's answers; nothing without answers."""
    busy = [device for device in summary.devices if device.accepted]
    if not busy:
        return {}
    sent = [Bar(device.device, device.sent) for device in busy[:MAX_ROWS]]
    taken = [
        Bar(device.device, device.seconds / device.accepted, device.fastest, device.slowest)
        for device in busy[:MAX_ROWS]
    ]
    return {
        "bytes": bar_chart(sent, size, title="bytes of merged answers by device"),
        "times": bar_chart(taken, duration, title="time to answer by device", colour=5),
        "left_out": _cut(len(busy)),
    }


def devices(summary: RunSummary) -> Mapping[str, Any]:
    """Return the table of the devices."""
    counts = ("samples", "merged", "not merged", "late", "lost", "last loss")
    head: tuple[str, ...] = ("device", *counts, "hardware")
    rows = [_device_row(device) for device in summary.devices[:MAX_ROWS]]
    if not any(row[-1] for row in rows):
        head, rows = head[:-1], [row[:-1] for row in rows]
    if any(device.joules is not None for device in summary.devices):
        head = (*head, "energy in J")
        pairs = zip(rows, summary.devices, strict=False)
        rows = [(*row, "" if (j := device.joules) is None else f"{j:.4g}") for row, device in pairs]
    if any(device.excluded for device in summary.devices):
        head = (*head, "excluded because")
        pairs = zip(rows, summary.devices, strict=False)
        rows = [(*row, device.excluded) for row, device in pairs]
    note = _cut(len(summary.devices) + summary.more_devices).strip()
    return {"head": head, "rows": rows, "note": note}


def _device_row(device: DeviceSummary) -> tuple[str, ...]:
    loss = "" if device.loss is None else f"{device.loss:.4g}"
    counts = (device.samples, device.accepted, device.rejected, device.late, device.lost)
    hardware = device.accelerator or device.hardware
    return (device.device, *map(str, counts), loss, hardware)


def averages(summary: RunSummary) -> Mapping[str, Any]:
    """Return the averaged data that each device shared; nothing where none did."""
    sharers = [device for device in summary.devices if device.shared_entries]
    if not sharers:
        return {}
    totals = [
        ("devices that share", str(len(sharers))),
        ("entries", str(sum(device.shared_entries for device in sharers))),
        ("fewest samples behind one", str(min(device.shared_group for device in sharers))),
        ("bytes", size(sum(device.shared_bytes for device in sharers))),
    ]
    rows = [
        (sharer.device, sharer.shared_entries, sharer.shared_group, size(sharer.shared_bytes))
        for sharer in sharers[:MAX_ROWS]
    ]
    return {"totals": totals, "rows": rows, "left_out": _cut(len(sharers))}


def events(summary: RunSummary) -> Mapping[str, Any]:
    """Return the notable events: answers not merged, lost devices, warnings."""
    counts = [
        ("answers merged", str(sum(device.accepted for device in summary.devices))),
        ("not merged", str(sum(device.rejected for device in summary.devices))),
        ("too late", str(sum(device.late for device in summary.devices))),
        ("devices lost", str(sum(device.lost for device in summary.devices))),
    ]
    rows = [(line.time.replace("T", " "), f"{line.mark} {line.text}") for line in summary.lines]
    gap = f"{size(summary.left_out)} in the middle of the log were not read. "
    note = (gap if summary.left_out else "") + "Newest first."
    return {"counts": counts, "rows": rows, "note": note}


def rounds(run_data: RunData) -> Mapping[str, Any]:
    """Return the table of the rounds."""
    names = tuple(dict.fromkeys(key for row in run_data.rounds for key in row))
    return {
        "count": counted(len(run_data.rounds), "round"),
        "head": [name.replace("_", " ") for name in names],
        "rows": [[_cell(name, row.get(name)) for name in names] for row in run_data.rounds],
    }


def _cell(name: str, value: object) -> str:
    if value is None:
        return ""
    if name in ("sent", "received") and isinstance(value, (int, float)):
        return size(value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _cut(count: int) -> str:
    return f" The first {MAX_ROWS} of {count} are shown." if count > MAX_ROWS else ""
