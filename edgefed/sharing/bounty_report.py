"""Label bounties, the privacy budgets of devices that answer them, and orders about both."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

BountyStatus = Literal["open", "closed", "cancelled"]
"""``open``: devices are asked for mixes; ``closed``: all mixes have arrived; ``cancelled`` by the
operator. Natural noise completes the supplement in the last two."""

BountyAction = Literal["open", "cancel"]
"""``open`` asks again for mixes that are missing; ``cancel`` asks no longer."""


@dataclass(frozen=True)
class Bounty:
    """A device's request for samples of a label that it lacks.

    Attributes:
        device: the one that lacks the label.
        label: the label.
        count: samples that the supplement has when it is complete.
        mixes: how many of them are requested as mixes.
        offered: mixes that other devices offered.
        received: mixes that the device holds.
        noise: samples that natural noise fills; 0 while the bounty is open.
        status: its progress.
    """

    device: str
    label: int
    count: int
    mixes: int
    offered: int = 0
    received: int = 0
    noise: int = 0
    status: BountyStatus = "open"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Budget:
    """A device's statement about its mixes, made with its last offer.

    Attributes:
        device: its name.
        released: mixes that have left it, in all runs.
        mixes_left: mixes that its policy still allows; None for no limit.
        epsilon: ε spent on them; None where no finite ε bounds them.
        epsilon_left: ε that its policy still allows; None for no limit.
        shares: whether its policy allows mixes at all.
    """

    device: str
    released: int = 0
    mixes_left: int | None = None
    epsilon: float | None = 0.0
    epsilon_left: float | None = None
    shares: bool = True

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class BountyOrder:
    """An operator's order about bounties.

    Attributes:
        number: counts the orders of a run from 1; an order is carried out once.
        action: the action.
        device: owner of the bounties; empty for all devices.
        label: of the bounties; None for all.
    """

    number: int
    action: BountyAction
    device: str = ""
    label: int | None = None
