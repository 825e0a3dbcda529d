"""The labels that devices hold, before and after the supplements of a run's label bounties."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from edgefed.events.base.bounty_tables import BountyView
from edgefed.events.base.snapshot import DeviceSnapshot, Snapshot

Counts = tuple[int, ...]
"""Samples by label, as the run numbers its labels."""


@dataclass(frozen=True)
class LabelSkew:
    """The samples of each label of one device, or of all together.

    Attributes:
        before: its own samples; None where its owner does not share them.
        supplements: mixes and noise of the bounties that are not open.
    """

    before: Counts | None
    supplements: Counts

    @property
    def after(self) -> Counts | None:
        """Both together."""
        if self.before is None:
            return None
        return tuple(map(sum, zip(self.before, self.supplements, strict=True)))

    def to_json(self) -> dict[str, Any]:
        """Return both with the share of the most frequent label before and after."""
        return {
            "before": self.before,
            "supplements": self.supplements,
            "after": self.after,
            "share_before": largest_share(self.before),
            "share_after": largest_share(self.after),
        }


def largest_share(counts: Counts | None) -> float | None:
    """Return the fraction of samples of the most frequent label; None without samples."""
    return max(counts) / sum(counts) if counts and any(counts) else None


def label_skew(snapshot: Snapshot) -> dict[str, LabelSkew]:
    """Return the labels of each device of a snapshot, by device."""
    names = snapshot.run.class_names if snapshot.run else ()
    supplements: dict[str, dict[int, int]] = defaultdict(dict)
    for bounty in snapshot.bounties:
        supplements[bounty.device][bounty.label] = _supplement(bounty)
    own = {view.device: _own(view, names) for view in snapshot.devices}
    known = (len(counts) for counts in own.values() if counts is not None)
    asked = (bounty.label + 1 for bounty in snapshot.bounties)
    labels = max((len(names), *known, *asked))
    return {
        device: LabelSkew(
            _padded(own.get(device), labels),
            tuple(supplements[device].get(label, 0) for label in range(labels)),
        )
        for device in sorted({*own, *supplements})
    }


def overall(skews: Iterable[LabelSkew]) -> LabelSkew:
    """Return the total labels of all devices that share theirs."""
    shared = [skew for skew in skews if skew.before is not None]
    return LabelSkew(
        tuple(map(sum, zip(*(skew.before or () for skew in shared), strict=True))),
        tuple(map(sum, zip(*(skew.supplements for skew in shared), strict=True))),
    )


def _supplement(bounty: BountyView) -> int:
    return 0 if bounty.status == "open" else bounty.received + bounty.noise


def _own(device: DeviceSnapshot, names: Sequence[str]) -> Counts | None:
    """Return a device's samples by the run's labels: by class where both name their classes."""
    return in_order(device.labels, device.class_names, names) if device.labels else None


def in_order(counts: Counts, own: Sequence[str], names: Sequence[str]) -> Counts:
    """Return a device's counts in the order of a run's classes.

    Args:
        counts: samples by label, as the device numbers its labels.
        own: names of its labels.
        names: the run's classes; where these or the device's have no names, numbers are the same.
    """
    if not names or not own:
        return counts
    held = dict(zip(own, counts, strict=False))
    return tuple(held.get(name, 0) for name in names)


def _padded(counts: Counts | None, labels: int) -> Counts | None:
    return None if counts is None else (*counts, *[0] * (labels - len(counts)))
