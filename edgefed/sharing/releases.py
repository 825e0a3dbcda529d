"""The entries of a device's ledger: the disclosure of each release, and the cost of mixes.

An entry is a dictionary of JSON values. All have ``kind``, ``round``, ``records`` (number of
samples in the release), ``noise_scale``, ``epsilon`` and ``formal``: ``epsilon`` where that ε holds
for every one of the records, ``epsilon-delta`` where it holds for all of them together, except with
a probability ``delta``, ``none`` where no finite ε bounds the release. Plug-ins may add entries of
other kinds; they do not count against the owner's budget for mixes.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from edgefed.sharing.bounty_report import Budget
from edgefed.sharing.label_mixes import MixSettings
from edgefed.sharing.mix_accounting import composed
from edgefed.sharing.policy import Policy
from edgefed.sharing.update_accounting import (
    LEAST_MULTIPLIER,
    MOST_MULTIPLIER,
    Releases,
    epsilon_of,
)

MEANS, LABELS, MIXES, GATE, DENSITY = "means", "labels", "mixes", "gate", "density"
UPDATE = "update"
"""The kinds of release: averages of samples, which labels there are, mixes of a label, a gate of a
mixture of experts, a density of the inputs, and a model update with noise."""

MOST_EPSILON = 1e300
"""From this ε on, none is stated: sums stay finite."""


@dataclass(frozen=True)
class Spent:
    """The privacy cost of a device's mixes, over all runs and receivers.

    Attributes:
        mixes: number released.
        epsilon: their total ε; None where no finite ε bounds one of them.
    """

    mixes: int
    epsilon: float | None


def means_release(
    round: int,  # noqa: A002 - as messages and events name it
    records: int,
    entries: int,
    group: int,
    noise_scale: float,
    hidden: bool = False,
) -> dict[str, Any]:
    """Return the entry of averages: no finite ε bounds them, with Gaussian noise or without.

    Args:
        round: in which they leave the device.
        records: samples in them.
        entries: number of averages.
        group: fewest samples in one of them.
        noise_scale: standard deviation of the Gaussian noise on each value.
        hidden: whether they are of hidden states.
    """
    release = _release(MEANS, round, records, noise_scale, None)
    return {**release, "entries": entries, "group": group, "hidden": hidden}


def labels_release(round: int, records: int, labels: int) -> dict[str, Any]:  # noqa: A002
    """Return the entry of label counts or of present labels: no finite ε bounds either.

    Args:
        round: in which they leave the device; 0 outside of a run.
        records: samples whose labels were disclosed.
        labels: number of labels that were disclosed.
    """
    return {**_release(LABELS, round, records, 0.0, None), "labels": labels}


def gate_release(round: int, records: int, experts: int) -> dict[str, Any]:  # noqa: A002
    """Return the entry of a gate and the shares of the experts: no finite ε bounds them.

    Args:
        round: after which they leave the device.
        records: samples that the gate was trained on.
        experts: how many there are.
    """
    return {**_release(GATE, round, records, 0.0, None), "experts": experts}


def density_release(round: int, records: int) -> dict[str, Any]:  # noqa: A002
    """Return the entry of a density of the inputs: no finite ε bounds it.

    Args:
        round: after which it leaves the device.
        records: samples that it was fitted to.
    """
    return _release(DENSITY, round, records, 0.0, None)


def mixes_release(
    round: int,  # noqa: A002
    records: int,
    receiver: str,
    counts: Mapping[int, int],
    settings: MixSettings,
    epsilon: float | None,
) -> dict[str, Any]:
    """Return the entry of mixes for one receiver.

    Args:
        round: in which they leave the device.
        records: samples that the mixes were drawn from.
        receiver: the device that gets them.
        counts: mixes by label.
        settings: how they were made.
        epsilon: of all of them together; None where it is not finite.
    """
    return {
        **_release(MIXES, round, records, settings.noise_scale, epsilon),
        "receiver": receiver,
        # JSON has no other keys; the entry is then the same before and after it is stored.
        "counts": {str(label): count for label, count in sorted(counts.items())},
        "width": settings.width,
        "others": settings.others,
    }


def update_release(
    round: int,  # noqa: A002
    records: int,
    clip: float,
    multiplier: float,
    delta: float,
) -> dict[str, Any]:
    """Return the entry of a clipped model update with Gaussian noise of the device's own.

    Its ε is that of this release alone, at δ, and compares any two data sets of the device; that of
    several is less than their sum (``update_accounting``).

    Args:
        round: in which it leaves the device.
        records: samples that it was trained on.
        clip: the largest norm.
        multiplier: the noise's standard deviation in units of ``clip``.
        delta: δ.
    """
    epsilon = epsilon_of([Releases(1, multiplier)], delta)
    return {
        **_release(UPDATE, round, records, clip * multiplier, epsilon),
        "formal": "epsilon-delta",
        "delta": delta,
        "noise_multiplier": multiplier,
        "clip": clip,
    }


def update_releases(ledger: Sequence[Mapping[str, Any]]) -> list[Releases]:
    """Return the noisy updates of a ledger, counted by their noise multiplier."""
    counts = Counter(float(entry["noise_multiplier"]) for entry in ledger if is_update(entry))
    return [Releases(count, multiplier) for multiplier, count in sorted(counts.items())]


def is_update(entry: Mapping[str, Any]) -> bool:
    """Whether an entry is one of ``update_release``, and not a plug-in's of the same kind."""
    multiplier = entry.get("noise_multiplier")
    return (
        entry.get("kind") == UPDATE
        and isinstance(multiplier, (int, float))
        and not isinstance(multiplier, bool)
        and LEAST_MULTIPLIER <= multiplier <= MOST_MULTIPLIER
    )


