"""The order in which a run with buffered rounds asked and merged, to be followed again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from edgefed.coordinator.exchanges.buffered_answers import settled_in

Numbers = Mapping[str, int]
"""By device: how often it had been asked before."""


@dataclass(frozen=True)
class RecordedOrder:
    """The questions whose answers were merged; the others changed no weights, and are left out.

    Attributes:
        asked: the devices that were asked with the weights of each round; 0 for the first weights.
        answered: the devices whose answers each round merged, for all rounds from 1.
        unmerged: whether there were questions whose answers were not merged.
    """

    asked: Mapping[int, Numbers]
    answered: Mapping[int, Numbers]
    unmerged: bool = False

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]]) -> RecordedOrder:
        """Return the order in the detailed rows of a run's rounds."""
        asked: dict[int, dict[str, int]] = {}
        answered: dict[int, dict[str, int]] = {}
        unmerged = False
        for row in rows:
            for question in settled_in(row):
                unmerged = unmerged or question.outcome != "merged"
                if question.outcome == "merged":
                    asked.setdefault(question.version, {})[question.device] = question.number
                    answered.setdefault(row["round"], {})[question.device] = question.number
        return cls(asked, answered, unmerged)
