"""Execute one run: plan, ask, merge, commit and score each exchange until the run is finished.

The engine uses the interfaces `Algorithm` and `Fleet` and the store, but no network. All state
between exchanges is in the checkpoint, so it can be killed at any line and restored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from copy import copy
from dataclasses import replace
from functools import partial
from traceback import format_exception
from typing import Any

from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Exchange, Finished
from edgefed.algorithms.interface.member import Roster
from edgefed.algorithms.selection.selection import Selection
from edgefed.coordinator.exchanges.relayed_blobs import delivered_relays
from edgefed.coordinator.exchanges.tasks import asked_exchange, open_exchange
from edgefed.coordinator.models.run_model import check_dataset
from edgefed.coordinator.reports.bounty_orders import after_orders
from edgefed.coordinator.reports.logged_tables import logged_tables
from edgefed.coordinator.reports.table_updates import TableUpdates
from edgefed.coordinator.rounds.buffered_rounds import BufferedRounds
from edgefed.coordinator.rounds.engine_deps import BetweenRounds, EngineDeps
from edgefed.coordinator.rounds.evaluation import Evaluation
from edgefed.coordinator.rounds.label_audit import audited
from edgefed.coordinator.rounds.model_saver import ModelSaver
from edgefed.coordinator.rounds.phase_seconds import PhaseSeconds
from edgefed.coordinator.rounds.reply_collector import ReplyCollector, make_collector
from edgefed.coordinator.rounds.reply_stats import ReplyStats
from edgefed.coordinator.rounds.robust_merging import with_least_answers
from edgefed.coordinator.rounds.run_beginning import begin_run
from edgefed.coordinator.rounds.run_controls import Aborted, Stopping
from edgefed.coordinator.rounds.run_recorder import RunRecorder
from edgefed.coordinator.rounds.run_state import RunState
from edgefed.coordinator.rounds.saved_evaluation import evaluate_paused
from edgefed.coordinator.rounds.scores import NO_SCORES, with_part
from edgefed.coordinator.rounds.trust_updates import fleet_testers, note_testers, update_trust
from edgefed.coordinator.rounds.unmerged import MergeProblem, merged_or_problem, problem_of
from edgefed.coordinator.storage.stored_runs import OpenExchange, RunRecord
from edgefed.coordinator.trackers.base import TrackedRun
from edgefed.coordinator.trackers.metrics import MetricFiles
from edgefed.coordinator.trackers.tracking import Tracking
from edgefed.errors import DISK_MAY_RETURN, EdgeFedError, StorageError, TimeLimitError
from edgefed.events.base.method_tables import TableView
from edgefed.events.history.early_stopping import DEVICE_TESTS
from edgefed.files.plugin_failures import plugin_errors
from edgefed.process.clock import timestamp
from edgefed.seeds import derive


class Engine:
    """Executes one run.

    Args:
        record: the current row of the run.
        deps: all other dependencies.
        on_record: called with the row whenever it changes.
    """

    def __init__(
        self,
        record: RunRecord,
        deps: EngineDeps,
        on_record: Callable[[RunRecord], None] = lambda record: None,
    ) -> None:
        self._deps = deps
        self._recipe = deps.prepared_recipe
        self._algorithm = deps.algorithm
        self._fleet = deps.fleet
        self._controls = deps.controls
        self._recorder = RunRecorder(
            record,
            model=deps.recipe.model.name,
            fleet=deps.fleet,
            store=deps.store,
            journal=deps.journal,
            clock=deps.clock,
            on_record=on_record,
            release=self._release_space,
            wait=deps.controls.wait,
        )
        self._tracking = Tracking(
            (MetricFiles(), *deps.trackers), self._tracked, self._recorder.warn
        )
        self._evaluation = Evaluation(
            self._recipe, self._algorithm, self._device_answers, self._recorder.warn
        )
        self._models = ModelSaver(self._recorder, self._recipe, self._algorithm, deps.store)
        self._tables = TableUpdates(record.run, self._algorithm, deps.journal)
        self._phases = PhaseSeconds(deps.clock)
        self._selection = Selection(deps.recipe, self._recorder.measurements)
        self._put_again = -1
        self.trace = ""
        """Traceback of the error that failed the run."""
        self._buffered = (
            BufferedRounds(
                deps, self._recorder, self._selection, self._models.section, self._phases.enter
            )
            if deps.recipe.rounds.buffered
            else None
        )

    # -- the whole run ------------------------------------------------------------------------

    def run(self) -> RunRecord:
        """Work until the run ends or a stop of the process is requested; return the run's row.

        A failure of the run is recorded in the row (status ``failed``, code and reason), not
        raised.
        """
        state: RunState | None = None
        try:
            with plugin_errors():
                state = self._begin()
                self._tracking.begin()
                reason = self._loop(state)
                if self._buffered is not None:
                    self._buffered.finish(state)
            finding = self._recorder.nothing_learned(state.run_model.model.names)
            if finding is not None:
                reason = f"{reason}; {finding.text}" if reason else finding.text
            self._end(state, "finished", reason, hint="" if finding is None else finding.hint)
        except Stopping:
            self._tables.flush()
        # Nothing is decided: the next start of the process resumes the run
        except Aborted:
            self._end(state, "aborted", "by the operator", "run.aborted")
        except EdgeFedError as error:
            if not self._put_off(error):
                self._fail(state, error)
        finally:
            if self._buffered is not None:
                self._buffered.end(put_again=self._controls.stopping)
            self._tracking.end(self._recorder.record)
            if state is not None:
                state.downlink.release()
            with suppress(StorageError):  # it is in the row already, or the next start tells it
                self._sync_relays()
        return self._recorder.record

    def _put_off(self, error: EdgeFedError) -> bool:
        """Whether the process ends while the run waited for the disk: it goes on later."""
        return self._controls.stopping and error.code in DISK_MAY_RETURN

    def _fail(self, state: RunState | None, error: EdgeFedError) -> None:
        if self._controls.aborting:
            self._end(state, "aborted", "by the operator", "run.aborted")
        # An abort may be the cause of the error, such as of an ended wait for space
        else:
            self.trace = "".join(format_exception(error))
            self._end(state, "failed", error.message, error.code, error.hint)

    def _release_space(self) -> None:
        """Delete files that can be fetched or made again."""
        self._deps.release()
        self._deps.cache.shed()
        self._deps.store.shrink()

    def _tracked(self) -> TrackedRun:
        """Return the run as trackers take it up."""
        store, record = self._deps.store, self._recorder.record
        return TrackedRun(
            record, self._recipe, store.run_folder(record.run), store.rounds(record.run)
        )

    def _begin(self) -> RunState:
        """Wait for devices, and begin where the last commit left off."""
        check_dataset(self._recipe, self._deps.dataset)
        self._sync_relays()
        state = begin_run(self._deps, self._recorder, self._give_up)
        # A kill may have come between the row of a round and its model file
        self._models.keep_round(state)
        rows = self._deps.store.rounds(self._recorder.record.run, details=True)
        self._recorder.measurements.begin(rows)
        self._put_again = -1 if state.open is None else state.open.index
        if self._buffered is not None:
            self._begin_buffered(state, self._buffered, rows)
        self._close_through(state)
        self._recorder.status("running")
        self._roster(state, state.state.round + 1)  # tells who is left out, also after a restart
        self._begin_tables(state)
        return state

    def _begin_buffered(
        self, state: RunState, buffered: BufferedRounds, rows: list[dict[str, Any]]
    ) -> None:
        """Go on with open questions, and with a test that later rounds do not wait for."""
        last = BetweenRounds() if self._deps.checkpoints is None else self._deps.checkpoints.last
        last, test = last or BetweenRounds(), None
        # An open exchange of a round that is closed already can only be its late test
        if state.open is not None and state.open.round <= state.scored:
            # Only checkpoints have the tested state; without it, the answers belong to no model
            if last.tested is None:
                self._give_up(state.open)
            else:
                test = state.open
            state.open = None
        buffered.begin(state, rows, last.settled_through)
        # A copy: the engine goes on with later states while this one is tested
        if test is not None and last.tested is not None:
            tested = copy(state)
            tested.state = last.tested
            buffered.begin_test(tested, test, self._tested)

    def _begin_tables(self, state: RunState) -> None:
        """Emit all tables, those of fleet and engine as they were before a restart."""
        record = self._recorder.record
        folder = self._deps.store.run_folder(record.run)
        before: tuple[TableView, ...] = ()
        with suppress(StorageError):  # the tables then begin anew
            before = logged_tables(folder) if record.exchanges else ()
        self._fleet.contributions.begin(before)
        self._phases.restore(before, state.scored)
        self._tables.tell(state.state)
        self._tell_own_tables(state.scored)

    def _tell_own_tables(self, number: int) -> None:
        tables = [*self._fleet.own_tables(), self._phases]
        if self._selection.measures:
            tables.append(self._recorder.measurements)
        if self._buffered is not None:
            tables.append(self._buffered.staleness)
        if self._recipe.privacy.population:  # cohorts are secret
            tables = [table for table in tables if not table.names_devices]
        self._tables.tell_own(number, tables, self._deps.clock.monotonic())

    def _loop(self, state: RunState) -> str:
        """Work round after round; return why the run ends before its last one, or nothing."""
        while True:
            # The merge has ended the round in the state; its row is written now
            if state.state.round > state.scored:
                self._score_round(state)
                if self._controls.finishing:
                    return ""
                # After the row is written, so that no checkpoint holds half a round
                self._checkpoint()
            state.history.check(self._recorder.warn)
            if reason := state.history.stop_reason():
                return reason
            if state.state.round < self._recipe.rounds.count:  # else nothing is left to wait for
                self._pass_gate(state)
            self._controls.check()
            self._phases.enter("select")
            if self._buffered is not None and state.open is None:
                if not self._buffered_round(state, self._buffered):
                    return ""
                continue
            opened = state.open or self._plan(state)
            if opened is None:
                return ""
            if opened.round > state.scored:  # else a part asks something after the last round
                self._recorder.begin_round(opened.round)
            self._exchange(state, opened)

    def _checkpoint(self) -> None:
        """Write a checkpoint between two rounds, if it is time."""
        checkpoints, buffered = self._deps.checkpoints, self._buffered
        if checkpoints is None or not checkpoints.is_due():
            return
        between = BetweenRounds() if buffered is None else buffered.between_rounds()
        self._tables.flush()
        self._recorder.account()
        record = self._recorder.record
        self._recorder.written(lambda: checkpoints.save(record, between))

    def _end(
        self,
        state: RunState | None,
        status: Any,
        reason: str = "",
        code: str = "",
        hint: str = "",
    ) -> None:
        """Write the model and the last row; the state stays, so a failed run can be resumed."""
        if state is not None and self._selection.measures:  # the last round's are in its row now
            self._tell_own_tables(state.scored)
        self._tables.flush()
        digest = self._recorder.record.weights_digest
        try:
            if state is not None:
                with plugin_errors():
                    digest = self._models.save(state)
        except EdgeFedError as error:
            if self._put_off(error):
                return
            # An abort ends a run on a full disk without its model
            if not (self._controls.aborting and error.code in DISK_MAY_RETURN):
                status, reason, code, hint = "failed", error.message, error.code, error.hint
        if state is not None:
            self._close_through(state)
        ended = timestamp(self._deps.clock.now())
        self._recorder.end(
            status, reason, weights_digest=digest, ended=ended, error=code, hint=hint
        )

    def _close_through(self, state: RunState) -> None:
        """Let devices throw away their replies, but for those to an exchange that is still open."""
        over = state.open.index if state.open else self._recorder.record.next_index
        oldest = None if self._buffered is None else self._buffered.oldest()
        over = over if oldest is None else min(over, oldest)
        self._fleet.closed(self._recorder.record.run, over - 1)

    # -- one exchange -------------------------------------------------------------------------

    def _buffered_round(self, state: RunState, buffered: BufferedRounds) -> bool:
        """Work on buffered rounds until one has ended; return False at the end of the run.

        An exchange of a part of the method is put to all its devices at once.
        """
        self._phases.enter("collect")
        planned = buffered.next(state)
        if isinstance(planned, Finished):
            return False
        if planned is not None:
            self._exchange(state, self._put(state, planned, planned.attempt))
            return True
        self._tables.tell(state.state)
        self._close_through(state)
        return True

    def _plan(self, state: RunState) -> OpenExchange | None:
        """Plan and put the next exchange; None when there is none."""
        planned = self._gathered(state)
        if isinstance(planned, Finished):
            return None
        return self._put(state, planned, attempt=planned.attempt)

    def _gathered(self, state: RunState) -> Exchange | Finished:
        """Plan the next exchange; below its quorum, wait for devices once and plan again."""
        planned = self._planned(state)
        if isinstance(planned, Exchange) and len(planned.questions) < planned.quorum:
            self._recorder.warn(
                f"round {planned.round}: {len(planned.questions)} of {planned.quorum} devices "
                "for the quorum are there; waiting"
            )
            state.admission.wait_for(planned.quorum, planned.deadline, self._controls.interrupted)
            self._controls.check()
            planned = self._planned(state)
        return planned

    def _planned(self, state: RunState) -> Exchange | Finished:
        seed = derive(self._recipe.seed, "plan", self._recorder.record.seed_index)
        run, store, number = self._recorder.record.run, self._deps.store, state.state.round + 1
        # Orders change the state now; they are committed with the answers to this exchange
        ordered = after_orders(self._algorithm, store, run, state.state)
        state.state, state.bounty_orders = ordered
        if state.bounty_orders:
            self._tables.tell(state.state)
        roster = self._roster(state, number)
        # Newcomers test the model and never train it
        roster = tuple(member for member in roster if not member.newcomer)
        roster = self._selection.ranked(roster, number, seed)
        planned = self._algorithm.plan(state.state, roster, seed)
        return with_least_answers(planned, self._recipe.merging)

    def _roster(self, state: RunState, number: int) -> Roster:
        """Return the devices that can be asked in a round."""
        return state.admission.roster_without(self._recorder.record.silent, number)

    def _put(
        self, state: RunState, planned: Exchange, attempt: int, testers: Roster = ()
    ) -> OpenExchange:
        """Write an exchange down, so that a restart puts the same one."""
        planned = self._deps.relays.available(planned, self._recorder.warn)
        # Repeated as a whole on a full disk, since encoding writes blobs
        opened = self._recorder.written(
            lambda: open_exchange(
                planned,
                run=self._recorder.record.run,
                index=self._recorder.record.next_index,
                seed_index=self._recorder.record.seed_index,
                recipe=self._recipe,
                section=self._models.section(state.state),
                run_model=state.run_model,
                algorithm=self._algorithm,
                downlink=state.downlink,
                attempt=attempt,
                testers=testers,
            )
        )
        # After a restart, the state has the orders that this exchange was planned with, none later
        opened = replace(opened, bounty_orders=state.bounty_orders)
        self._recorder.account()
        record = self._recorder.record
        preparatory = record.preparatory_exchanges + opened.preparatory
        exchanges = record.exchanges + 1
        begun = replace(record, exchanges=exchanges, preparatory_exchanges=preparatory)
        held = state.downlink.to_json()
        missed, store, unwanted = state.open, self._deps.store, planned.discarded
        self._recorder.written(
            lambda: store.begin_exchange(begun, opened, held, closes=missed, discarded=unwanted)
        )
        # In memory once the disk has it; devices are asked only from here on
        self._recorder.record, state.open = begun, opened
        self._sync_relays()
        return opened

    def _exchange(self, state: RunState, opened: OpenExchange) -> None:
        """Ask, merge and commit; repeat an exchange that cannot be merged with a new cohort."""
        self._phases.enter("collect")
        collector = make_collector(self._deps, state.run_model, opened)
        collector.on_collected = lambda: self._phases.enter("merge")
        asked = asked_exchange(opened)
        run = self._recorder.record.run
        # Closed, so that a reply with which the merge failed is judged too
        with closing(collector.answers()) as arriving:
            robust = collector.merged(audited(self._deps, run, state, asked, arriving))
            # Replies are merged as they come, so this line takes as long as the exchange
            merged = merged_or_problem(self._algorithm, state.state, asked, robust)
        # An order may have cut the answers short, and a part of them must not be committed
        self._controls.check()
        # Before the commit: after a restart in between, scores note that this exchange is judged
        update_trust(self._deps, self._recorder, opened, collector)
        if problem := problem_of(opened, collector.stats, merged, self._recipe):
            self._note_answers(opened, collector.stats, merged=False)
            self._ask_again(state, opened, problem)
            return
        assert isinstance(merged, State)
        self._deps.journal.emit("exchange", exchange=opened.exchange, phase="merge")
        stats = ReplyStats() if opened.preparatory else collector.stats
        epsilon = self._algorithm.round_metrics(merged).get("epsilon")
        measures = self._selection.measures and not opened.preparatory
        measured = [task.device for task in opened.tasks] if measures else ()
        # Asked by an earlier process, whose clock does not compare with this one's
        untimed = measured if opened.index == self._put_again else ()
        after = self._recorder.with_answers(stats, epsilon, measured, untimed)
        held = state.downlink.to_json()
        relays = (collector.relayed, delivered_relays(opened, collector.stats.devices))
        store = self._deps.store
        # State, row, downlink, relays and the end of the exchange change in one step
        merged = self._recorder.written(
            partial(store.commit, after, merged, held, *relays, closes=opened)
        )
        self._sync_relays()
        # Before the state is replaced, since remarks compare both
        for remark in self._algorithm.remarks(state.state, asked, merged):
            self._recorder.note(remark.text, warning=remark.warning)
        self._recorder.record, state.state, state.open = after, merged, None
        # After the commit only: until then, a restart needs the blobs of the one before
        state.downlink.committed()
        self._note_answers(opened, collector.stats, merged=True)
        self._tables.tell(merged)
        # Devices delete their replies after the commit, never before
        self._close_through(state)

    def _note_answers(self, opened: OpenExchange, stats: ReplyStats, *, merged: bool) -> None:
        """Note which devices contributed to an exchange that is no preparatory one."""
        if not opened.preparatory:
            samples = stats.devices if merged else dict.fromkeys(stats.devices, 0)
            self._fleet.contributions.add(opened, samples, stats.refused)

    def _give_up(self, opened: OpenExchange) -> None:
        """Close an exchange that is not merged."""
        run = self._recorder.record.run
        self._recorder.written(lambda: self._deps.store.close_exchange(run, opened))

    def _sync_relays(self) -> None:
        """Keep the blobs between devices that are written down, and no others."""
        self._deps.relays.sync(self._deps.store.relays())

    def _ask_again(self, state: RunState, opened: OpenExchange, problem: MergeProblem) -> None:
        """Plan again after an exchange that is not merged, for as often as the recipe says."""
        self._phases.enter("select")
        self._begin_anew(state, opened, problem.devices)
        if opened.attempt >= self._recipe.rounds.retries:
            # A run that is resumed asks those who are there then, not those who were silent now.
            if state.open is not None:
                self._give_up(opened)
                state.open = None
            message = f"{problem.reason[0].upper()}{problem.reason[1:]}."
            raise TimeLimitError(message, code="round.quorum", hint=problem.hint)
        self._recorder.warn(f"{problem.reason}; asking again")
        planned = self._gathered(state)
        if isinstance(planned, Exchange):
            self._put(state, planned, opened.attempt + 1)

    def _begin_anew(self, state: RunState, opened: OpenExchange, causes: tuple[str, ...]) -> None:
        """Let the algorithm change its state before it plans again; store the changed state."""
        asked = asked_exchange(opened)
        # The same state is no change, so nothing is written
        anew = self._algorithm.begin_anew(state.state, asked, causes)
        if anew is state.state:
            return
        # The answers so far are of the state that is given up
        record, held = self._recorder.without_answers(), state.downlink.to_json()
        store = self._deps.store
        anew = self._recorder.written(partial(store.commit, record, anew, held, closes=opened))
        self._recorder.record, state.state, state.open = record, anew, None

    # -- scores -------------------------------------------------------------------------------

    def _score_round(self, state: RunState) -> None:
        """Test the model if it is time to, and close the round."""
        number = state.state.round
        self._deps.journal.emit("exchange", phase="evaluate", detail="")
        self._phases.enter("evaluate")
        # An exchange that an earlier life left open tells that it found it was time.
        due = state.open is not None or self._evaluation.is_due(number, self._controls.finishing)
        later = due and self._tests_later(state)
        scores = self._evaluation.scores(state, on_devices=not later) if due else NO_SCORES
        self._phases.end_round(number)
        self._tell_own_tables(number)
        measured = dict(self._tables.round_metrics(state.state))
        if scores.device_tests and state.open is not None:
            able = fleet_testers(self._recipe, self._recorder.record, state.open)
            measured |= state.history.judged(scores.values, scores.device_tests, able)
        row = self._recorder.close_round(number, scores, state.open, measured)
        self._tracking.round(row)
        state.history.add({**row, DEVICE_TESTS: scores.device_tests})
        asked, state.scored, state.open = state.open, number, None
        if asked is not None:
            self._close_through(state)
        self._models.keep_round(state)
        # A copy, whose tensors can still be asked for when the engine has gone on
        now = copy(state)
        self._deps.on_round(row, lambda: self._models.tensors(now))
        if later and self._buffered is not None and not self._buffered.is_testing:
            opened, state.open = self._put_test(state), None
            self._buffered.begin_test(state, opened, self._tested)

    def _tests_later(self, state: RunState) -> bool:
        """Return whether devices test the round while later ones end, as in buffered rounds.

        The last round is tested at once, by devices that have nothing else to do.
        """
        buffered, number = self._buffered, state.state.round
        if buffered is None or not self._evaluation.is_on_devices(state):
            return False
        if number >= self._recipe.rounds.count or self._controls.finishing:
            buffered.finish(state)
            return False
        return self._fleet.takes_time and state.open is None

    def _tested(
        self,
        state: RunState,
        opened: OpenExchange,
        collector: ReplyCollector,
        answers: list[Answer],
    ) -> None:
        """Add the devices' scores of an earlier round to its row."""
        newcomers = {member.device for member in self._fleet.roster() if member.newcomer}
        parts = [with_part(answer, newcomers) if newcomers else answer for answer in answers]
        scores = self._evaluation.of_devices(state, parts)
        self._note_tests(opened, collector)
        able = fleet_testers(self._recipe, self._recorder.record, opened)
        measured = state.history.judged(scores.values, scores.device_tests, able)
        row = self._recorder.score_later(scores, opened, measured)
        self._tracking.round(row)
        state.history.add({**row, DEVICE_TESTS: scores.device_tests})
        self._models.keep_tested(state)
        self._deps.on_round(row, lambda: self._models.tensors(state))

    def _note_tests(self, opened: OpenExchange, collector: ReplyCollector) -> None:
        update_trust(self._deps, self._recorder, opened, collector)
        note_testers(self._deps, self._recorder, collector.stats.devices)

    def _put_test(self, state: RunState) -> OpenExchange:
        """Put the test of the state to devices."""
        seed = derive(self._recipe.seed, "plan", self._recorder.record.seed_index)
        testers = self._roster(state, state.state.round)
        planned = self._algorithm.evaluation(state.state, testers, seed)
        return self._put(state, planned, 0, testers)

    def _device_answers(self, state: RunState) -> Iterator[Answer]:
        """Ask the devices to test the model, and yield their answers."""
        opened = state.open or self._put_test(state)
        newcomers = {member.device for member in self._fleet.roster() if member.newcomer}
        collector = make_collector(self._deps, state.run_model, opened)
        with closing(collector.answers()) as arriving:
            for answer in arriving:
                yield with_part(answer, newcomers) if newcomers else answer
        # An order may have ended the test early
        self._controls.check()
        self._note_tests(opened, collector)

    # -- orders -------------------------------------------------------------------------------

    def _pass_gate(self, state: RunState) -> None:
        # Tables are emitted at intervals, and none is emitted during a pause
        if self._controls.paused:
            self._tables.flush()
            self._recorder.status("paused")
        while (request := self._controls.pass_gate()) is not None:
            evaluate_paused(request, self._deps, self._recorder, state)
        self._controls.check()
        if self._recorder.record.status == "paused":
            self._recorder.status("running")