def spent(ledger: Sequence[Mapping[str, Any]]) -> Spent:
    """Return the total cost of a ledger's mixes; other entries are ignored."""
    mixes = [entry for entry in ledger if is_mixes(entry)]
    return Spent(sum(map(mixes_in, mixes)), composed(entry["epsilon"] for entry in mixes))


def is_mixes(entry: Mapping[str, Any]) -> bool:
    """Whether an entry is one of ``mixes_release``, and not a plug-in's of the same kind."""
    counts, epsilon = entry.get("counts"), entry.get("epsilon", "")
    return (
        entry.get("kind") == MIXES
        and isinstance(counts, Mapping)
        and all(type(count) is int and count >= 0 for count in counts.values())
        and (epsilon is None or (type(epsilon) in (int, float) and 0 <= epsilon < MOST_EPSILON))
    )


def mixes_in(entry: Mapping[str, Any]) -> int:
    """Return how many mixes a release of mixes holds."""
    return sum(entry["counts"].values())


def allowed_mixes(policy: Policy, spent: Spent, epsilon_each: float | None, wanted: int) -> int:
    """Return how many of ``wanted`` mixes the owner still allows.

    Neither ``n * epsilon_each`` nor the composed ε of a ledger, to which releases of the returned
    numbers are added one after the other, ever exceeds the owner's budget because of rounding.

    Args:
        policy: the owner's.
        spent: cost of mixes so far.
        epsilon_each: ε of one more mix; None where it is not finite.
        wanted: number of requested mixes.
    """
    if not (policy.share_mixes and policy.share_labels):
        return 0
    most = wanted
    if policy.mix_limit is not None:
        most = min(most, policy.mix_limit - spent.mixes)
    budget = policy.mix_epsilon
    if budget is None:
        return max(0, most)
    if epsilon_each is None or spent.epsilon is None:
        return 0
    before = spent.epsilon
    numbers = range(1, most + 1)
    return bisect_left(
        numbers, True, key=lambda number: not _fits(budget, before, number * epsilon_each)
    )


def budget(device: str, policy: Policy, ledger: Sequence[Mapping[str, Any]]) -> Budget:
    """Return the cost of a device's mixes, and the rest of its owner's budget."""
    so_far = spent(ledger)
    mixes_left, epsilon_left = policy.mix_limit, policy.mix_epsilon
    if mixes_left is not None:
        mixes_left = max(0, mixes_left - so_far.mixes)
    if epsilon_left is not None:
        # Without a finite ε the budget is spent, however large it is.
        epsilon_left = 0.0 if so_far.epsilon is None else max(0.0, epsilon_left - so_far.epsilon)
    shares = policy.share_mixes and policy.share_labels
    if not shares:
        mixes_left = 0
    return Budget(device, so_far.mixes, mixes_left, so_far.epsilon, epsilon_left, shares)


def _release(
    kind: str,
    round: int,  # noqa: A002
    records: int,
    noise_scale: float,
    epsilon: float | None,
) -> dict[str, Any]:
    """Return the common part of all kinds of entries."""
    if epsilon is not None and not epsilon < MOST_EPSILON:
        epsilon = None
    return {
        "kind": kind,
        "round": round,
        "records": records,
        "noise_scale": noise_scale,
        "epsilon": epsilon,
        "formal": "none" if epsilon is None else "epsilon",
    }


def _fits(budget: float, before: float, more: float) -> bool:
    """Whether a sum that was rounded to ``before`` is within the budget with ``more`` added."""
    if not more < MOST_EPSILON:
        return False
    # The sum itself may be half a unit in the last place more than what it was rounded to.
    unrounded = Fraction(before) + (Fraction(math.ulp(before)) / 2 if before else 0)
    return float(unrounded + Fraction(more)) <= budget
