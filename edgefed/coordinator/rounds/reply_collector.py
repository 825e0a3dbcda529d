"""Collect the answers of one exchange: ask, validate, count, report, and yield one at a time.

A reply is judged when it arrives. Where replies are compared or merged by a robust rule, they are
judged when all have arrived, in the order of devices, so that nothing depends on the order of
arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgefed.algorithms.averaging.training import trained_samples
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.exchange import Relay
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.config.recipes.checks_section import ChecksSection
from edgefed.config.recipes.merging_section import MergingSection
from edgefed.coordinator.exchanges.fleet import Delivered, Fleet
from edgefed.coordinator.exchanges.relayed_blobs import RelayedBlobs
from edgefed.coordinator.exchanges.reply_checks import Rejection, check
from edgefed.coordinator.exchanges.site_sums import check_sum
from edgefed.coordinator.exchanges.tasks import asked_exchange
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.models.run_model import RunModel
from edgefed.coordinator.rounds.engine_deps import EngineDeps
from edgefed.coordinator.rounds.held_replies import HeldReply, Medians, Pins, hold, trained_roles
from edgefed.coordinator.rounds.reply_stats import ReplyStats
from edgefed.coordinator.rounds.robust_merging import RobustMerging
from edgefed.coordinator.rounds.run_controls import RunControls
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.wire.blobs import BlobCache
from edgefed.wire.messages import Reply


@dataclass(frozen=True)
class CollectorDeps:
    """The dependencies of a collector.

    Attributes:
        reject_reason: the algorithm's own check of an answer.
        merge_group: the group of answers that the algorithm averages together.
        relays: keeps the blobs that answers send to other devices.
        cache: keeps the blobs of replies that are held.
        quarantined: whether a device's replies are refused.
        checks, merging: the recipe's tables.
    """

    fleet: Fleet
    journal: EventJournal
    controls: RunControls
    reject_reason: Callable[[Answer], str]
    merge_group: Callable[[Answer], str]
    relays: RelayedBlobs
    cache: BlobCache
    quarantined: Callable[[str], bool]
    checks: ChecksSection
    merging: MergingSection


class ReplyCollector:
    """Collects the answers of one exchange, or of one question of a buffer.

    Args:
        opened: the exchange.
        deps: the collector's.
        in_buffer: whether it is a question of buffered rounds; its ``stats`` are then set to those
            of the buffer.

    Attributes:
        stats: statistics of the replies.
        relayed: references to the blobs that answers send to other devices.
        blamed: devices whose replies were refused for their contents, with reasons.
        on_collected: called when no further answer is waited for.
    """

    def __init__(
        self, opened: OpenExchange, deps: CollectorDeps, *, in_buffer: bool = False
    ) -> None:
        self.stats = ReplyStats()
        self._in_buffer = in_buffer
        self.relayed: list[Relay] = []
        self.blamed: dict[str, str] = {}
        self.on_collected: Callable[[], None] = lambda: None
        self._opened = opened
        self._deps = deps
        self._fleet = deps.fleet
        self._journal = deps.journal
        self._robust: RobustMerging | None = None
        compares = deps.checks.compares or deps.merging.needs_all
        self._holds = compares and bool(trained_roles(opened))

    def answers(self) -> Generator[Answer, None, None]:
        """Yield checked answers until enough are there; one is decoded at a time."""
        self._report("broadcast")
        if self._opened.tasks:
            yield from self._held_answers() if self._holds else self._arriving_answers()
        self.on_collected()

    def merged(self, answers: Iterable[Answer]) -> Iterator[Answer]:
        """Yield answers with the rule of ``[merging]`` applied."""
        # Unlike a loop variable, map keeps no answer while the next one is decoded.
        return map(self._changed, answers)

    def _changed(self, answer: Answer) -> Answer:
        return answer if self._robust is None else self._robust.changed(answer)

    def _arriving_answers(self) -> Iterator[Answer]:
        """Yield each answer when it arrives."""
        opened = self._opened
        self._robust = self.merging((), None)
        for delivered in self._fleet.ask(opened, self._deps.controls.interrupted):
            if delivered.parts:
                # A sum stands for several devices, and is taken whole or not at all
                yield from self._summed(delivered)
                continue
            answer = self._keepable(delivered)
            if answer is None:
                continue
            try:
                yield answer
            finally:
                del answer  # before the next one is decoded
                # Verdict and event follow the merge, which waits for neither disk nor screens
                self._accept(delivered)
            if self.stats.accepted >= opened.wanted:
                return

    # -- replies that wait for all others -------------------------------------------------------

    def _held_answers(self) -> Iterator[Answer]:
        """Yield the answers, in the order of devices, once all are there and compared.

        The exchange stays open meanwhile, so that nothing deletes the blobs of its replies.
        """
        opened, interrupted = self._opened, self._deps.controls.interrupted
        pins = Pins(self._deps.cache)
        try:
            self._fleet.put(opened)
            held = self._hold_all(pins)
            # The exchange is put again, and a part of the cohort has other medians than the whole
            if interrupted():
                return
            medians = Medians.of(held, opened)
            accepted = [reply for reply in held if self.accept(reply, medians)]
            self._robust = self.merging(accepted, medians)
            for reply in accepted:
                yield reply.read(opened)
        finally:
            pins.release()
            self._fleet.drop(opened, put_again=interrupted())

    def _hold_all(self, pins: Pins) -> list[HeldReply]:
        """Return the replies that pass the checks of a single one, sorted by device."""
        opened, held = self._opened, dict[str, HeldReply]()
        for delivered in self._fleet.replies(opened, self._deps.controls.interrupted):
            device = delivered.reply.device
            if device in held:
                continue
            # Pinned before it is checked: its blobs are read again when all are there
            pins.pin(ref.digest for ref in delivered.reply.blobs.values())
            reply = self.hold(delivered)
            if reply is None:
                continue
            if not held:
                self._report("collect")
            held[device] = reply
            if len(held) >= opened.wanted:
                break
        # In the order of devices, so that nothing depends on the order of arrival
        return [held[device] for device in sorted(held)]

    @property
    def holds(self) -> bool:
        """Whether replies are accepted only once all are there and compared."""
        return self._holds

    def hold(self, delivered: Delivered) -> HeldReply | None:
        """Return a reply that may be merged, to be held; tell why of another one."""
        answer = self._checked(delivered)
        if answer is None:
            return None
        # Towards the quorum now, so that the grace of lost devices begins; the verdict follows
        self._fleet.hold(delivered.reply)
        roles = trained_roles(self._opened) if self._holds else ()
        return hold(delivered, answer, self._deps.merge_group(answer), roles)

    def accept(self, held: HeldReply, medians: Medians | None = None) -> bool:
        """Accept a held reply, or refuse it for how much it differs from the others."""
        reason = "" if medians is None else medians.problem(held, self._deps.checks)
        if reason:
            self._refuse(held.delivered, Rejection(reason))
            return False
        if self._keeps(held.delivered, held.answer):
            self._accept(held.delivered)
            return True
        return False

    def take(self, delivered: Delivered) -> Answer | None:
        """Accept a reply and return its answer, or refuse it."""
        answer = self._keepable(delivered)
        if answer is not None:
            self._accept(delivered)
        return answer

    def _keepable(self, delivered: Delivered) -> Answer | None:
        """Return the answer of a reply that can be accepted; refuse another one."""
        if delivered.reply.device in self.stats.devices:
            return None  # merged already: it comes twice when a receipt was lost
        answer = self._checked(delivered)
        return answer if answer is not None and self._keeps(delivered, answer) else None

    def _summed(self, delivered: Delivered) -> list[Answer]:
        """Accept the sum of a site and return answers that have it, or refuse it."""
        deps = self._deps
        try:
            if out := [one.device for one in delivered.replies if deps.quarantined(one.device)]:
                reason = f"the sum of its site has an answer of {out[0]}, which is quarantined"
                raise Rejection(reason, blamed=False)
            factor = deps.checks.announced_factor
            answers = check_sum(delivered, self._opened, deps.reject_reason, factor)
        except Rejection as rejection:
            # Nobody can tell which share of a sum is wrong, so all of its devices are refused
            for part in delivered.parts:
                self._refuse(part, rejection)
            return []
        for part in delivered.parts:
            self._accept(part)
        self.stats.summed += len(delivered.parts)
        return answers

    def merging(
        self, accepted: Sequence[HeldReply], medians: Medians | None
    ) -> RobustMerging | None:
        """Return the rule of ``[merging]`` for these replies; None for the mean."""
        if self._deps.merging.rule == "mean":
            return None
        return RobustMerging(self._deps.merging, self._opened, accepted, medians)

    # -- one reply ------------------------------------------------------------------------------

    def _checked(self, delivered: Delivered) -> Answer | None:
        """Return the answer of a reply that may be merged; tell why of another one."""
        reply = delivered.reply
        # A device may decline or fail without fault, so nobody is blamed
        if reply.status != "ok":
            self.stats.decline(reply.device, reply.reason)
            self._fleet.verdict(reply, "rejected", reply.reason)
            self._note(delivered, reply.status, reply.reason)
            return None
        try:
            if self._deps.quarantined(reply.device):
                raise Rejection("its device is quarantined", blamed=False)
            return check(
                delivered,
                self._opened,
                self._deps.reject_reason,
                self._deps.checks.announced_factor,
            )
        except Rejection as rejection:
            self._refuse(delivered, rejection)
            return None

    def _keeps(self, delivered: Delivered, answer: Answer) -> bool:
        """Keep the blobs of a checked reply for other devices; refuse it if that fails."""
        # Checked last, so that no blob is kept of an answer that is refused
        if answer.relayed:
            try:
                self._deps.relays.keep(answer.relayed, delivered.read)
            except Rejection as rejection:
                self._refuse(delivered, rejection)
                return False
            self.relayed += answer.relayed
        return True

    def _accept(self, delivered: Delivered) -> None:
        self.stats.accept(delivered.reply, delivered.seconds)
        self._fleet.verdict(delivered.reply, "accepted", "")
        self._note(delivered, "accepted", "")

    def _refuse(self, delivered: Delivered, rejection: Rejection) -> None:
        reply, reason = delivered.reply, str(rejection)
        if rejection.blamed:
            self.blamed[reply.device] = reason
        self.stats.decline(reply.device, reason)
        self._fleet.verdict(reply, "rejected", reason)
        self._note(delivered, "rejected", reason)

    # -- what is told ---------------------------------------------------------------------------

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
        first = self.stats.accepted == 1 and outcome == "accepted"
        if first and not (self._holds or self._in_buffer):
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
            **_measured(delivered, self._opened),
            **({} if reply.cost.joules is None else {"joules": reply.cost.joules}),
        )


def make_collector(
    deps: EngineDeps,
    run_model: RunModel,
    opened: OpenExchange,
    *,
    in_buffer: bool = False,
) -> ReplyCollector:
    """Return the collector of an exchange; the run's algorithm checks the answers."""
    asked = asked_exchange(opened)
    model = run_model.trainers.get(asked.model).model

    def reject_reason(answer: Answer) -> str:
        return deps.algorithm.reject_reason(asked, answer, model)

    algorithm: CompleteAlgorithm[Any] = deps.algorithm
    return ReplyCollector(
        opened,
        CollectorDeps(
            fleet=deps.fleet,
            journal=deps.journal,
            controls=deps.controls,
            reject_reason=reject_reason,
            merge_group=algorithm.merge_group,
            relays=deps.relays,
            cache=deps.cache,
            quarantined=lambda device: deps.trust.is_quarantined(device, opened.exchange),
            checks=deps.recipe.checks,
            merging=deps.recipe.merging,
        ),
        in_buffer=in_buffer,
    )


