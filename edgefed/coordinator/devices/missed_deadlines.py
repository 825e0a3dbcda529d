"""Devices that miss deadlines while connected, and for how many rounds each is left out.

A device that has missed two deadlines is left out of the rest of the round and of the next one.
Each further deadline that it misses doubles the rounds, up to 16. An accepted answer resets this.
The rows are in the run's record, which is written with the commit of each exchange, so that a
resumed run asks the same devices.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from edgefed.algorithms.interface.member import Member
from edgefed.algorithms.secure.secure_phases import fewest_devices
from edgefed.config.recipes.recipe import Recipe

FORGIVEN = 1
"""Missed deadlines that cost nothing."""

MOST_ROUNDS = 16
"""Rounds for which a device is left out at most."""

SilentDevices = Mapping[str, tuple[int, int]]
"""By device: the deadlines that it missed since its last accepted answer, and the last round
without it; 0 where it was not left out."""


def after_exchange(
    silent: SilentDevices, number: int, missed: Collection[str], accepted: Collection[str]
) -> dict[str, tuple[int, int]]:
    """Return the rows after an exchange of round ``number``.

    Args:
        silent: the rows before.
        number: the round, counted from 1.
        missed: devices that were connected all the time and missed the deadline.
        accepted: devices whose answers were accepted.
    """
    rows = {device: row for device, row in silent.items() if device not in accepted}
    for device in sorted(missed):
        count = rows.get(device, (0, 0))[0] + 1
        rounds = min(2 ** (count - FORGIVEN - 1), MOST_ROUNDS) if count > FORGIVEN else 0
        rows[device] = (count, number + rounds if rounds else 0)
    return rows


def left_out(
    silent: SilentDevices, number: int, roster: Iterable[Member], least: int
) -> dict[str, str]:
    """Return the devices of a roster that are not asked in round ``number``, and why.

    Args:
        silent: the rows.
        number: the round, counted from 1.
        roster: all devices that can be asked.
        least: how many devices with samples must remain. Those that missed the fewest deadlines
            are asked all the same.
    """
    if not silent:
        return {}
    there = {member.device for member in roster if member.samples}
    out = [device for device, (_, last) in silent.items() if device in there and last >= number]
    out.sort(key=lambda device: (-silent[device][0], device))
    out = out[: max(0, len(there) - least)]
    return {device: _reason(*silent[device]) for device in sorted(out)}


def least_roster(recipe: Recipe) -> int:
    """Return how many devices a run must be able to ask to go on at the same privacy cost.

    They are the quorum of ``rounds.cohort``, the answers that the rule of ``[merging]`` and secure
    aggregation need, and the devices among which ``privacy.population`` hides a cohort. Without a
    cohort, the quorum is a share of the devices that remain. Secure aggregation also keeps
    ``rounds.min_devices``: owners refuse to be summed with few devices (``least_cohort``), and the
    coordinator does not know with how few.
    """
    rounds, secure = recipe.rounds, recipe.secure_aggregation
    return max(
        1,
        math.ceil(round(rounds.quorum * rounds.cohort, 6)),
        recipe.merging.least_answers,
        recipe.privacy.population,
        max(fewest_devices(secure), rounds.min_devices) if secure.wanted else 0,
    )


def _reason(count: int, last: int) -> str:
    return f"it missed {count} deadlines while connected, and is left out up to round {last}"
