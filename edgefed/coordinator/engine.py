"""Drive one run: plan, ask, merge, commit, score, exchange by exchange, until it is finished.

The engine knows the two seams and the store, and no network. All it carries from one exchange to
the next is in the checkpoint, so it can be killed at any line and built again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from edgefed.algorithms.base import Algorithm, Answer, Exchange, Finished, State
from edgefed.clock import Clock, timestamp
from edgefed.config.recipe import Recipe
from edgefed.coordinator.admission import Admission, admit
from edgefed.coordinator.augmentation import check_augmentation, with_augmentation
from edgefed.coordinator.books import Books
from edgefed.coordinator.collector import Collector
from edgefed.coordinator.controls import Controls
from edgefed.coordinator.downlink import Downlink
from edgefed.coordinator.fleet import Fleet
from edgefed.coordinator.journal import Journal
from edgefed.coordinator.model_file import model_metadata
from edgefed.coordinator.questions import asked_exchange, evaluation, open_exchange
from edgefed.coordinator.records import Checkpoint, OpenExchange, RunRecord
from edgefed.coordinator.store import Store
from edgefed.coordinator.subject import Subject, check_dataset, make_subject
from edgefed.coordinator.tally import DeviceScores, Tally
from edgefed.coordinator.trackers.base import TrackedRun, Tracker
from edgefed.coordinator.trackers.metrics import MetricFiles
from edgefed.coordinator.trackers.tracking import Tracking
from edgefed.data.types import Dataset
from edgefed.errors import LOWER_RATE, EdgeFedError, TimeLimitError
from edgefed.learn.scoring import score
from edgefed.seeds import derive
from edgefed.wire.blobs import BlobCache
from edgefed.wire.tensors import specs_of, weights_digest


class _Aborted(Exception):  # noqa: N818 - an order, not an error
    """The operator ended the run."""


class _Stopping(Exception):  # noqa: N818 - an order, not an error
    """The process ends; the run goes on later."""


@dataclass(frozen=True)
class Workshop:
    """What an engine works with.

    Attributes:
        dataset: the recipe's data set, of which the test part is the coordinator's.
        trackers: who is told the rounds, beside the metric files in the run's folder.
        user_models: whether the recipe may name a user's own code as its model.
        memory: most bytes that training the model may take here; 0 for half of what is free.
        release: deletes what else can be fetched again, beside blobs, when the disk is full.
    """

    recipe: Recipe
    algorithm: Algorithm[Any]
    fleet: Fleet
    dataset: Dataset
    store: Store
    cache: BlobCache
    journal: Journal
    controls: Controls
    clock: Clock
    trackers: tuple[Tracker, ...] = ()
    user_models: bool = False
    memory: int = 0
    release: Callable[[], None] = lambda: None


@dataclass
class _Standing:
    """Where the run stands.

    Attributes:
        admission: the devices that take part.
        open: an exchange that was written down and not yet merged.
        scored: the last round that was closed.
    """

    subject: Subject
    admission: Admission
    state: State
    downlink: Downlink
    open: OpenExchange | None
    scored: int


class Engine:
    """One run at work.

    Args:
        record: the run's row as it stands.
        workshop: everything else.
        on_record: told the row whenever it changes.
    """

    def __init__(
        self,
        record: RunRecord,
        workshop: Workshop,
        on_record: Callable[[RunRecord], None] = lambda record: None,
    ) -> None:
        self._shop = workshop
        self._recipe = with_augmentation(workshop.recipe, workshop.dataset.preparation)
        self._algorithm = workshop.algorithm
        self._fleet = workshop.fleet
        self._controls = workshop.controls
        self._books = Books(
            record,
            model=workshop.recipe.model.name,
            fleet=workshop.fleet,
            store=workshop.store,
            journal=workshop.journal,
            clock=workshop.clock,
            on_record=on_record,
            release=self._release_space,
            wait=workshop.controls.wait,
        )
        self._tracking = Tracking(
            (MetricFiles(), *workshop.trackers), self._tracked, self._books.warn
        )

    # -- the whole run ------------------------------------------------------------------------

    def run(self) -> RunRecord:
        """Work until the run has ended or the process shall; return the run's row.

        A failure of the run is in the row (status ``failed``, code and reason), not raised.
        """
        standing: _Standing | None = None
        try:
            standing = self._begin()
            self._tracking.begin()
            self._loop(standing)
            self._end(standing, "finished")
        except _Stopping:
            pass
        except _Aborted:
            self._end(standing, "aborted", "by the operator", "run.aborted")
        except EdgeFedError as error:
            if not self._put_off(error):
                self._fail(standing, error)
        finally:
            self._tracking.end(self._books.record)
            if standing is not None:
                standing.downlink.release()
        return self._books.record

    def _put_off(self, error: EdgeFedError) -> bool:
        """Whether the process ends while the run waited for space: it goes on later."""
        return self._controls.stopping and error.code == "storage.full"

    def _fail(self, standing: _Standing | None, error: EdgeFedError) -> None:
        if self._controls.aborting:
            self._end(standing, "aborted", "by the operator", "run.aborted")
        else:
            self._end(standing, "failed", error.message, error.code, error.hint)

    def _release_space(self) -> None:
        """Delete what can be fetched or made again."""
        self._shop.release()
        self._shop.cache.shed()
        self._shop.store.shrink()

    def _tracked(self) -> TrackedRun:
        """Return the run as trackers take it up."""
        store, record = self._shop.store, self._books.record
        return TrackedRun(
            record, self._recipe, store.run_folder(record.run), store.rounds(record.run)
        )

    def _begin(self) -> _Standing:
        """Wait for devices, and begin where the last commit left off."""
        shop, rounds, run = self._shop, self._recipe.rounds, self._books.record.run
        check_dataset(self._recipe, shop.dataset)
        checkpoint = shop.store.checkpoint(run)
        self._books.status("running" if checkpoint else "waiting")
        wanted = rounds.min_devices if checkpoint is None else 1
        admission = admit(
            self._fleet,
            self._recipe,
            shop.dataset,
            wanted,
            recorded=self._books.record.spec,
            warn=self._books.warn,
            clock=shop.clock,
            stop=self._controls.interrupted,
            check=self._check_orders,
        )
        subject = make_subject(
            self._recipe,
            shop.dataset,
            admission.spec,
            user_models=shop.user_models,
            memory=shop.memory,
        )
        check_augmentation(self._recipe, subject.spec.shape)
        self._algorithm.check_model(subject.model)
        if checkpoint is None:
            seed, roster = derive(self._recipe.seed, "start"), admission.roster()
            checkpoint = Checkpoint(self._algorithm.start(subject.model.weights(), roster, seed))
            first, begun = checkpoint.state, timestamp(shop.clock.now())
            self._books.save(devices=len(roster), started=begun, **asdict(admission.spec))
            self._books.written(lambda: shop.store.commit(self._books.record, first, {}))
        downlink = Downlink(self._recipe.wire.downlink, shop.cache, checkpoint.downlink)
        for name in downlink.missing():
            self._books.warn(
                f"the blob cache lost {name}; devices are sent it anew, and with a lossy downlink"
                " the run ends in other bits than undisturbed"
            )
        rows = shop.store.rounds(run)
        scored = rows[-1]["round"] if rows else 0
        standing = _Standing(
            subject, admission, checkpoint.state, downlink, checkpoint.open, scored
        )
        self._close_through(standing)
        self._books.status("running")
        return standing

    def _loop(self, standing: _Standing) -> None:
        while True:
            if standing.state.round > standing.scored:
                self._score_round(standing)
                if self._controls.finishing:
                    return
            if standing.state.round < self._recipe.rounds.count:  # else nothing is left to wait for
                self._pass_gate()
            self._check_orders()
            opened = standing.open or self._plan(standing)
            if opened is None:
                return
            self._books.begin_round(opened.round)
            self._exchange(standing, opened)

    def _end(
        self,
        standing: _Standing | None,
        status: Any,
        reason: str = "",
        code: str = "",
        hint: str = "",
    ) -> None:
        """Write the model and the last row; the state stays, so a failed run can be resumed."""
        digest = self._books.record.weights_digest
        try:
            if standing is not None:
                digest = self._save_model(standing)
        except EdgeFedError as error:
            if self._put_off(error):
                return
            if not (self._controls.aborting and error.code == "storage.full"):
                status, reason, code, hint = "failed", error.message, error.code, error.hint
        if standing is not None:
            self._close_through(standing)
        ended = timestamp(self._shop.clock.now())
        self._books.end(status, reason, weights_digest=digest, ended=ended, error=code, hint=hint)

    def _close_through(self, standing: _Standing) -> None:
        """Let devices throw away their replies, but for those to an exchange that is still open."""
        over = standing.open.index if standing.open else self._books.record.exchanges
        self._fleet.closed(self._books.record.run, over - 1)

    def _save_model(self, standing: _Standing) -> str:
        weights = self._algorithm.weights(standing.state)
        digest = weights_digest(weights)
        record, spec = self._books.record, standing.subject.spec
        metadata = model_metadata(record, self._recipe, spec, standing.state.round, digest)
        self._books.written(lambda: self._shop.store.save_model(record.run, weights, metadata))
        return digest

    # -- one exchange -------------------------------------------------------------------------

    def _plan(self, standing: _Standing) -> OpenExchange | None:
        """Plan and put the next exchange; None when there is none."""
        planned = self._gathered(standing)
        if isinstance(planned, Finished):
            return None
        return self._put(standing, planned, attempt=0)

    def _gathered(self, standing: _Standing) -> Exchange | Finished:
        """Plan the next exchange; below its quorum, wait for devices once and plan again."""
        planned = self._planned(standing)
        if isinstance(planned, Exchange) and len(planned.questions) < planned.quorum:
            self._books.warn(
                f"round {planned.round}: {len(planned.questions)} devices are there, "
                f"the quorum is {planned.quorum}; waiting"
            )
            standing.admission.wait_for(
                planned.quorum, planned.deadline, self._controls.interrupted
            )
            self._check_orders()
            planned = self._planned(standing)
        return planned

    def _planned(self, standing: _Standing) -> Exchange | Finished:
        seed = derive(self._recipe.seed, "plan", self._books.record.turn)
        return self._algorithm.plan(standing.state, standing.admission.roster(), seed)

    def _put(self, standing: _Standing, planned: Exchange, attempt: int) -> OpenExchange:
        """Write an exchange down, so that a restart puts the same one."""
        opened = self._books.written(
            lambda: open_exchange(
                planned,
                run=self._books.record.run,
                index=self._books.record.exchanges,
                turn=self._books.record.turn,
                recipe=self._recipe,
                subject=standing.subject,
                algorithm=self._algorithm,
                downlink=standing.downlink,
                attempt=attempt,
            )
        )
        self._books.account()
        asides = self._books.record.asides + opened.aside
        begun = replace(self._books.record, exchanges=opened.index + 1, asides=asides)
        held = standing.downlink.to_json()
        self._books.written(lambda: self._shop.store.begin_exchange(begun, opened, held))
        self._books.record, standing.open = begun, opened
        return opened

    def _exchange(self, standing: _Standing, opened: OpenExchange) -> None:
        """Ask, merge and commit; a missed quorum asks the round's question of a new cohort."""
        collector = self._collector(standing, opened)
        merged = self._algorithm.merge(standing.state, asked_exchange(opened), collector.answers())
        self._check_orders()
        if collector.tally.accepted < opened.quorum:
            self._missed(standing, opened, collector.tally)
            return
        self._shop.journal.emit("exchange", exchange=opened.exchange, phase="merge")
        after = self._books.with_answers(Tally() if opened.aside else collector.tally)
        held = standing.downlink.to_json()
        self._books.written(lambda: self._shop.store.commit(after, merged, held))
        for remark in self._algorithm.remarks(standing.state, asked_exchange(opened), merged):
            self._books.note(remark.text, warning=remark.warning)
        self._books.record, standing.state, standing.open = after, merged, None
        self._close_through(standing)

    def _missed(self, standing: _Standing, opened: OpenExchange, tally: Tally) -> None:
        asked = len(opened.tasks)
        told = (
            f"{tally.accepted} of {asked} devices answered round {opened.round}, the quorum is "
            f"{opened.quorum}; {tally.shortfall(asked, opened.deadline)}"
        )
        if opened.attempt >= self._recipe.rounds.retries:
            # A run that is resumed asks those who are there then, not those who were silent now.
            run = self._books.record.run
            self._books.written(lambda: self._shop.store.close_exchange(run))
            standing.open = None
            raise TimeLimitError(
                f"Only {told}.",
                code="round.quorum",
                hint=self._after_missed(tally),
            )
        self._books.warn(f"only {told}; asking again")
        planned = self._gathered(standing)
        if isinstance(planned, Exchange):
            self._put(standing, planned, opened.attempt + 1)

    def _after_missed(self, tally: Tally) -> str:
        """Return what an operator can do about a missed quorum."""
        if tally.diverged:
            return f"{LOWER_RATE}, now {self._recipe.training.learning_rate:g}, and start again"
        return "see edgefed device list; then edgefed run resume, or lower rounds.quorum"

    def _collector(self, standing: _Standing, opened: OpenExchange) -> Collector:
        specs = specs_of(self._algorithm.weights(standing.state))
        asked, model = asked_exchange(opened), standing.subject.model

        def refusal(answer: Answer) -> str:
            return self._algorithm.refusal(asked, answer, model)

        return Collector(opened, self._fleet, self._shop.journal, self._controls, specs, refusal)

    # -- scores -------------------------------------------------------------------------------

    def _score_round(self, standing: _Standing) -> None:
        """Test the model if it is time to, and close the round."""
        number = standing.state.round
        self._shop.journal.emit("exchange", phase="evaluate")
        # An exchange that an earlier life left open tells that it found it was time.
        due = standing.open is not None or self._test_is_due(number)
        scores = self._test(standing) if due else {}
        self._tracking.round(self._books.close_round(number, scores))
        asked, standing.scored, standing.open = standing.open, number, None
        if asked is not None:
            self._close_through(standing)

    def _test_is_due(self, number: int) -> bool:
        every = self._recipe.evaluation.every
        last = number >= self._recipe.rounds.count or self._controls.finishing
        return last or (every > 0 and number % every == 0)

    def _test(self, standing: _Standing) -> dict[str, float]:
        where, test = self._recipe.evaluation.on, standing.subject.test
        scores: dict[str, float] = {}
        if where in ("devices", "both") or not len(test):
            scores |= self._test_on_devices(standing)
        if where in ("coordinator", "both") and len(test):
            predict = standing.subject.trainer.predict
            predictor = self._algorithm.predictor(standing.state, predict)
            central = score(predictor, test, self._recipe.training.loss)
            if central.accuracy is not None:
                scores["accuracy"] = central.accuracy
            scores["loss"] = central.loss
        return scores

    def _test_on_devices(self, standing: _Standing) -> dict[str, float]:
        """Ask the devices to test the model on what they keep for it."""
        opened = standing.open
        if opened is None:
            seed = derive(self._recipe.seed, "plan", self._books.record.turn)
            weights = self._algorithm.weights(standing.state)
            roster = standing.admission.roster()
            asked = evaluation(self._recipe, weights, standing.state.round, roster, seed)
            opened = self._put(standing, asked, attempt=0)
        squared = self._recipe.training.loss == "squared_error"
        found = DeviceScores(("loss",) if squared else ("accuracy", "loss"))
        for answer in self._collector(standing, opened).answers():
            found.add(answer.samples, answer.metrics)
        self._check_orders()
        if not found.samples:
            self._books.warn(f"round {opened.round}: no device keeps samples for evaluation")
            return {}
        means = found.means()
        return {**means, **{f"device_{name}": value for name, value in means.items()}}

    # -- orders -------------------------------------------------------------------------------

    def _pass_gate(self) -> None:
        if self._controls.paused:
            self._books.status("paused")
        self._controls.pass_gate()
        self._check_orders()
        if self._books.record.status == "paused":
            self._books.status("running")

    def _check_orders(self) -> None:
        if self._controls.aborting:
            raise _Aborted
        if self._controls.stopping:
            raise _Stopping
