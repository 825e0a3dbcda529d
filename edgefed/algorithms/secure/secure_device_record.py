"""A device's private record of secure aggregation: its secrets, and its answers.

The record is committed together with the answer that it belongs to. With it a device can refuse a
second question about the same secrets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from edgefed.learn.base.types import Tensors

PRIVATE = "secure_aggregation"
"""The group of the private state, and the name of the array in it."""

Phase = Literal["none", "advertised", "shared", "masked", "listed", "uncovered"]
"""The last thing that the device did with the secrets of a session."""

ALREADY: Mapping[str, str] = {
    "none": "has made no keys for it",
    "advertised": "has only advertised its keys",
    "shared": "has shared its secrets, and not masked an update",
    "masked": "has masked its update already",
    "listed": "has signed the list of the updates that are summed already",
    "uncovered": "has uncovered the sum already",
}


@dataclass(frozen=True)
class SecureRecord:
    """One session; the next one replaces it.

    Attributes:
        number: of the session; it only ever grows.
        phase: the last completed step.
        threshold: how many shares uncover a secret.
        mask, channel, seed: the device's secrets in hexadecimal; empty once they are not needed.
        devices: of the cohort whose keys it knows.
        shares: those of others and its own, in hexadecimal: mask key, then seed.
        cohort: for which it masked its update.
        task_digest: of the task that it masked its update for, in hexadecimal.
        listed: the devices whose updates are summed, as it signed them.
    """

    number: int = 0
    phase: Phase = "none"
    threshold: int = 0
    mask: str = ""
    channel: str = ""
    seed: str = ""
    devices: tuple[str, ...] = ()
    shares: Mapping[str, str] = field(default_factory=dict)
    cohort: tuple[str, ...] = ()
    task_digest: str = ""
    listed: tuple[str, ...] = ()

    @classmethod
    def of(cls, private: Mapping[str, Tensors]) -> SecureRecord:
        """Return the record in a device's private state."""
        group = private.get(PRIVATE)
        if not group:
            return cls()
        known: dict[str, Any] = json.loads(group[PRIVATE].tobytes())
        for name in ("devices", "cohort", "listed"):
            known[name] = tuple(known[name])
        return cls(**known)

    def to_private(self, keys: Tensors | None = None) -> dict[str, Tensors]:
        """Return the record, and the cohort's keys beside, as a part of the private state."""
        text = json.dumps(asdict(self)).encode()
        return {PRIVATE: {PRIVATE: np.frombuffer(text, np.uint8), **(keys or {})}}
