"""Each device's share of the samples of every class, by which output layers are averaged.

A device discloses its numbers of samples of each label if its owner's policy allows it. For other
devices equal numbers are assumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from edgefed.algorithms.averaging.fedavg import MOST_SAMPLES
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceView, LedgerEntry
from edgefed.algorithms.interface.exchange import ReplyRole
from edgefed.learn.base.types import Array
from edgefed.learn.matching.layer_merging import class_proportions
from edgefed.sharing.releases import labels_release
from edgefed.wire.tensors import TensorSpec

LABELS = "labels"
"""The role of an answer, and the name of its only array: int64 (classes,), samples by label."""

ShareOf = Literal["classes", "samples", "uniform"]


def labels_role(classes: int) -> ReplyRole:
    """Return the role of label counts, which an answer may lack."""
    return ReplyRole({LABELS: TensorSpec("int64", (classes,))}, MOST_SAMPLES, optional=True)


def label_counts_of(
    task: DeviceTask, device: DeviceView
) -> tuple[Mapping[str, Group], tuple[LedgerEntry, ...]]:
    """Return the device's label counts as a role, with the entry of its ledger; nothing without.

    Nothing is disclosed without the owner's permission, or if samples have no single label.
    """
    labels = device.train.targets
    if not (device.policy.share_labels and device.train.has_labels):
        return {}, ()
    counts = np.bincount(labels, minlength=device.model.classes).astype(np.int64)
    entry = labels_release(task.round, len(labels), int(np.count_nonzero(counts)))
    return {LABELS: Group({LABELS: counts}, "fp32")}, (entry,)


def wrong_counts(answer: Answer) -> str:
    """Return why an answer's label counts are invalid, or nothing."""
    if LABELS not in answer.groups:
        return ""
    least = int(answer.groups[LABELS].arrays[LABELS].min(initial=0))
    return f"it counts {least} samples of a label" if least < 0 else ""


def class_shares(
    answers: Sequence[Answer],
    announced: Mapping[str, int],
    classes: int,
    by: ShareOf,
    least_holders: float = 0.0,
) -> Array:
    """Return float64 (devices, classes); the shares of a class add up to 1.

    Args:
        answers: with label counts or without.
        announced: samples that each device announced; no device counts for more.
        classes: number of outputs.
        by: ``classes`` for the label counts, ``samples`` for each device's samples in all classes,
            ``uniform`` for equal shares.
        least_holders: with ``classes``, a class that a smaller fraction of the devices has weighs
            devices by their samples in all classes.
    """
    if by == "uniform":
        return class_proportions(np.ones((len(answers), classes)))
    counts = np.stack([_counts(answer, announced, classes, by) for answer in answers])
    samples = np.stack([_counts(answer, announced, classes, "samples") for answer in answers])
    held = (counts > 0).mean(axis=0) >= least_holders
    return class_proportions(np.where(held, counts, samples))


def _counts(answer: Answer, announced: Mapping[str, int], classes: int, by: ShareOf) -> Array:
    most = min(announced[answer.device], MOST_SAMPLES)
    if by == "samples" or LABELS not in answer.groups:
        return np.full(classes, min(answer.samples, most) / classes)
    counts = answer.groups[LABELS].arrays[LABELS].astype(np.float64)
    # Counts that exceed the announced samples are scaled down to them
    return counts * min(1.0, most / max(1.0, float(counts.sum())))
