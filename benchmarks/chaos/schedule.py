"""A seeded schedule of faults: what happens to which part of a fleet, after how long, how long."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal[
    "kill", "freeze", "restart", "disk", "clock", "cut", "slow", "truncate", "repeat", "reorder"
]
KINDS: tuple[Kind, ...] = get_args(Kind)
COORDINATOR, BROKER = "coordinator", "broker"

WITHOUT_BROKER: tuple[Kind, ...] = ("disk", "cut", "slow", "truncate", "repeat", "reorder")
"""The broker has no link of its own, and needs no disk."""

READ: tuple[Kind, ...] = ("repeat", "reorder")
"""Faults of links that know the messages which they carry."""

LONGEST: dict[Kind, float] = {
    "kill": 3.0,
    "freeze": 6.0,
    "restart": 2.0,
    "disk": 5.0,
    "clock": 4.0,
    "cut": 3.0,
    "slow": 4.0,
    "truncate": 1.0,
    "repeat": 4.0,
    "reorder": 4.0,
}
"""Most seconds of each kind; ``LONG_FREEZE`` beside them."""

LONG_FREEZE = 50.0
"""Seconds after which the broker has given a frozen client up: one and a half keepalives."""

JUMPS = (-400 * 86400, -86400, -3600, 3600, 86400, 400 * 86400)
"""Seconds that a clock may jump."""


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        gap: seconds after the beginning of the fault before it.
        kind: what happens.
        part: ``coordinator``, ``broker`` or a device.
        seconds: how long it lasts.
        amount: of a clock, the seconds it jumps; of a slow link, bytes per second; of repeated and
            reordered messages, their share.
    """

    gap: float
    kind: Kind
    part: str
    seconds: float
    amount: float = 0.0


def schedule(
    seed: int, count: int, devices: Sequence[str], without: Collection[Kind] = ()
) -> Iterator[Fault]:
    """Yield a number of faults; every kind but ``without`` occurs in each ten of them."""
    rng = random.Random(seed)
    kinds: list[Kind] = []
    for _ in range(count):
        if not kinds:
            kinds = [each for each in KINDS if each not in without]
            rng.shuffle(kinds)
        yield _drawn(rng, kinds.pop(), devices)


def _drawn(rng: random.Random, kind: Kind, devices: Sequence[str]) -> Fault:
    part = _part(rng, kind, devices)
    gap, seconds = rng.uniform(0.1, 2.5), rng.uniform(0.1, LONGEST[kind])
    if kind == "freeze" and part != BROKER and rng.random() < 0.1:
        seconds = LONG_FREEZE
    amount = 0.0
    if kind == "clock":
        amount = rng.choice(JUMPS)
    elif kind == "slow":
        amount = rng.uniform(20e3, 200e3)
    elif kind in ("repeat", "reorder"):
        amount = rng.uniform(0.2, 1.0)
    return Fault(round(gap, 3), kind, part, round(seconds, 3), amount)


def read_by_links(devices: Sequence[str]) -> Sequence[str]:
    """Return the devices whose links know the messages; the coordinator's does too."""
    return devices[::2]


def _part(rng: random.Random, kind: Kind, devices: Sequence[str]) -> str:
    """Return the coordinator, the broker or a device; all devices together as often as either."""
    if kind == "restart":
        return BROKER
    parts = [COORDINATOR, rng.choice(read_by_links(devices) if kind in READ else devices)]
    if kind not in WITHOUT_BROKER:
        parts.append(BROKER)
    return rng.choice(parts)
