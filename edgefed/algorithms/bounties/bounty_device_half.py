"""The device's half of label bounties: state needs, offer mixes, make them, and store them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edgefed.algorithms.bounties.bounty_answers import (
    NEEDS,
    OFFERS,
    RECEIVED,
    budget_metrics,
    group_of,
)
from edgefed.algorithms.bounties.completed_samples import needs_of
from edgefed.algorithms.bounties.received_mixes import (
    added,
    group_name,
    held,
    most_mixes,
    pack_mixes,
    replaced,
    unpack_mixes,
)
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceView, LedgerEntry
from edgefed.config.recipes.recipe import LabelsSection
from edgefed.data.base.pixel_range import to_pixels
from edgefed.errors import WireError
from edgefed.learn.base.types import Array
from edgefed.sharing.groups import equal_split
from edgefed.sharing.label_mixes import MixSettings, mix_label, quantised, reason_to_decline
from edgefed.sharing.mix_accounting import composed, mix_epsilon
from edgefed.sharing.policy import Policy, Withheld
from edgefed.sharing.releases import Spent, allowed_mixes, budget, labels_release, mixes_release
from edgefed.sharing.releases import spent as spent_of

MOST_GIVEN_BYTES = 240 * 1024**2
"""Of the mixes that a device makes in one task."""

ENTRY_LABELS = 128
"""Most labels of one entry of the ledger, whose size is limited."""


@dataclass(frozen=True)
class Asks:
    """A device's request for mixes of a label, as a task describes it to another one."""

    requester: str
    label: int
    mixes: int


def mix_settings(settings: LabelsSection) -> MixSettings:
    """Return how mixes are made."""
    return MixSettings(
        settings.width,
        settings.low,
        settings.high,
        settings.others,
        settings.noise_scale,
        settings.clip,
    )


def kept_mixes(device: DeviceView, settings: LabelsSection) -> Mapping[str, Any]:
    """Return the mixes that a device received in any run with these classes and settings."""
    return device.device_state.get(_group(device, settings), {})


def state_needs(task: DeviceTask, device: DeviceView, settings: LabelsSection) -> Answer:
    """Return the device's missing labels, the samples and mixes of each, and the mixes it has.

    A device whose owner requests no mixes counts only those that it has. It requests no more than
    it can keep.

    Raises:
        Withheld: its owner does not disclose its labels, or its samples have none.
    """
    _check_told(device)
    there = held(kept_mixes(device, settings), device.model.classes)
    needs = needs_of(device.train.targets, device.model.classes, settings)
    shares = equal_split(most_mixes(device.train.inputs.shape[1:]), [need.mixes for need in needs])
    rows = []
    for need, share in zip(needs, shares, strict=True):
        received = min(int(there[need.label]), share)
        wanted = share if device.policy.request_mixes else received
        rows.append((need.label, need.count, wanted, received))
    return _answer(task, device, {NEEDS: group_of(NEEDS, rows)}, ledger=(_presence(task, device),))


def offer(task: DeviceTask, device: DeviceView, settings: LabelsSection) -> Answer:
    """Return how many mixes the device offers for each bounty of the task.

    Raises:
        Withheld: its owner does not disclose its labels, or requires other mixes.
    """
    _check_told(device)
    _check_mixes(device.policy, settings)
    asked = asks_of(task.params["bounties"])
    to_pixels(device.train, device.preparation)  # what cannot be mixed is not offered
    shares = _affordable(asked, device, settings, spent_of(device.ledger))
    rows = [(place, share) for place, share in enumerate(shares) if share]
    metrics = budget_metrics(budget(task.device, device.policy, device.ledger))
    ledger = (_presence(task, device),) if rows else ()
    return _answer(task, device, {OFFERS: group_of(OFFERS, rows)}, metrics, ledger)


