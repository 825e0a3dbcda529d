"""The answers of a buffer, as one exchange that is merged: questions of different rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from edgefed.algorithms.interface.exchange import Exchange
from edgefed.coordinator.exchanges.tasks import asked_exchange
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.events.history.early_stopping import SETTLED

Outcome = Literal["merged", "refused", "stale", "late", "lost"]
"""How a question of buffered rounds ended."""


@dataclass(frozen=True)
class Settled:
    """A question that is closed, as it is recorded with the round in which that happened.

    Attributes:
        device: the device that was asked.
        number: how often the device was asked before.
        version: the rounds that had ended when it was asked; their weights were sent.
        outcome: ``merged``; ``refused`` by the device or by a check; ``stale``, as too many rounds
            ended; ``late`` at its deadline; or ``lost`` with its device.
    """

    device: str
    number: int
    version: int
    outcome: Outcome

    @classmethod
    def of(cls, opened: OpenExchange, outcome: Outcome) -> Settled:
        """Return the end of a question."""
        assert opened.number is not None
        return cls(opened.tasks[0].device, opened.number, opened.version, outcome)

    def to_json(self) -> list[Any]:
        """Return the values in order, as a round's row has them."""
        return [self.device, self.number, self.version, self.outcome]

    @classmethod
    def from_json(cls, row: Sequence[Any]) -> Settled:
        """Return the question that ``to_json`` wrote."""
        return cls(*row)


def settled_in(row: Mapping[str, Any]) -> tuple[Settled, ...]:
    """Return the questions that were closed in a round, from its row or the progress of one."""
    return tuple(Settled.from_json(values) for values in row.get(SETTLED, ()))


def merged_exchange(
    questions: Sequence[OpenExchange], number: int, index: int, quorum: int
) -> Exchange:
    """Return the exchange that a merge sees for the answered questions of a buffer.

    Args:
        questions: those that were answered, sorted by device; each device has one.
        number: the round that the merge ends.
        index: of the merge in its run.
        quorum: of the buffer.
    """
    asked = [asked_exchange(opened) for opened in questions]
    stale = tuple(
        replace(question.questions[0], staleness=number - opened.round)
        for question, opened in zip(asked, questions, strict=True)
    )
    return replace(
        # The questions differ in their round and index only; the last one stands for the others
        asked[-1],
        round=number,
        questions=stale,
        wanted=len(stale),
        quorum=quorum,
        index=index,
    )
