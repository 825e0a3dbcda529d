"""The agent: a resident program that is pushed to, trains, and answers.

One thread (this one) reads the inbox and owns all state; paho's thread fills the inbox; a
``TrainingThread`` trains; a ``ChunkSender`` uploads. A task goes invited → download → train →
upload → done.
"""

from __future__ import annotations

import logging
import random
import secrets
import threading
from collections.abc import Callable

from device_agent.device_store import DeviceStore
from device_agent.disk_shortage import Shortage
from device_agent.downloads import Downloads
from device_agent.duplicate_name_guard import DuplicateNameGuard
from device_agent.identity import Identity, agent_link
from device_agent.progress_reporter import ProgressReporter, log_receipt
from device_agent.publisher import Publisher
from device_agent.reply_outbox import ReplyOutbox
from device_agent.task_inputs import TaskInputs
from device_agent.telemetry import Sensors
from device_agent.training_thread import Done, Progressed, TrainingThread
from edgefed.clock import Clock
from edgefed.config.address import Address
from edgefed.errors import EdgeFedError, NotAllowedError
from edgefed.transport.inbox import Inbox, InboxLimits
from edgefed.transport.intake import Intake
from edgefed.transport.link import Arrival, Incoming, LinkDown, LinkUp, Subscribed
from edgefed.transport.reading import read_arrival
from edgefed.transport.sender import ChunkSender
from edgefed.wire.blobs import chunk_count
from edgefed.wire.messages import (
    Birth,
    Cancel,
    Chunk,
    CoordinatorState,
    DeviceState,
    Need,
    Receipt,
    Task,
)
from edgefed.wire.topics import ParsedTopic, Topics
from edgefed.worker.replies import make_reply
from edgefed.worker.worker import Worker

log = logging.getLogger(__name__)

INBOX_LIMITS = InboxLimits(urgent=16 * 1024**2, chunks=64 * 1024**2, latest=1024**2)
TELEMETRY_EVERY = 10.0
COMPLAIN_EVERY = 60.0


class _Stop:
    """Ends the agent's loop."""


Own = Progressed | Done | _Stop
"""What other threads of this process tell the agent's own."""