def make_mixes(task: DeviceTask, device: DeviceView, settings: LabelsSection) -> Answer:
    """Return mixes for the devices in the coordinator's allocation, each charged to the ledger.

    Mixes that the owner's policy or budget no longer allows are left out.

    Raises:
        Withheld: its owner does not disclose its labels, or requires other mixes.
        DataError: its samples cannot be mixed.
    """
    _check_told(device)
    _check_mixes(device.policy, settings)
    asked = asks_of(task.params["mixes"])
    shares = _affordable(asked, device, settings, spent_of(device.ledger))
    made = mix_settings(settings)
    pixels = to_pixels(device.train, device.preparation)
    relays: dict[str, bytes] = {}
    ledger: list[LedgerEntry] = []
    for receiver in sorted({request.requester for request in asked}):
        counts = {
            request.label: share
            for request, share in zip(asked, shares, strict=True)
            if request.requester == receiver and share
        }
        if not counts:
            continue
        parts = [
            quantised(mix_label(pixels, label, n, made, device.private_generator, device.pool))
            for label, n in counts.items()
        ]
        labels = np.repeat(np.array(list(counts), np.int64), list(counts.values()))
        relays[receiver] = pack_mixes(np.concatenate(parts), labels, task.params["token"])
        ledger += _releases(task, device, settings, receiver, counts)
    # With the entries of this answer, which the ledger does not have yet
    remaining = budget(task.device, device.policy, (*device.ledger, *ledger))
    metrics = {"mixes": float(sum(shares)), **budget_metrics(remaining)}
    answer = _answer(task, device, {}, metrics, tuple(ledger))
    return replace(answer, relays=relays)


def take_in(task: DeviceTask, device: DeviceView, settings: LabelsSection) -> Answer:
    """Store the mixes of labels that the device lacks, and return the number of each.

    A blob that does not fit its sender's task is left out and counted.
    """
    kept = dict(kept_mixes(device, settings))
    shape = tuple(device.train.inputs.shape[1:])
    needs = needs_of(device.train.targets, device.model.classes, settings)
    lacking = [need.label for need in needs]
    refused = 0
    for sender, token, rows in task.params["sent"]:
        contents = _first_valid(task.relays.get(sender, ()), shape, token, dict(rows))
        refused += contents is None
        if contents is not None:
            blob, mixes, labels = contents
            wanted = np.isin(labels, lacking)
            kept = added(kept, sender, blob, mixes[wanted], labels[wanted])
    there = held(kept, device.model.classes)
    rows = [(int(label), int(there[label])) for label in np.flatnonzero(there)]
    received = {RECEIVED: group_of(RECEIVED, rows)}
    answer = _answer(task, device, received, {"refused": float(refused)})
    changes = replaced(device.device_state, _group(device, settings), kept)
    return replace(answer, device_state=changes)


def _first_valid(
    blobs: Sequence[bytes], shape: tuple[int, ...], token: str, counts: Mapping[int, int]
) -> tuple[bytes, Array, Array] | None:
    """Return the blob that answers a batch of bounties, its mixes and labels; None without."""
    for blob in blobs:
        try:
            return blob, *unpack_mixes(blob, shape, token, counts)
        except WireError:
            continue
    return None


def asks_of(rows: Sequence[Sequence[Any]]) -> list[Asks]:
    """Return the rows of a task's ``bounties`` or ``mixes``."""
    return [Asks(str(requester), int(label), int(mixes)) for requester, label, mixes in rows]


def _affordable(
    asked: Sequence[Asks], device: DeviceView, settings: LabelsSection, spent: Spent
) -> list[int]:
    """Return how many mixes the device gives for each, as data, policy, budget and space allow.

    The budget and the space are divided equally.
    """
    limits = [request.mixes if _can_give(request, device, settings) else 0 for request in asked]
    labels = {request.label for request, limit in zip(asked, limits, strict=True) if limit}
    if not labels:
        return limits
    costs = [_cost(device, settings, label) for label in labels]
    known = [cost for cost in costs if cost is not None]
    dearest = max(known) if len(known) == len(costs) else None  # one without a bound has none
    most = min(sum(limits), most_mixes(device.train.inputs.shape[1:], MOST_GIVEN_BYTES))
    return equal_split(allowed_mixes(device.policy, spent, dearest, most), limits)