def _tested(reply: Reply, question: str, outcome: str) -> dict[str, float]:
    """Return the accuracy of a device's test that was accepted; nothing of another reply."""
    if question != "evaluate" or outcome != "accepted" or "accuracy" not in reply.metrics:
        return {}
    return {"accuracy": reply.metrics["accuracy"]}


def _measured(delivered: Delivered, opened: OpenExchange) -> dict[str, float]:
    """Return the seconds of training and upload of an answer, and its work, where known."""
    if opened.preparatory or opened.name == "evaluate" or delivered.training is None:
        return {}
    task = opened.task_of[delivered.reply.device]
    measured = {
        "trained_samples": trained_samples(task, delivered.reply.samples),
        "training_seconds": round(delivered.training, 9),
    }
    if delivered.upload is not None:
        measured["upload_seconds"] = round(delivered.upload, 9)
    cost = delivered.reply.cost
    if cost.download_seconds:
        measured["download_seconds"] = round(cost.download_seconds, 9)
        measured["download_bytes"] = cost.download_bytes
    return measured


def _shared(metrics: Mapping[str, float]) -> dict[str, int] | None:
    """Return the averaged data in a reply: entries, and the smallest group in one."""
    if "entries" not in metrics:
        return None
    return {"entries": int(metrics["entries"]), "group": int(metrics.get("group", 0))}
