"""Summaries of devices' data for files, JSON and tables: counts, never samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from edgefed.data.base.columns import category_counts
from edgefed.data.base.types import DeviceData, Preparation, Shard
from edgefed.data.devices.partition import label_counts


@dataclass(frozen=True)
class Holding:
    """The samples of one device.

    Attributes:
        device: its name.
        train: number of training samples.
        test: number of samples kept for evaluation.
        classes: number of labels; for numeric targets, the length of one.
        labels: number of training samples of each label; empty without labels.
        shape: of one input.
        preparation: of the inputs.
        columns: number of categories of each column, by name.
    """

    device: str
    train: int
    test: int
    classes: int
    labels: tuple[int, ...]
    shape: tuple[int, ...]
    preparation: Preparation
    columns: Mapping[str, int] = field(default_factory=dict)


def holding(device: str, data: Shard | DeviceData) -> Holding:
    """Return the summary of a device's samples."""
    return Holding(
        device,
        len(data.train),
        len(data.test),
        data.classes,
        label_counts(data.train, data.classes),
        tuple(data.train.inputs.shape[1:]),
        data.preparation,
        category_counts(data.train, data.test),
    )


def report(holdings: Iterable[Holding]) -> dict[str, Any]:
    """Return devices and totals; at least one device.

    ``labels`` counts training samples for each label, from 0 on; it is empty for numeric targets,
    where ``classes`` is the length of one. ``columns`` has the number of categories of each column
    that all devices have.
    """
    devices = list(holdings)
    most = max(len(device.labels) for device in devices)
    padded = [(*device.labels, *[0] * (most - len(device.labels))) for device in devices]
    return {
        "classes": max(device.classes for device in devices),
        "shape": list(devices[0].shape),
        "preparation": {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in asdict(devices[0].preparation).items()
        },
        "columns": {
            name: max(device.columns[name] for device in devices)
            for name in sorted(set.intersection(*(set(device.columns) for device in devices)))
        },
        "devices": [
            {"device": row.device, "train": row.train, "test": row.test, "labels": list(labels)}
            for row, labels in zip(devices, padded, strict=True)
        ],
        "totals": {
            "train": sum(device.train for device in devices),
            "test": sum(device.test for device in devices),
            "labels": [sum(column) for column in zip(*padded, strict=True)],
        },
    }
