"""The labels that devices hold before and after supplements, as text and as JSON values."""

from __future__ import annotations

import sys
from typing import Any

from edgefed.cli.printed.histogram import BLOCKS, bars, bundled
from edgefed.cli.printed.label_views import LabelView
from edgefed.errors import UnknownNameError
from edgefed.events.methods.label_skew import Counts, LabelSkew, label_skew, largest_share, overall
from edgefed.terminal.console import columns

MOST_BARS = 20
"""Characters for the labels of a device; more labels share a character."""

NOT_SHARED = "not shared"

UNKNOWN = "unknown"
"""Shown in place of numbers that would disclose a device's labels."""


def skew_json(view: LabelView, device: str | None) -> dict[str, Any]:
    """Return the skew of all devices, or of one, and of all together.

    Raises:
        UnknownNameError: there is no such device.
    """
    skews = label_skew(view.snapshot)
    total = overall(skews.values())
    shown = skews if device is None else {device: _of(skews, device)}
    return {
        "run": view.record["run"] if view.record is not None else None,
        "labels": [view.name(label) for label in range(_labels(skews))],
        "devices": [{"device": name, **skew.to_json()} for name, skew in shown.items()],
        "overall": total.to_json(),
    }


def skew_table(view: LabelView) -> str:
    """Return a row for each device and one for all, with a bar for each label."""
    skews = label_skew(view.snapshot)
    bundle = max(1, -(-_labels(skews) // MOST_BARS))
    rows = [_row(view, name, skew, bundle) for name, skew in skews.items()]
    if len(rows) > 1:
        rows.append(_row(view, "all", overall(skews.values()), bundle))
    head = ("DEVICE", "SAMPLES", "BEFORE", "ADDED", "AFTER", "SHARE")
    return columns([head, *rows])


def device_table(view: LabelView, device: str) -> str:
    """Return a row for each label of a device.

    Raises:
        UnknownNameError: there is no such device.
    """
    skew = _of(label_skew(view.snapshot), device)
    before = skew.before if skew.before is not None else [NOT_SHARED] * len(skew.supplements)
    after = skew.after if skew.after is not None else [""] * len(skew.supplements)
    is_known = skew.before is not None or any(skew.supplements)
    added = skew.supplements if is_known else [UNKNOWN] * len(skew.supplements)
    rows = [
        (view.name(label), *map(str, counts))
        for label, counts in enumerate(zip(before, added, after, strict=True))
    ]
    return columns([("LABEL", "BEFORE", "ADDED", "AFTER"), *rows])


def _of(skews: dict[str, LabelSkew], device: str) -> LabelSkew:
    if device not in skews:
        raise UnknownNameError(
            f"No device {device}.", code="device.unknown", hint="edgefed device list"
        )
    return skews[device]


def _labels(skews: dict[str, LabelSkew]) -> int:
    return max((len(skew.supplements) for skew in skews.values()), default=0)


def _row(view: LabelView, name: str, skew: LabelSkew, bundle: int) -> tuple[str, ...]:
    added = sum(skew.supplements)
    added_text = f"+{added}" if added else ""
    if skew.before is None or skew.after is None:
        return (name, "", NOT_SHARED, added_text or UNKNOWN, "", "")
    shares = dict.fromkeys((_share(view, skew.before), _share(view, skew.after)))
    return (
        name,
        str(sum(skew.before)),
        _bars(skew.before, bundle),
        added_text,
        _bars(skew.after, bundle) if added else "",
        " -> ".join(shares),
    )


def _bars(counts: Counts, bundle: int) -> str:
    bundles = bundled(counts, bundle)
    return bars(bundles, max(bundles, default=0), 1, _plain())


def _plain() -> bool:
    """Whether the terminal lacks the blocks."""
    encoding = sys.stdout.encoding or "utf-8"
    return BLOCKS.encode(encoding, errors="replace").decode(encoding) != BLOCKS


def _share(view: LabelView, counts: Counts) -> str:
    """Return the most frequent label with its share."""
    share = largest_share(counts)
    return "" if share is None else f"{view.name(counts.index(max(counts)))} {share:.0%}"
