"""The open questions of buffered rounds, and a test on devices that goes on beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from edgefed.algorithms.interface.answer import Answer
from edgefed.coordinator.rounds.held_replies import HeldReply, Medians, Pins
from edgefed.coordinator.rounds.reply_collector import ReplyCollector
from edgefed.coordinator.rounds.run_state import RunState
from edgefed.coordinator.storage.stored_runs import OpenExchange


@dataclass
class OpenQuestion:
    """A question that is open.

    Attributes:
        collector: checks its reply.
        pins: keep the blobs of its reply.
        held: its reply, once it is in the buffer.
        accepted: whether its device knows that it will be merged.
    """

    opened: OpenExchange
    collector: ReplyCollector
    pins: Pins
    held: HeldReply | None = None
    accepted: bool = False

    @property
    def device(self) -> str:
        """The device that was asked."""
        return self.opened.tasks[0].device


def read_answers(answered: Sequence[OpenQuestion]) -> Iterator[Answer]:
    """Yield the answers of a buffer, decoded one at a time, changed by the rule of ``[merging]``.

    Args:
        answered: the questions whose answers are in the buffer, at least one.
    """
    last = answered[-1]
    held = [question.held for question in answered if question.held is not None]
    medians = Medians.of(held, last.opened) if last.collector.holds else None
    rule = last.collector.merging(held, medians)
    for reply in held:
        answer = reply.read(last.opened)
        yield answer if rule is None else rule.changed(answer)


OnTested = Callable[[RunState, OpenExchange, ReplyCollector, list[Answer]], None]
"""Called with a state, the exchange of devices that tested it, and their answers."""


@dataclass
class OpenTest:
    """A test on devices, which goes on while later rounds end.

    Attributes:
        state: the tested one.
        on_tested: called at its end.
        answers: those that were accepted.
    """

    state: RunState
    opened: OpenExchange
    collector: ReplyCollector
    on_tested: OnTested
    answers: list[Answer]

    @property
    def is_over(self) -> bool:
        """Whether no further answer is waited for."""
        stats = self.collector.stats
        asked = len(self.opened.tasks)
        # Declined ones are not waited for, so the wanted number may never be reached
        return stats.accepted >= self.opened.wanted or stats.accepted + stats.declined >= asked
