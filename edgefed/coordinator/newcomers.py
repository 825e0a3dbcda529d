"""Tell tests of devices that never train apart from those of the others."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from edgefed.algorithms.answer import Answer
from edgefed.algorithms.device_side import MODE

NEWCOMER, PARTICIPANT = "newcomer", "participant"
"""Modes of tests; see ``EvalJob.mode``."""


def with_part(answer: Answer, newcomers: Collection[str]) -> Answer:
    """Return a test with the part that its device has in the run as a further mode."""
    part = NEWCOMER if answer.device in newcomers else PARTICIPANT
    return replace(answer, metrics={**answer.metrics, f"{MODE}{part}": 1.0})