class Agent:
    """One device's agent.

    Args:
        identity: name, fleet and birth.
        address: the broker.
        store: the state directory.
        worker: the device's data and trainers.
        sensors: the board's health.
    """

    def __init__(
        self,
        identity: Identity,
        address: Address,
        store: DeviceStore,
        worker: Worker,
        sensors: Sensors,
        clock: Clock,
    ) -> None:
        self._device = identity.device
        self._topics = Topics(identity.fleet)
        self._birth = identity.birth
        self._store = store
        self._sensors = sensors
        self._clock = clock
        self._session = identity.birth.session
        self._inbox: Inbox[Own] = Inbox(clock, INBOX_LIMITS)
        self._dropped, self._next_complaint = 0, clock.monotonic()
        self._link = agent_link(identity, address, self._inbox.put)
        self._publisher = Publisher(self._link, self._topics, self._device)
        self._sender = ChunkSender(self._link)
        jitter = random.Random(secrets.randbits(64))
        intake = Intake(store.cache, store.staging, jitter)
        self._downloads = Downloads(self._link, self._topics, intake, self._publisher.need)
        self._training = TrainingThread(worker, clock, self._inbox.post)
        self._outbox = ReplyOutbox(self._publisher.reply)
        self._inputs: TaskInputs | None = None
        self._last_inputs: TaskInputs | None = None
        self._reporter = ProgressReporter(
            self._device,
            identity.fleet,
            identity.birth,
            address,
            store.folder,
            clock,
            self._publisher.progress,
        )
        self._name_guard = DuplicateNameGuard(self._session)
        self._next_telemetry = clock.monotonic()
        self._problem: EdgeFedError | None = None
        self._shortage = Shortage()
        self._unwritten: Done | None = None
        self._unheeded: CoordinatorState | None = None
        self._stopping = threading.Event()

    # -- life ---------------------------------------------------------------------------------

    def run(self) -> None:
        """Work until ``stop``.

        Raises:
            NotAllowedError: another agent of this name is there.
        """
        self._reporter.repeat(connected=False)
        self._link.start()
        try:
            while not self._stopping.is_set():
                self._turn()
        finally:
            self._close()
        if self._problem is not None:
            raise self._problem

    def stop(self) -> None:
        """End ``run`` soon; replies and private state are on disk. Not for a signal handler."""
        self._stopping.set()
        self._inbox.post(_Stop())

    def _turn(self) -> None:
        item = self._inbox.get(timeout=self._patience())
        if item is not None:
            taken = item
            self._guard(lambda: self._take(taken))
        if self._shortage.over(self._clock.monotonic()):
            self._guard(self._try_again)
        try:
            self._tick()
        except Exception:  # nothing that repeats may cost the task at hand
            log.exception("error in the agent")

    def _guard(self, act: Callable[[], None]) -> None:
        """Do something for the task at hand, and whatever goes wrong, say what becomes of it."""
        try:
            act()
        except EdgeFedError as error:
            if error.code == "storage.full":
                self._wait_for_space(error.message)
            else:
                self._give_up(error.message)
        except Exception as error:  # a task that is half begun would never be asked for again
            log.exception("error in the agent")
            self._give_up(f"{type(error).__name__}: {error}")

    def _close(self) -> None:
        gone = self._birth.model_copy(update={"status": "lost"})
        if self._link.connected and self._problem is None:
            self._publisher.birth(gone)
        self._training.stop()
        self._sender.stop()
        self._downloads.close()
        self._link.stop()
        self._reporter.repeat(connected=False)
        self._store.close()

    def _patience(self) -> float:
        dues = (self._downloads.next_due(), self._outbox.next_due(), self._next_telemetry)
        nearest = min(due for due in (*dues, self._shortage.due) if due is not None)
        return min(5.0, max(0.001, nearest - self._clock.monotonic()))

    def _tick(self) -> None:
        now = self._clock.monotonic()
        self._note_dropped(now)
        if not self._link.connected:
            self._next_telemetry = max(self._next_telemetry, now + 1.0)
            return
        if self._downloads.due(now) and self._shortage.due is None:
            self._give_up("the coordinator's blob never came")
        self._outbox.due(now)
        if now >= self._next_telemetry:
            self._next_telemetry = now + TELEMETRY_EVERY
            health = self._sensors.read(self._session, self._link.sent, self._link.received)
            self._publisher.telemetry(health)

    def _note_dropped(self, now: float) -> None:
        """Tell of messages that the inbox had no room for, at most once a minute."""
        dropped = self._inbox.counts.dropped
        if dropped > self._dropped and now >= self._next_complaint:
            self._dropped, self._next_complaint = dropped, now + COMPLAIN_EVERY
            log.warning(
                "messages dropped because they came too fast: %d; they are sent again", dropped
            )
            self._reporter.note_dropped(dropped, self._link.connected)

    # -- what arrives -------------------------------------------------------------------------

    def _take(self, item: Arrival | Own) -> None:
        match item:
            case Incoming():
                self._take_message(item)
            case LinkUp():
                self._connected()
            case LinkDown():
                self._reporter.disconnected(item.reason)
            case Subscribed():
                self._subscribed(item.filter)
            case Progressed():
                if self._inputs is not None and self._inputs.task.exchange == item.exchange:
                    self._tell("train", fraction=item.fraction)
            case Done():
                self._worked(item)

    def _take_message(self, arrival: Incoming) -> None:
        if not arrival.payload and arrival.topic == self._topics.birth(self._device):
            self._publisher.birth(self._birth)  # the coordinator forgot us just as we came back
            return
        read = read_arrival(self._topics, arrival, _refuse)
        if read is None:
            return
        parsed, message = read
        now = self._clock.monotonic()
        match message:
            case Task() if not arrival.retained:
                self._take_task(message, now)
            case Chunk():
                self._downloads.take(parsed, message.data, now)
                self._see_whether_whole(parsed.digest)
            case Need():
                self._take_need(message)
            case Receipt():
                self._take_receipt(message)
            case Cancel():
                self._take_cancel(message)
            case CoordinatorState():
                self._take_state(message)
            case Birth():
                self._take_birth(message, live=not arrival.retained)

    def _connected(self) -> None:
        """Say who we are, and go on where the connection broke."""
        self._publisher.birth(self._birth)
        now = self._clock.monotonic()
        self._name_guard.connected(now)
        self._outbox.reconnected(now)
        self._downloads.reconnected(now)
        self._reporter.connected()

    def _take_birth(self, birth: Birth, *, live: bool) -> None:
        """Meet a message on our own birth topic."""
        match self._name_guard.meet(birth, self._clock.monotonic(), live=live):
            case "answer":
                if birth.status == "online":
                    log.warning("another agent calls itself %s", self._device)
                self._publisher.birth(self._birth)
            case "yield":
                self._problem = NotAllowedError(
                    f"Fleet {self._topics.fleet} already has a device named {self._device}.",
                    code="device.taken",
                    hint="give this one another name with --name",
                )
                self.stop()

    def _take_state(self, state: CoordinatorState) -> None:
        """Learn which exchanges are over."""
        self._unheeded = state  # until it is written, which a full disk may hinder
        if state.run:
            self._outbox.keep(state.run)
            for reply in self._store.replies():
                if reply.run == state.run and reply.index <= state.closed_through:
                    self._outbox.heard(reply.exchange)
            self._store.forget(state.run, state.closed_through)
        self._unheeded = None

    # -- a task -------------------------------------------------------------------------------

    def _take_task(self, task: Task, now: float) -> None:
        kept = self._store.reply(task.exchange)
        if kept is not None:
            log.info("task %s was done before; its reply is sent again", task.exchange)
            again = kept.model_copy(update={"session": self._session})
            self._outbox.put(again, now)
            self._tell("upload", exchange=task.exchange)
            return
        if self._inputs is not None and self._inputs.task.exchange == task.exchange:
            self._reporter.repeat(self._link.connected)
            return
        self._drop_inputs()
        log.info("task %s taken: %s, round %d", task.exchange, task.question, task.round)
        self._inputs = TaskInputs(task, self._store.cache)
        self._downloads.prune(self._inputs.lacking)
        self._tell("invited")
        self._fetch(self._inputs)

    def _fetch(self, inputs: TaskInputs) -> None:
        """Ask for what the task lacks, if anything."""
        if inputs.ready:
            self._begin(inputs)
            return
        self._tell("download")
        self._downloads.want(inputs.lacking)

    def _subscribed(self, topic_filter: str) -> None:
        wanted = self._inputs.lacking if self._inputs is not None else ()
        digest = self._downloads.subscribed(topic_filter, wanted, self._clock.monotonic())
        self._see_whether_whole(digest)

    def _see_whether_whole(self, digest: str) -> None:
        """Go on when a blob that the task lacked is here."""
        inputs = self._inputs
        if inputs is None or digest not in inputs.lacking or not self._downloads.arrived(digest):
            return
        inputs.arrived(digest)
        if inputs.ready:
            self._begin(inputs)

    def _begin(self, inputs: TaskInputs) -> None:
        """Everything is here: make the arrays and train, or fetch whole what did not fit."""
        if not inputs.assemble():
            self._fetch(inputs)
            return
        self._tell("evaluate" if inputs.task.question == "evaluate" else "train")
        self._training.begin(inputs.task, inputs.read, self._store.private(inputs.task.run))
        self._shortage.end()

    def _worked(self, done: Done) -> None:
        """Write the answer down, then send it."""
        inputs = self._inputs
        if inputs is None or inputs.task.exchange != done.task.exchange:
            return
        self._unwritten = done
        outcome = done.outcome
        reply, beside = make_reply(done.task, outcome, self._session)
        trained = outcome.status == "ok" and done.task.question != "evaluate"
        self._store.commit(reply, beside, outcome.private if trained else None)
        self._unwritten = None
        self._shortage.end()
        self._keep_last_inputs()
        self._tell("upload", exchange=reply.exchange)
        self._outbox.put(reply, self._clock.monotonic())

    def _take_need(self, need: Need) -> None:
        cache, digest = self._store.cache, need.digest
        size = cache.size(digest)
        if size is None or not self._store.offers(digest):
            return
        self._sender.send(
            digest,
            lambda number: self._topics.up_chunk(self._device, digest, number),
            lambda number: cache.chunk(digest, number),
            [number for number in need.chunks if number < chunk_count(size)],
        )

    def _take_receipt(self, receipt: Receipt) -> None:
        if self._outbox.heard(receipt.exchange):
            log_receipt(receipt)
        if self._inputs is not None:
            return
        states: dict[str, DeviceState] = {"accepted": "done", "late": "late"}
        self._tell(states.get(receipt.outcome, "rejected"), reason=receipt.reason)

    def _take_cancel(self, cancel: Cancel) -> None:
        waited = self._outbox.heard(cancel.exchange)
        if self._inputs is not None and self._inputs.task.exchange == cancel.exchange:
            self._drop_inputs()
            self._tell("idle")
        elif self._inputs is None and waited:
            self._tell("late", reason="nobody waits for the reply any more")

    def _give_up(self, reason: str) -> None:
        """Drop the task at hand; the coordinator asks again, when perhaps it can be done."""
        log.warning("%s", reason)
        self._drop_inputs()
        self._tell("failed", reason=reason)

    # -- a full disk --------------------------------------------------------------------------

    def _wait_for_space(self, problem: str) -> None:
        """Delete what can be fetched again; if there is nothing, say so and try again later.

        The task at hand stays, and with it an answer that could not be written.
        """
        log.warning("%s", problem)
        if self._last_inputs is not None:
            self._last_inputs.clear()
            self._last_inputs = None
        lacking = self._inputs.lacking if self._inputs is not None else {}
        freed = self._store.free_space(lacking)
        if self._shortage.begin(self._clock.monotonic(), freed):
            self._tell("paused", reason=f"{problem} Waiting for space.")

    def _try_again(self) -> None:
        """Do again what the full disk hindered; raises as before when it is still full."""
        inputs = self._inputs
        if self._unheeded is not None:
            self._take_state(self._unheeded)
        if self._unwritten is not None:
            self._worked(self._unwritten)
        elif inputs is not None and not self._training.work_on(inputs.task.exchange):
            self._downloads.drop(inputs.lacking)
            self._fetch(inputs)  # the shortage ends when the task begins
        elif self._shortage.end():
            self._tell("train" if inputs is not None else "idle")

    def _drop_inputs(self) -> None:
        """Give up the task at hand."""
        self._unwritten = None
        if self._inputs is not None:
            self._training.give_up()
            self._downloads.drop(self._inputs.lacking)
            self._keep_last_inputs()

    def _keep_last_inputs(self) -> None:
        """Keep the last task's blobs pinned: the next broadcast is a difference from them."""
        if self._last_inputs is not None:
            self._last_inputs.clear()
        self._last_inputs, self._inputs = self._inputs, None

    def _tell(
        self, state: DeviceState, *, fraction: float = 0.0, exchange: str = "", reason: str = ""
    ) -> None:
        at_hand = self._inputs.task.exchange if self._inputs is not None else ""
        self._reporter.tell(
            state,
            self._link.connected,
            fraction=fraction,
            exchange=exchange or at_hand,
            reason=reason,
        )


def _refuse(parsed: ParsedTopic, reason: str) -> None:
    log.warning("message on %s refused: %s", parsed.leaf, reason)
