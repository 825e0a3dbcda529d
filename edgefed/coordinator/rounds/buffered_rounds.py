"""Buffered rounds: devices train all the time, and a round ends when its buffer is full.

Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba: Federated Learning with Buffered Asynchronous
Aggregation, AISTATS 2022 (FedBuff, algorithm 1). Each question asks one device, which trains from
the newest weights. The answer waits in the buffer until ``rounds.buffer`` of them are there; they
are merged as one exchange, in which each has its staleness (``Question.staleness``).

A buffer takes one answer of a device, which is asked again with the weights of the next round. A
fast device thus has at most a share of 1 / ``rounds.buffer`` in every round. A buffer also closes
at ``rounds.deadline``, or when nobody else can be asked, if it has its quorum.

Every question is stored before it is put, as an exchange of its own, and is closed with the commit
of its merge. Devices keep their replies until then, so a restart loses no answer and merges none
twice. The round's row records the outcome of each question (``Settled``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Exchange, Finished
from edgefed.algorithms.interface.member import Member, Roster
from edgefed.algorithms.selection.selection import Selection
from edgefed.config.recipes.recipe import ModelSection
from edgefed.coordinator.devices.trust_scores import Judged
from edgefed.coordinator.exchanges.buffered_answers import (
    Outcome,
    Settled,
    merged_exchange,
    settled_in,
)
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.exchanges.tasks import encode_payloads, open_exchange, single_questions
from edgefed.coordinator.reports.staleness_table import StalenessTable
from edgefed.coordinator.rounds.engine_deps import BetweenRounds, EngineDeps
from edgefed.coordinator.rounds.held_replies import Medians, Pins
from edgefed.coordinator.rounds.label_audit import audited
from edgefed.coordinator.rounds.open_questions import (
    OnTested,
    OpenQuestion,
    OpenTest,
    read_answers,
)
from edgefed.coordinator.rounds.reply_collector import make_collector
from edgefed.coordinator.rounds.reply_stats import ReplyStats
from edgefed.coordinator.rounds.run_recorder import RunRecorder
from edgefed.coordinator.rounds.run_state import RunState
from edgefed.coordinator.rounds.trust_updates import judge, note_missed
from edgefed.coordinator.rounds.unmerged import merged_or_problem
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.errors import TimeLimitError, UnmergeableError, UsageError
from edgefed.events.base.model import Phase
from edgefed.events.history.early_stopping import MEASURED, SETTLED, Row
from edgefed.seeds import derive, generator


class BufferedRounds:
    """Asks free devices, fills a buffer, and merges it, round after round.

    Args:
        deps: the engine's.
        recorder: keeps the run's row.
        selection: chooses among free devices.
        section: returns the network of a state.
        phase: called with the name of each phase that begins.
    """

    def __init__(
        self,
        deps: EngineDeps,
        recorder: RunRecorder,
        selection: Selection,
        section: Callable[[State], ModelSection],
        phase: Callable[[Phase], None],
    ) -> None:
        self._deps = deps
        self._recorder = recorder
        self._selection = selection
        self._section = section
        self._phase = phase
        self._fleet = deps.fleet
        self._rounds = deps.recipe.rounds
        self._open: dict[str, OpenQuestion] = {}
        self._numbers: dict[str, int] = {}
        self._merged: dict[str, int] = {}
        self._settled_through: dict[str, int] = {}
        self._unwritten: list[OpenExchange] = []
        self._put_again: set[int] = set()
        self._early: list[Delivered] = []
        self._stats = ReplyStats()
        self._blamed: dict[str, str] = {}
        self._refused: set[str] = set()
        self._test: OpenTest | None = None
        self._attempt = 0
        self._number, self._encoded = 0, -1
        self._closes_at = math.inf
        self._left_at: float | None = None
        self.staleness = StalenessTable()

    def begin(
        self, state: RunState, rows: Iterable[Row], settled_through: Mapping[str, int]
    ) -> None:
        """Go on from the stored questions; ``rows`` are the detailed ones of the rounds so far."""
        self._settled_through.update(settled_through)
        before = [question for row in rows for question in settled_in(row)]
        before += settled_in(self._recorder.record.progress)
        for question in before:
            self._count(question.device, question.number)
            if question.outcome == "merged":
                self._merged[question.device] = question.number
        for opened in state.questions:
            if opened.tasks:
                self._count(opened.tasks[0].device, opened.number or 0)
                if not self._fleet.simulated:  # else replies come with their times again
                    self._put_again.add(opened.index)
                self._put(state, opened)
            else:  # of another protocol version
                self._unwritten.append(opened)

    def oldest(self) -> int | None:
        """Return the index of the oldest question whose answer is not merged; None without any."""
        indexes = [question.opened.index for question in self._open.values()]
        indexes += [] if self._test is None else [self._test.opened.index]
        return min(indexes, default=None)

    def end(self, *, put_again: bool) -> None:
        """Drop all open questions; ``put_again``: they are put again after a restart."""
        for question in self._open.values():
            question.pins.release()
            self._fleet.drop(question.opened, put_again=put_again)
        self._open.clear()
        if self._test is not None:
            self._fleet.drop(self._test.opened)
            self._test = None

    def between_rounds(self) -> BetweenRounds:
        """Return the state to go on from; no answer is in the buffer, as its round has ended."""
        run, closed = self._recorder.record.run, [*self._unwritten]
        for opened in closed:
            self._recorder.written(partial(self._deps.store.close_exchange, run, opened))
        self._unwritten.clear()
        tested = None if self._test is None else self._test.state.state
        return BetweenRounds(dict(self._settled_through), tested)

    def finish(self, state: RunState) -> None:
        """Close all open questions for good: the run has ended."""
        record, held = self._recorder.record, state.downlink.to_json()
        settles = [*(question.opened for question in self._open.values()), *self._unwritten]
        settles += [] if self._test is None else [self._test.opened]
        store = self._deps.store
        self._recorder.written(lambda: store.begin_questions(record, (), held, settles=settles))
        self._unwritten.clear()
        self.end(put_again=False)
        self._fleet.forget([exchange.exchange for exchange in settles])

    def next(self, state: RunState) -> Exchange | Finished | None:
        """Work until a round has ended, and return nothing.

        Return an exchange of a part of the method that comes first, for the engine to put to all
        its devices at once; or the end of the run.

        Raises:
            Aborted, Stopping: by an order.
            TimeLimitError: ``round.quorum``: too few devices answered, also in the retries.
        """
        self._begin_buffer(state)
        while True:
            self._deps.controls.check()
            if (other := self._ask(state)) is not None:
                return self._leave(other)
            if self._is_full():
                if self._merge(state):
                    return self._leave(None)
                self._phase("collect")
                continue
            interrupted = self._deps.controls.interrupted
            delivered = self._fleet.next_reply(self._closes_at, interrupted)
            if delivered is not None:
                self._take(delivered)
            for exchange, why in self._fleet.overdue().items():
                if exchange in self._open:
                    self._settle(self._open[exchange], why)
                else:
                    self._end_test()

    def _leave(self, result: Exchange | Finished | None) -> Exchange | Finished | None:
        self._left_at = self._deps.clock.monotonic()
        return result

    # -- the buffer ---------------------------------------------------------------------------

    def _begin_buffer(self, state: RunState) -> None:
        """Begin the buffer of the next round; time that was spent elsewhere does not count."""
        now = self._deps.clock.monotonic()
        away = 0.0 if self._left_at is None else now - self._left_at
        self._fleet.postpone(away)
        self._closes_at += away
        number = state.state.round + 1
        if number == self._number or number > self._rounds.count:
            return
        self._number, self._attempt = number, 0
        self._stats = ReplyStats()
        self._blamed.clear()
        self._refused.clear()
        self._recorder.begin_round(number)
        self._restart_deadline()
        early, self._early = self._early, []
        for delivered in early:
            self._take(delivered)

    def _restart_deadline(self) -> None:
        self._closes_at = self._deps.clock.monotonic() + self._rounds.deadline

    def _tell(self, question: str) -> None:
        """Emit the buffer as the open exchange of the run."""
        at_work = sum(question.held is None for question in self._open.values())
        self._deps.journal.emit(
            "exchange",
            round=self._number,
            exchange=f"{self._recorder.record.run}-buffer-{self._number}",
            question=question,
            phase="collect",
            asked=at_work,
            wanted=self._wanted,
            quorum=self._quorum,
            deadline=self._rounds.deadline,
        )

    @property
    def _wanted(self) -> int:
        order = self._deps.order
        return self._rounds.buffer if order is None else len(order.answered.get(self._number, ()))

    @property
    def _quorum(self) -> int:
        share = math.ceil(round(self._rounds.quorum * self._rounds.buffer, 6))
        return max(1, share, self._deps.recipe.merging.least_answers)

    def _answered(self) -> list[OpenQuestion]:
        """Return the questions whose answers are in the buffer, sorted by device."""
        held = (question for question in self._open.values() if question.held is not None)
        return sorted(held, key=lambda question: question.device)

    def _is_full(self) -> bool:
        """Return whether the buffer is to be merged.

        Raises:
            TimeLimitError: it does not reach its quorum, in the last attempt.
            UsageError: ``order.devices``: the recorded order cannot be followed.
        """
        answered = len(self._answered())
        if answered >= self._wanted:
            return answered > 0
        at_work = len(self._open) - answered
        if self._deps.order is not None:
            if at_work:
                return False
            raise UsageError(
                f"Round {self._number} cannot be repeated: {answered} of {self._wanted} answers of"
                " the recorded order are there.",
                code="order.devices",
                hint="simulate the devices of that run, with their data and its recipe",
            )
        comes = self._fleet.may_change and answered < self._quorum and not self._refused
        waits = at_work > 0 or comes  # of lost devices, as many as the quorum lacks are awaited
        if waits and self._deps.clock.monotonic() < self._closes_at:
            return False
        if answered >= self._quorum:
            return True
        self._try_again(f"only {answered} of {self._wanted} answers are there")
        return False

    def _try_again(self, problem: str) -> None:
        """Give a buffer without its quorum more time, and ask again those that refused."""
        text = f"{problem}, the quorum of round {self._number} is {self._quorum}"
        if self._attempt >= self._rounds.retries:
            raise TimeLimitError(
                f"{text[0].upper()}{text[1:]}.",
                code="round.quorum",
                hint=self._stats.advice(self._deps.recipe.training.learning_rate),
            )
        self._attempt += 1
        self._recorder.warn(f"{text}; asking again")
        self._refused.clear()
        self._restart_deadline()

    # -- questions ----------------------------------------------------------------------------

    def _ask(self, state: RunState) -> Exchange | Finished | None:
        """Ask the devices that are free; return an exchange that comes first, if any."""
        ended, order = state.state.round >= self._rounds.count, self._deps.order
        if order is not None and state.state.round + 1 not in order.answered:
            return Finished()
        if not ended and self._encoded < state.state.round:
            self._encode(state)
        free = () if ended else self._free(state)
        if not (free or ended):
            return None
        seed = derive(self._deps.recipe.seed, "plan", self._recorder.record.seed_index)
        free = self._selection.ranked(free, self._number, seed)
        planned = self._deps.algorithm.plan(state.state, free, seed)
        if isinstance(planned, Finished) or planned.preparatory or ended:
            return planned
        if planned.questions:
            self._put_all(state, planned)
            self._tell(planned.name)
        return None

    def _encode(self, state: RunState) -> None:
        """Encode the weights of a round, also if no device is asked with them.

        A lossy code is a difference from the weights that were encoded before, so the bits of later
        rounds would depend on which devices are free.
        """
        if not (able := self._able(state)):
            return
        recipe = self._deps.prepared_recipe
        planned = self._deps.algorithm.plan(state.state, able[:1], recipe.seed)
        if isinstance(planned, Exchange) and not planned.preparatory:
            self._recorder.written(lambda: encode_payloads(planned, recipe, state.downlink))
            self._encoded = state.state.round

    def _able(self, state: RunState) -> Roster:
        """Return the devices that can be asked once they are free."""
        roster = state.admission.roster_without(self._recorder.record.silent, self._number)
        return tuple(member for member in roster if member.samples and not member.newcomer)

    def _free(self, state: RunState) -> Roster:
        """Return the devices to ask now: all that are free, or a choice of them."""
        busy = {question.device for question in self._open.values()} | self._refused
        order, slots = self._deps.order, self._rounds.concurrency
        slots -= len(self._open) - len(self._answered())
        if order is None and self._rounds.concurrency and slots < 1:
            return ()
        free = tuple(member for member in self._able(state) if member.device not in busy)
        if order is not None:
            return tuple(member for member in free if self._is_ordered(state, member))
        if not self._rounds.concurrency or len(free) <= slots:
            return free
        seed, exchanges = self._deps.recipe.seed, self._recorder.record.exchanges
        if self._deps.recipe.selection.wanted:
            seed = derive(seed, "free", exchanges)
            first = set(self._selection.first(free, slots, self._number, seed))
            return tuple(member for member in free if member.device in first)
        chosen = generator(seed, "free", exchanges).permutation(len(free))[:slots]
        return tuple(free[index] for index in sorted(chosen))

    def _is_ordered(self, state: RunState, member: Member) -> bool:
        """Whether the recorded order asks a device now, which it was not yet."""
        assert self._deps.order is not None
        asked = self._deps.order.asked.get(state.state.round, {})
        number = asked.get(member.device)
        return number is not None and number >= self._numbers.get(member.device, 0)

    def _number_of(self, state: RunState, device: str) -> int:
        if self._deps.order is not None:
            return self._deps.order.asked[state.state.round][device]
        return self._numbers.get(device, 0)

    def _put_all(self, state: RunState, planned: Exchange) -> None:
        """Write the questions of an exchange down, each by itself, and put them."""
        recorder, recipe, store = self._recorder, self._deps.prepared_recipe, self._deps.store
        devices = (question.device for question in planned.questions)
        numbers = {device: self._number_of(state, device) for device in devices}
        opened = recorder.written(
            lambda: open_exchange(
                planned,
                run=recorder.record.run,
                index=recorder.record.next_index,
                seed_index=recorder.record.seed_index,
                recipe=recipe,
                section=self._section(state.state),
                run_model=state.run_model,
                algorithm=self._deps.algorithm,
                downlink=state.downlink,
                attempt=0,
                numbers=numbers,
            )
        )
        questions = single_questions(opened, numbers, self._merged, self._settled_through)
        self._hold(state, questions)
        recorder.account()
        record, more = recorder.record, len(questions)
        begun = replace(
            record,
            exchanges=record.exchanges + more,
            preparatory_exchanges=record.preparatory_exchanges + more,
        )
        held, settled = state.downlink.to_json(), tuple(self._unwritten)
        recorder.written(lambda: store.begin_questions(begun, questions, held, settles=settled))
        recorder.record = begun
        self._unwritten.clear()
        self._fleet.forget([exchange.exchange for exchange in settled])
        for question in questions:
            self._count(question.tasks[0].device, question.number or 0)
            self._put(state, question)

    def _hold(self, state: RunState, more: Iterable[OpenExchange] = ()) -> None:
        """Keep the blobs that open questions name."""
        opened = [question.opened for question in self._open.values() if question.held is None]
        tasks = (task for exchange in (*opened, *more) for task in exchange.tasks)
        state.downlink.hold(ref for task in tasks for ref in task.blobs.values())

    def _put(self, state: RunState, opened: OpenExchange) -> None:
        collector = make_collector(self._deps, state.run_model, opened, in_buffer=True)
        self._open[opened.exchange] = OpenQuestion(opened, collector, Pins(self._deps.cache))
        self._fleet.put(opened, shared=True)

    def _count(self, device: str, number: int) -> None:
        self._numbers[device] = max(self._numbers.get(device, 0), number + 1)

    # -- answers ------------------------------------------------------------------------------

    def _take(self, delivered: Delivered) -> None:
        """Take a reply to a test or to a question."""
        test, exchange = self._test, delivered.reply.exchange
        question = self._open.get(exchange)
        if test is not None and exchange == test.opened.exchange:
            if (answer := test.collector.take(delivered)) is not None:
                test.answers.append(answer)
            if test.is_over:
                self._end_test()
        elif question is None:
            self._fleet.verdict(delivered.reply, "late", "its question is closed")
        elif question.held is None:
            self._take_answer(question, delivered)

    def _take_answer(self, question: OpenQuestion, delivered: Delivered) -> None:
        """Put an answer into the buffer, or refuse it."""
        if self._is_stale(question):  # a restart came before it was closed
            self._fleet.verdict(delivered.reply, "late", "too many rounds have ended since")
            self._settle(question, "stale")
            return
        if (order := self._deps.order) is not None:
            wanted = order.answered.get(self._number, {}).get(question.device)
            if wanted != question.opened.number:
                self._early.append(delivered)
                return
        collector = question.collector
        collector.stats = self._stats
        question.pins.pin(ref.digest for ref in delivered.reply.blobs.values())
        held = collector.hold(delivered)
        if held is not None:
            question.accepted = not collector.holds and collector.accept(held)
            if question.accepted or collector.holds:
                question.held = held
                return
        self._blamed |= collector.blamed
        self._refused.add(question.device)
        self._settle(question, "refused")

    def _is_stale(self, question: OpenQuestion) -> bool:
        """Whether an answer would be too old for the buffer at hand."""
        return self._number - question.opened.round > self._rounds.max_staleness

    def _settle(self, question: OpenQuestion, outcome: Outcome) -> None:
        """Close a question whose answer is not merged."""
        opened = question.opened
        question.pins.release()
        del self._open[opened.exchange]
        self._unwritten.append(opened)
        self._note([Settled.of(opened, outcome)])
        self._settled_through[question.device] = opened.index
        self._fleet.drop(opened)
        missed = self._fleet.missed_deadline(opened)
        if outcome == "late" and missed:
            note_missed(self._recorder, self._number, missed, ())
        refused = {question.device} if outcome == "refused" else set()
        self._fleet.contributions.add(opened, {}, refused)

    def _note(self, settled: Iterable[Settled]) -> None:
        """Add closed questions to the progress of the round, which is written with the next row."""
        record = self._recorder.record
        closed = list(settled)
        noted = [*record.progress.get(SETTLED, ()), *(entry.to_json() for entry in closed)]
        progress = {**record.progress, SETTLED: noted}
        if self._selection.measures:
            unmeasured: dict[str, list[Any]] = {entry.device: [] for entry in closed}
            progress[MEASURED] = unmeasured | progress.get(MEASURED, {})
        self._recorder.record = replace(record, progress=progress)

    # -- tests on devices ---------------------------------------------------------------------

    @property
    def is_testing(self) -> bool:
        """Whether devices test an earlier round."""
        return self._test is not None

    def begin_test(self, state: RunState, opened: OpenExchange, on_tested: OnTested) -> None:
        """Put a test to devices, which do it between two tasks; later rounds do not wait."""
        collector = make_collector(self._deps, state.run_model, opened, in_buffer=True)
        self._test = OpenTest(copy(state), opened, collector, on_tested, [])
        self._fleet.put(opened, shared=True)

    def _end_test(self) -> None:
        """Hand over the answers that are there."""
        test, self._test = self._test, None
        assert test is not None
        self._fleet.drop(test.opened)
        test.on_tested(test.state, test.opened, test.collector, test.answers)
        self._fleet.forget([test.opened.exchange])

    # -- the merge ----------------------------------------------------------------------------

    def _merge(self, state: RunState) -> bool:
        """Merge the buffer and commit it; return whether that ended the round."""
        self._phase("merge")
        answered = self._compared(self._answered())
        if len(answered) < min(self._quorum, self._wanted):
            self._try_again(f"only {len(answered)} of {self._wanted} answers were accepted")
            return False
        before, recorder = state.state, self._recorder
        index = recorder.record.next_index
        opened = tuple(question.opened for question in answered)
        asked = merged_exchange(opened, self._number, index, self._quorum)
        answers = audited(self._deps, recorder.record.run, state, asked, read_answers(answered))
        merged = merged_or_problem(self._deps.algorithm, before, asked, answers)
        self._deps.controls.check()
        if isinstance(merged, UnmergeableError):
            for question in answered:
                if question.device in merged.devices or not merged.devices:
                    self._settle(question, "refused")
            self._try_again(merged.message)
            return False
        accepted = self._stats.devices
        judge(self._deps, recorder, Judged(opened[-1].exchange, accepted, self._blamed))
        note_missed(recorder, self._number, (), accepted)
        self._note(Settled.of(exchange, "merged") for exchange in opened)
        self._commit(state, merged, opened)
        for remark in self._deps.algorithm.remarks(before, asked, merged):
            recorder.note(remark.text, warning=remark.warning)
        self._close(state, answered, asked)
        return True

    def _compared(self, answered: list[OpenQuestion]) -> list[OpenQuestion]:
        """Return the questions whose answers are accepted, where they are compared first."""
        if not answered[0].collector.holds:
            return answered
        held = [question.held for question in answered if question.held is not None]
        medians = Medians.of(held, answered[-1].opened)
        kept = []
        for question in answered:
            assert question.held is not None
            if not question.accepted:
                question.accepted = question.collector.accept(question.held, medians)
            if question.accepted:
                kept.append(question)
            else:
                self._blamed |= question.collector.blamed
                self._refused.add(question.device)
                self._settle(question, "refused")
        return kept

    def _commit(self, state: RunState, merged: State, opened: tuple[OpenExchange, ...]) -> None:
        """Write the state, and close its questions and those that were closed since, in one step.

        The merge has an index of its own, since a state's file is named after it.
        """
        recorder, store = self._recorder, self._deps.store
        epsilon = self._deps.algorithm.round_metrics(merged).get("epsilon")
        settled = (entry.device for entry in settled_in(recorder.record.progress))
        measured = {*settled} if self._selection.measures else ()
        asked_twice = (exchange for exchange in opened if exchange.index in self._put_again)
        again = {exchange.tasks[0].device for exchange in asked_twice}
        after = recorder.with_answers(self._stats, epsilon, measured, again)
        exchanges, preparatory = after.exchanges + 1, after.preparatory_exchanges + 1
        after = replace(after, exchanges=exchanges, preparatory_exchanges=preparatory)
        held, settles = state.downlink.to_json(), (*opened, *self._unwritten)
        merged = recorder.written(partial(store.commit, after, merged, held, settles=settles))
        recorder.record, state.state = after, merged
        self._fleet.forget([exchange.exchange for exchange in self._unwritten])
        self._unwritten.clear()

    def _close(self, state: RunState, answered: list[OpenQuestion], asked: Exchange) -> None:
        """Drop the questions whose answers are merged, and those that are too old now."""
        stale = {question.device: question.staleness for question in asked.questions}
        self.staleness.add(stale, self._deps.clock.monotonic())
        for question in answered:
            opened = question.opened
            question.pins.release()
            del self._open[opened.exchange]
            self._settled_through[question.device] = opened.index
            self._merged[question.device] = opened.number or 0
            self._fleet.drop(opened)
            samples = {question.device: self._stats.devices[question.device]}
            self._fleet.contributions.add(opened, samples, ())
        self._fleet.forget([question.opened.exchange for question in answered])
        for question in [*self._open.values()]:
            if self._number - question.opened.version > self._rounds.max_staleness:
                self._settle(question, "stale")
        self._hold(state)
        state.downlink.committed()
