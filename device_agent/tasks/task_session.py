"""The current task: accept it, fetch its inputs, train, store the reply, and send it.

It belongs to the agent's main thread. A full disk does not end a task: failed writes are repeated.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from device_agent.limits.training_policy import TrainingPolicy
from device_agent.reports.progress_reporter import ProgressReporter
from device_agent.tasks.device_store import DeviceStore
from device_agent.tasks.training_messages import Progressed, TrainingDone
from device_agent.tasks.training_process import EnergyMeter, TrainingProcess
from edgefed.algorithms.interface.exchange import FROZEN
from edgefed.errors import DISK_MAY_RETURN, EdgeFedError
from edgefed.events.base.model import UNFINISHED
from edgefed.files.writing import check_in_place
from edgefed.process.clock import Clock, timestamp
from edgefed.process.memory import LARGE, return_freed
from edgefed.transport.downloads import Downloads
from edgefed.transport.link import Link
from edgefed.transport.rate_limits import Rate, TokenBucket
from edgefed.transport.reply_resender import ReplyResender
from edgefed.wire.message_parts import WorkCost
from edgefed.wire.messages import CoordinatorState, DeviceState, Task
from edgefed.worker.outcomes import UNMEASURED, make_reply
from edgefed.worker.task_inputs import TaskInputs

FIRST_WAIT = 1.0
LONGEST_WAIT = 30.0
"""Seconds between two tries, doubled from the first to the longest."""


class Shortage:
    """A disk that takes nothing; owned by one thread.

    Attributes:
        due: the monotonic second of the next try, or None.
    """

    def __init__(self) -> None:
        self.due: float | None = None
        self._wait = 0.0
        self._was_noted = False

    def begin(self, now: float, freed: int) -> bool:
        """Note that the disk is full; return whether to report it.

        Args:
            now: monotonic second.
            freed: bytes that were deleted just now: then the next try is at once.
        """
        if freed:
            self.due = now
            return False
        if self.due is not None:  # something else met the same full disk
            return False
        self._wait = min(max(FIRST_WAIT, 2 * self._wait), LONGEST_WAIT)
        self.due = now + self._wait
        self._was_noted = True
        return True

    def over(self, now: float) -> bool:
        """Return whether it is time to try again; True once for each time."""
        if self.due is None or now < self.due:
            return False
        self.due = None
        return True

    def end(self) -> bool:
        """Note that the writes succeeded; return whether the shortage had been reported."""
        was_reported, self._was_noted, self._wait = self._was_noted, False, 0.0
        return was_reported


log = logging.getLogger(__name__)

AT_WORK = ("download", "train", "evaluate")
AT_REST = ("idle", "done", "late", "rejected", "failed")
"""States of which a device that may not train is paused instead, and with which it is paused."""

PREEMPTIONS = Rate(1 / 6, 10)
"""How often a task that trains is given up for another one; the coordinator repeats the other."""

KNOWN_RUNS = 64
"""Number of runs whose finished exchanges are remembered."""


@dataclass(frozen=True)
class TaskServices:
    """The parts of the agent that a task uses.

    Attributes:
        session: of this process, for replies.
    """

    store: DeviceStore
    downloads: Downloads
    training: TrainingProcess
    resender: ReplyResender
    reporter: ProgressReporter
    link: Link
    clock: Clock
    session: str
    policy: TrainingPolicy
    energy: EnergyMeter


class TaskSession:
    """At most one task, from its arrival until its reply is sent.

    Args:
        services: the parts of the agent that it uses.
    """

    def __init__(self, services: TaskServices) -> None:
        self._store = services.store
        self._downloads = services.downloads
        self._training = services.training
        self._resender = services.resender
        self._reporter = services.reporter
        self._link = services.link
        self._clock = services.clock
        self._session = services.session
        self._policy = services.policy
        self._energy = services.energy
        self._fraction = 0.0
        self._inputs: TaskInputs | None = None
        self._last_inputs: TaskInputs | None = None
        self._shortage = Shortage()
        self._unwritten: TrainingDone | None = None
        self._pending_state: CoordinatorState | None = None
        self._closed: OrderedDict[str, int] = OrderedDict()
        self._run_ended = False
        self._download: WorkCost = UNMEASURED
        self._requested = self._began = 0.0
        self._state: DeviceState = "idle"
        self._preemptions = TokenBucket(PREEMPTIONS, services.clock.monotonic())

    @property
    def _is_training(self) -> bool:
        """Whether the task at hand was begun; a download is given up for any other task."""
        return self._inputs is not None and self._training.work_on(self._inputs.task.exchange)

    @property
    def active(self) -> bool:
        """Whether there is a task at hand."""
        return self._inputs is not None

    def guard(self, action: Callable[[], None]) -> None:
        """Run a step of the task; on an error, wait for the disk or give the task up."""
        try:
            action()
        except EdgeFedError as error:
            if error.code in DISK_MAY_RETURN:
                self._wait_for_disk(error)
            else:
                self.give_up(error.message)
        except Exception as error:  # a task that is half begun would never be asked for again
            log.exception("error in the agent")
            self.give_up(f"{type(error).__name__}: {error}")

    # -- from the task to its inputs ----------------------------------------------------------

    def _is_for_now(self, task: Task) -> bool:
        """Whether a task was sent to this agent process, and its exchange is not over.

        An attacker that kept a task could send it again later, even if it is signed.
        """
        if task.session not in ("", self._session):
            log.warning("a task for an earlier life of this agent was ignored: %s", task.exchange)
            return False
        if task.index <= self._closed.get(task.run, -1):
            log.warning("a task of an exchange that is over was ignored: %s", task.exchange)
            return False
        return True

    def _check_in_place(self) -> None:
        """Have a task trained again that failed while its folder was moved away.

        Raises:
            StorageError: ``storage.moved``; the next try begins the task anew.
        """
        try:
            check_in_place(self._store.folder)
        except EdgeFedError:
            self._training.give_up()
            raise

    def take(self, task: Task) -> None:
        """Begin a task, or repeat the reply that was made before."""
        if not self._is_for_now(task):
            return
        self._forget(task.run, task.settled_through)
        kept = self._store.reply(task.exchange)
        if kept is not None:
            log.info("task %s was done before; its reply is sent again", task.exchange)
            again = kept.model_copy(update={"session": self._session})
            self._resender.put(again, self._clock.monotonic())
            self.tell("upload", exchange=task.exchange)
            return
        if self._at_hand(task.exchange):
            self._reporter.repeat(self._link.connected)
            return
        if self._is_training and not self._preemptions.take(1, self._clock.monotonic()):
            log.warning("task %s ignored: too many tasks came while one is at work", task.exchange)
            return
        self._drop_inputs()
        if self._run_ended:  # a test of a saved model, or a run of which is not known yet
            self._drop_blobs(task)
        log.info("task %s taken: %s, round %d", task.exchange, task.question, task.round)
        self._inputs = TaskInputs(task, self._store.cache)
        self._download, self._requested = UNMEASURED, self._clock.monotonic()
        self._downloads.prune(self._inputs.lacking)
        self._fetch(self._inputs)

    def _fetch(self, inputs: TaskInputs) -> None:
        """Request the blobs that the task lacks, if any, once the device may train."""
        if self._policy.pause is not None:
            self.tell("download")
            return
        if inputs.ready:
            self._begin(inputs)
            return
        self.tell("download")
        self._download = WorkCost(download_bytes=sum(inputs.lacking.values()))
        private = {name: size for name, size in inputs.lacking.items() if name in inputs.private}
        shared = {name: size for name, size in inputs.lacking.items() if name not in private}
        self._downloads.want(shared)
        for digest in self._downloads.pull(private, self._clock.monotonic()):
            self.received(digest)

    def subscribed(self, topic_filter: str) -> None:
        """Request the blob whose subscription holds now."""
        wanted = self._inputs.lacking if self._inputs is not None else ()
        self.received(self._downloads.subscribed(topic_filter, wanted, self._clock.monotonic()))

    def received(self, digest: str) -> None:
        """Continue if a blob that the task lacked is complete."""
        inputs = self._inputs
        if inputs is None or digest not in inputs.lacking or not self._downloads.arrived(digest):
            return
        inputs.arrived(digest)
        if inputs.ready and self._policy.pause is None:
            seconds = self._clock.monotonic() - self._requested
            self._download = self._download.model_copy(update={"download_seconds": seconds})
            self._begin(inputs)

    def check_downloads(self, now: float) -> None:
        """Repeat due requests; give up when a blob will never arrive."""
        waits = self._shortage.due is not None or self._policy.pause is not None
        if self._downloads.due(now) and not waits:
            self.give_up("the coordinator's blob never came")

    # -- from the training to the reply -------------------------------------------------------

    def _begin(self, inputs: TaskInputs) -> None:
        """Assemble the arrays and train; fetch whole blobs for the others."""
        check_in_place(self._store.folder)  # the training process would find no blob
        if sum(ref.size for ref in inputs.task.blobs.values()) >= LARGE:
            return_freed()  # what the task before has left
        if not inputs.assemble():
            self._fetch(inputs)
            return
        if FROZEN in inputs.task.blobs:
            self._store.note_frozen(inputs.task.blobs[FROZEN].digest)
        self._fraction, self._began = 0.0, self._clock.monotonic()
        self.tell(self._work_of(inputs))
        inputs.check()
        self._energy.begin()
        self._training.begin(self._store.order(inputs.task))
        self._shortage.end()

    def progressed(self, progressed: Progressed) -> None:
        """Report the progress of training."""
        if self._at_hand(progressed.exchange):
            self._fraction = progressed.fraction
            if self._policy.pause is None:
                self._energy.read()
            self.tell("train", fraction=progressed.fraction)

    def finished(self, done: TrainingDone) -> None:
        """Store the answer, then send it."""
        if not self._at_hand(done.task.exchange):
            return
        outcome = done.outcome
        if outcome.status == "failed":  # for the device's log, which operators may read
            self._check_in_place()
            text = f"{outcome.reason}\n{outcome.trace}".rstrip()
            log.warning("task %s failed: %s", done.task.exchange, text)
        self._unwritten = done
        cost = self._download.model_copy(
            update={
                "training_seconds": outcome.seconds,
                "work_seconds": self._clock.monotonic() - self._began,
                "joules": self._energy.end(),
            }
        )
        reply, beside = make_reply(done.task, outcome, self._session, cost)
        trained = outcome.status == "ok" and done.task.question != "evaluate"
        self._store.commit(
            reply,
            beside,
            outcome.private if trained else None,
            outcome.device_state,
            outcome.ledger,
            timestamp(self._clock.now()),
        )
        self._unwritten = None
        self._shortage.end()
        self._keep_last_inputs()
        trains = outcome.status == "ok" and done.task.question == "fit"
        if trains and self._policy.trained(done.task.run, done.task.round):
            self._apply_limits()
        self.tell("upload", exchange=reply.exchange)
        self._resender.put(reply, self._clock.monotonic())

    # -- the end of a task --------------------------------------------------------------------

    def cancel(self, exchange: str) -> None:
        """Drop a task whose reply is no longer needed."""
        waited = self._resender.heard(exchange)
        if self._at_hand(exchange):
            self._drop_inputs()
            self.tell("idle")
        elif self._inputs is None and waited:
            self.tell("late", reason="the coordinator no longer waits for the reply")

    def close_exchanges(self, state: CoordinatorState) -> None:
        """Forget the replies of the exchanges that are over, and a task whose cancel was lost."""
        self._pending_state = state  # until it is written, which a full disk may hinder
        if state.run:
            self._resender.keep(state.run)
            self._forget(state.run, state.closed_through)
            ended = state.run_status not in ("", *UNFINISHED)
            ends = ended and not self._run_ended
            self._cancel_closed(state, has_ended=ends)
            self._run_ended = ended
            if ends and self._inputs is None and self._state in ("upload", "late"):
                self.tell("idle")  # nobody waits for its reply any more
            if self._run_ended and self._inputs is None:
                self._drop_blobs()
        self._pending_state = None

    def _forget(self, run: str, through: int) -> None:
        """Forget the replies to exchanges of a run up to an index."""
        self._note_closed(run, through)
        for reply in self._store.replies():
            if reply.run == run and reply.index <= through:
                self._resender.heard(reply.exchange)
        self._store.forget(run, through)

    def _cancel_closed(self, state: CoordinatorState, *, has_ended: bool) -> None:
        """Drop the task if its exchange was closed, or its run ended, while the device was away."""
        task = self._inputs.task if self._inputs is not None else None
        if task is None or task.run != state.run:
            return
        if has_ended or task.index <= state.closed_through:
            self.cancel(task.exchange)

    def _note_closed(self, run: str, through: int) -> None:
        """Remember which exchanges of the latest runs are over."""
        self._closed[run] = max(through, self._closed.get(run, -1))
        self._closed.move_to_end(run)
        while len(self._closed) > KNOWN_RUNS:
            self._closed.popitem(last=False)

    def give_up(self, reason: str) -> None:
        """Drop the current task; the coordinator asks again later."""
        log.warning("%s", reason)
        self._drop_inputs()
        self.tell("failed", reason=reason)

    def _drop_inputs(self) -> None:
        self._unwritten = None
        if self._inputs is not None:
            self._training.give_up()
            self._downloads.drop(self._inputs.lacking)
            self._keep_last_inputs()

    def _keep_last_inputs(self) -> None:
        """Keep the last task's blobs pinned: the next broadcast is a difference from them."""
        if self._last_inputs is not None:
            self._last_inputs.clear()
        if self._inputs is not None and self._inputs.private:
            self._inputs.delete_private()
        self._last_inputs, self._inputs = self._inputs, None

    def _drop_blobs(self, task: Task | None = None) -> None:
        """Delete the blobs of runs that have ended, except those that a task names.

        A run that is resumed requests missing blobs again.
        """
        if self._last_inputs is not None:
            self._last_inputs.clear()
            self._last_inputs = None
        self._downloads.prune(())
        self._store.drop_blobs(() if task is None else task.needed)

    # -- a full disk --------------------------------------------------------------------------

    def look_for_folder(self) -> None:
        """Pause an idle device whose folder was moved away: its next write may be days ahead."""
        if self._inputs is None and self._shortage.due is None:
            self.guard(lambda: check_in_place(self._store.folder))

    @property
    def retry_due(self) -> float | None:
        """The monotonic second of the next attempt after a full disk, or None."""
        return self._shortage.due

    def retry(self) -> None:
        """If it is time, repeat the write that a full disk refused."""
        if self._shortage.over(self._clock.monotonic()):
            self.guard(self._try_again)

    def _wait_for_disk(self, error: EdgeFedError) -> None:
        """Report a disk that takes nothing, and try later; on a full one, first make room.

        The task at hand stays, and with it an answer that could not be written.
        """
        log.warning("%s", error.as_line())
        freed = self._make_room() if error.code == "storage.full" else 0
        if self._shortage.begin(self._clock.monotonic(), freed):
            self.tell("paused", reason=f"{error.message} Waiting for the disk.")

    def _make_room(self) -> int:
        """Delete files that can be fetched again, and return the number of bytes."""
        if self._last_inputs is not None:
            self._last_inputs.clear()
            self._last_inputs = None
        lacking = self._inputs.lacking if self._inputs is not None else {}
        return self._store.free_space(lacking)

    def _try_again(self) -> None:
        """Repeat the writes that the full disk refused; raises as before if it is still full."""
        check_in_place(self._store.folder)
        inputs = self._inputs
        if self._pending_state is not None:
            self.close_exchanges(self._pending_state)
        if self._unwritten is not None:
            self.finished(self._unwritten)
        elif inputs is not None and not self._training.work_on(inputs.task.exchange):
            self._downloads.drop(inputs.lacking)
            self._fetch(inputs)  # the shortage ends when the task begins
        elif self._shortage.end():
            self.tell("train" if inputs is not None else "idle")

    # -- the owner's limits -------------------------------------------------------------------

    def check_limits(self, now: float) -> None:
        """Pause when a limit is passed, within the task at hand too; go on when none is."""
        if self._policy.due(now, self._link.sent + self._link.received):
            self._apply_limits()

    def _apply_limits(self) -> None:
        pause, inputs = self._policy.pause, self._inputs
        log.info("training may go on" if pause is None else f"training pauses: {pause.reason}")
        self._reporter.note_pause(pause)
        self._training.pause(pause is not None)
        if pause is not None:
            self._energy.pause()
        if self._shortage.due is None and inputs is not None and not self._is_training:
            self._downloads.drop(inputs.lacking)
            self._requested = self._clock.monotonic()
            self._fetch(inputs)
        elif self._shortage.due is None and inputs is not None:
            if pause is None:
                self._energy.read()
            self.tell(self._work_of(inputs), fraction=self._fraction)
        elif self._state in AT_REST:
            self.tell("idle")
        else:  # a reply on its way, or a full disk, is shown until it is over
            self._reporter.repeat(self._link.connected)

    @staticmethod
    def _work_of(inputs: TaskInputs) -> DeviceState:
        return "evaluate" if inputs.task.question == "evaluate" else "train"

    # -- reports ------------------------------------------------------------------------------

    def tell(
        self, state: DeviceState, *, fraction: float = 0.0, exchange: str = "", reason: str = ""
    ) -> None:
        """Report a state of the device, by default about the current task.

        Where the device may not train, it is paused instead of at work or at rest.
        """
        self._state = state
        pause = self._policy.pause
        if pause is not None and state in AT_WORK:
            state, reason = "paused", pause.reason
        self._report(state, fraction, exchange, reason)
        if pause is not None and state in AT_REST and self._inputs is None:
            self._report("paused", 0.0, "", pause.reason)

    def _report(self, state: DeviceState, fraction: float, exchange: str, reason: str) -> None:
        at_hand = self._inputs.task.exchange if self._inputs is not None else ""
        self._reporter.tell(
            state,
            self._link.connected,
            fraction=fraction,
            exchange=exchange or at_hand,
            reason=reason,
        )

    def _at_hand(self, exchange: str) -> bool:
        return self._inputs is not None and self._inputs.task.exchange == exchange