def _can_give(asks: Asks, device: DeviceView, settings: LabelsSection) -> bool:
    if not (0 <= asks.label < device.model.classes and _may_receive(asks.requester, device.policy)):
        return False
    pool = 0 if device.pool is None else len(device.pool)
    reason = reason_to_decline(device.train.targets, asks.label, mix_settings(settings), pool)
    return not reason


def _may_receive(device: str, policy: Policy) -> bool:
    return policy.share_mixes and (policy.mix_receivers is None or device in policy.mix_receivers)


def _cost(device: DeviceView, settings: LabelsSection, label: int, count: int = 1) -> float | None:
    """Return the ε of mixes of a label: their pixels are from 0 to 1, so Δ is their number."""
    inputs, labels = device.train.inputs, device.train.targets
    own = int(np.count_nonzero(labels == label))
    pixels = float(np.prod(inputs.shape[1:]))
    return mix_epsilon(mix_settings(settings), pixels, own, len(labels) - own, count)


def _releases(
    task: DeviceTask,
    device: DeviceView,
    settings: LabelsSection,
    receiver: str,
    counts: Mapping[int, int],
) -> list[LedgerEntry]:
    """Return the entries of mixes for one receiver, each of so many labels at most."""
    made, rows = mix_settings(settings), list(counts.items())
    parts = [dict(rows[n : n + ENTRY_LABELS]) for n in range(0, len(rows), ENTRY_LABELS)]
    entries: list[LedgerEntry] = []
    for part in parts:
        epsilon = composed(_cost(device, settings, label, n) for label, n in part.items())
        entries.append(mixes_release(task.round, len(device.train), receiver, part, made, epsilon))
    return entries


def _check_told(device: DeviceView) -> None:
    if not device.policy.share_labels:
        raise Withheld("it does not tell which labels it has")
    if not device.train.has_labels:
        raise Withheld("its samples have shares of labels, and not one label each")


def _check_mixes(policy: Policy, settings: LabelsSection) -> None:
    """Check that the recipe's mixes hide as much as the owner wants.

    Raises:
        Withheld: they do not.
    """
    if not policy.share_mixes:
        return
    if settings.width < policy.least_mix_width:
        raise Withheld(
            f"a mix is of {settings.width} samples, and its policy requires"
            f" {policy.least_mix_width}"
        )
    if settings.noise_scale < policy.least_mix_noise:
        raise Withheld(
            f"the noise on a mix has the scale {settings.noise_scale:.4g}, and its policy requires"
            f" {policy.least_mix_noise:.4g}"
        )
    if settings.width > 1 and settings.high > policy.most_mix_weight:
        raise Withheld(
            f"a sample may weigh {settings.high:g} in a mix, and its policy allows"
            f" {policy.most_mix_weight:g}"
        )


def _presence(task: DeviceTask, device: DeviceView) -> LedgerEntry:
    labels = len(np.unique(device.train.targets))
    return labels_release(task.round, len(device.train), labels)


def _group(device: DeviceView, settings: LabelsSection) -> str:
    shape = device.train.inputs.shape[1:]
    made = mix_settings(settings)
    return group_name(device.model.classes, device.class_names, shape, made)


def _answer(
    task: DeviceTask,
    device: DeviceView,
    groups: Mapping[str, Group],
    metrics: Mapping[str, float] | None = None,
    ledger: tuple[LedgerEntry, ...] = (),
) -> Answer:
    return Answer(
        device=task.device,
        samples=len(device.train),
        groups=groups,
        metrics=metrics or {},
        ledger=ledger,
    )
