"""Collect the answers of one exchange: ask, validate, count, report, and yield one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from edgefed.algorithms.base import Answer, Relay
from edgefed.coordinator.engine_deps import EngineDeps
from edgefed.coordinator.event_journal import EventJournal
from edgefed.coordinator.fleet import Delivered, Fleet
from edgefed.coordinator.relayed_blobs import RelayedBlobs
from edgefed.coordinator.reply_checks import Rejection, check
from edgefed.coordinator.reply_stats import ReplyStats
from edgefed.coordinator.run_controls import RunControls
from edgefed.coordinator.run_model import RunModel
from edgefed.coordinator.run_records import OpenExchange
from edgefed.coordinator.tasks import asked_exchange
from edgefed.wire.messages import Reply


class ReplyCollector:
    """Collects for one exchange.

    Args:
        reject_reason: the algorithm's own check of an answer.
        relays: keeps the blobs that answers send to other devices.

    Attributes:
        relayed: references to those blobs.
    """

    def __init__(
        self,
        opened: OpenExchange,
        fleet: Fleet,
        journal: EventJournal,
        controls: RunControls,
        reject_reason: Callable[[Answer], str],
        relays: RelayedBlobs,
    ) -> None:
        self.stats = ReplyStats()
        self.relayed: list[Relay] = []
        self._opened = opened
        self._fleet = fleet
        self._journal = journal
        self._controls = controls
        self._reject_reason = reject_reason
        self._relays = relays

    def answers(self) -> Iterator[Answer]:
        """Yield checked answers as they come, until enough are there; one is decoded at a time."""
        opened = self._opened
        self._report("broadcast")
        if not opened.tasks:
            return
        for delivered in self._fleet.ask(opened, self._controls.interrupted):
            if delivered.reply.device in self.stats.devices:
                continue  # merged already: it comes twice when a receipt was lost
            answer = self._judge(delivered)
            if answer is None:
                continue
            yield answer
            if self.stats.accepted >= opened.wanted:
                return

    def _judge(self, delivered: Delivered) -> Answer | None:
        reply = delivered.reply
        if reply.status != "ok":
            self.stats.decline(reply.reason)
            self._fleet.verdict(reply, "rejected", reply.reason)
            self._note(delivered, reply.status, reply.reason)
            return None
        try:
            answer = check(delivered, self._opened, self._reject_reason)
            self._relays.keep(answer.relayed, delivered.read)
        except Rejection as rejection:
            self.stats.decline(str(rejection))
            self._fleet.verdict(reply, "rejected", str(rejection))
            self._note(delivered, "rejected", str(rejection))
            return None
        self.relayed += answer.relayed
        self.stats.accept(reply)
        self._fleet.verdict(reply, "accepted", "")
        self._note(delivered, "accepted", "")
        return answer

    def _report(self, phase: str) -> None:
        opened = self._opened
        self._journal.emit(
            "exchange",
            round=opened.round,
            exchange=opened.exchange,
            question=opened.name,
            detail=opened.detail,
            phase=phase,
            asked=len(opened.tasks),
            wanted=opened.wanted,
            quorum=opened.quorum,
            deadline=opened.deadline,
        )

    def _note(self, delivered: Delivered, outcome: str, reason: str) -> None:
        reply = delivered.reply
        if self.stats.accepted == 1 and outcome == "accepted":
            self._report("collect")
        self._journal.emit(
            "reply",
            round=self._opened.round,
            exchange=self._opened.exchange,
            device=reply.device,
            outcome=outcome,
            reason=reason,
            samples=reply.samples,
            loss=reply.metrics.get("loss"),
            question=self._opened.name,
            # What is not accepted was not checked, and may hold numbers of any kind.
            shared=_shared(reply.metrics)
            if outcome == "accepted" and self._opened.preparatory
            else None,
            bytes=delivered.size,
            seconds=round(delivered.seconds, 3),
            accepted=self.stats.accepted,
            **_tested(reply, self._opened.name, outcome),
        )


def make_collector(deps: EngineDeps, run_model: RunModel, opened: OpenExchange) -> ReplyCollector:
    """Return the collector of an exchange; the run's algorithm checks the answers."""
    asked = asked_exchange(opened)
    model = run_model.trainers.get(asked.model).model

    def reject_reason(answer: Answer) -> str:
        return deps.algorithm.reject_reason(asked, answer, model)

    return ReplyCollector(
        opened, deps.fleet, deps.journal, deps.controls, reject_reason, deps.relays
    )


def _tested(reply: Reply, question: str, outcome: str) -> dict[str, float]:
    """Return the accuracy of a device's test that was accepted; nothing of another reply."""
    if question != "evaluate" or outcome != "accepted" or "accuracy" not in reply.metrics:
        return {}
    return {"accuracy": reply.metrics["accuracy"]}


def _shared(metrics: Mapping[str, float]) -> dict[str, int] | None:
    """Return what averaged data a reply brings: entries, and the smallest group behind one."""
    if "entries" not in metrics:
        return None
    return {"entries": int(metrics["entries"]), "group": int(metrics.get("group", 0))}
