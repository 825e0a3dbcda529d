"""The agent: a resident program that receives tasks, trains, and replies.

The main thread reads the inbox and owns all state. paho's thread fills the inbox, a
``TrainingProcess`` trains, a ``ChunkSender`` uploads, and a ``TaskSession`` handles the current
task. The states of a task are download → train → upload → done.
"""

from __future__ import annotations

import logging
import math
import random
import secrets
import threading
from collections.abc import Callable

from device_agent.daemon.agent_updates import LOOK_EVERY, AgentUpdates, UpdateOptions
from device_agent.daemon.announced_samples import OpenRun
from device_agent.daemon.arrival_limits import ArrivalLimits, OverflowReport
from device_agent.daemon.data_watch import DataRead, DataUnused, DataWatch
from device_agent.identity.duplicate_name_guard import DuplicateNameGuard, EarlierLives
from device_agent.identity.identity import Identity, agent_link, agent_verifier
from device_agent.identity.presence_check import PresenceCheck, unheard
from device_agent.limits.decision import Readings
from device_agent.limits.training_policy import TrainingPolicy
from device_agent.models.model_folder import MODELS, ModelFolder
from device_agent.models.model_keeper import ModelKeeper
from device_agent.reports.diagnostics import Diagnostics
from device_agent.reports.log_ring import LogRing
from device_agent.reports.progress_reporter import ProgressReporter, agent_values, log_receipt
from device_agent.reports.publisher import Publisher
from device_agent.reports.telemetry import Sensors
from device_agent.tasks.device_store import DeviceStore
from device_agent.tasks.task_session import TaskServices, TaskSession
from device_agent.tasks.training_messages import ModelChecked, Progressed, TrainingDone
from device_agent.tasks.training_process import EnergyMeter, Item, TrainingProcess
from edgefed.config.fleet.settings import AgentSettings
from edgefed.config.fleet.when_settings import WhenSettings
from edgefed.config.values.address import Address
from edgefed.errors import EdgeFedError, NotAllowedError, StorageError
from edgefed.events.base.coordinator_states import STOPPED
from edgefed.events.base.model import UNFINISHED
from edgefed.process.clock import Clock, timestamp
from edgefed.process.service_manager import ServiceManager
from edgefed.terminal.metrics_server import Values
from edgefed.transport.blob_intake import BlobIntake
from edgefed.transport.downloads import Downloads
from edgefed.transport.inbox import (
    Arrival,
    Inbox,
    InboxLimits,
    Incoming,
    LinkDown,
    LinkUp,
    Subscribed,
    read_arrival,
)
from edgefed.transport.renewal import Renewal
from edgefed.transport.reply_resender import ReplyResender
from edgefed.transport.sender import ChunkSender
from edgefed.wire.blobs import BlobCache, chunk_count
from edgefed.wire.enrolment_messages import IssuedCertificate, Leave, RenewalOrder
from edgefed.wire.messages import (
    Birth,
    Cancel,
    Chunk,
    CoordinatorState,
    DeviceState,
    Message,
    Need,
    Receipt,
    Task,
    Telemetry,
)
from edgefed.wire.rollout_messages import ModelOffer
from edgefed.wire.topics import ParsedTopic, Topics
from edgefed.wire.update_messages import UpdateOffer

log = logging.getLogger(__name__)

INBOX_LIMITS = InboxLimits(urgent=16 * 1024**2, chunks=64 * 1024**2, latest=1024**2)
TELEMETRY_EVERY = 10.0
COMPLAIN_EVERY = 60.0

LONGEST_WAIT = 5.0
"""Seconds after which the loop turns without a message: the service manager waits for it."""

RUN_NAMED_WITHIN = 60.0
"""Seconds in which a coordinator that was restarted names the run that it resumes."""


class _Stop:
    """Ends the agent's loop."""


Own = Item | DataRead | DataUnused | _Stop
"""Items that other threads of this process send to the agent's thread."""

Train = Callable[[Callable[[Item], None]], TrainingProcess]


class Agent:
    """One device's agent.

    Args:
        identity: name, fleet and birth.
        address: the broker.
        store: the state directory.
        train: returns the training process, given the receiver of its items.
        sensors: the board's health.
        renewal: the device's credentials; None in a fleet without certificates.
        log: the last lines of the log; None where the device's owner does not share them.
        watch: returns the thread that rereads the device's data, given the receiver of its items;
            None for no such thread.
        manager: the service manager that started this process; None for none.
        policy: when the device's owner lets it train; None for always.
        settings: the owner's; None for the defaults.
        updates: how the agent takes part in its updates; None for not at all.
    """

    def __init__(
        self,
        identity: Identity,
        address: Address,
        store: DeviceStore,
        train: Train,
        sensors: Sensors,
        clock: Clock,
        renewal: Renewal | None = None,
        log: LogRing | None = None,
        watch: Callable[[Callable[[DataRead | DataUnused], None]], DataWatch] | None = None,
        manager: ServiceManager | None = None,
        policy: TrainingPolicy | None = None,
        settings: AgentSettings | None = None,
        updates: UpdateOptions | None = None,
    ) -> None:
        self._manager = manager or ServiceManager({}, clock)
        self._identity = identity
        self._address = address
        self._topics = Topics(identity.fleet)
        self._birth, self._device = identity.birth, identity.device
        self._store = store
        self._sensors = sensors
        self._policy = policy or TrainingPolicy(WhenSettings(), store.folder, Readings, clock)
        self._clock = clock
        self._renewal = renewal
        self._session, self._coordinator = identity.birth.session, ""
        self._open_run = OpenRun(store.folder)
        self._owner = self._open_run.owner or ""
        self._run_at_work = self._open_run.owner is not None
        self._unnamed_by = math.inf
        self._limits = ArrivalLimits(self._topics, clock)
        self._inbox: Inbox[Own] = Inbox(clock, INBOX_LIMITS, self._limits)
        self._overflow = OverflowReport(lambda: self._inbox.counts)
        self._refused, self._next_refusal = 0, clock.monotonic()
        self._link = agent_link(identity, address, self._inbox.put)
        self._verifier = agent_verifier(address, store.folder, clock)
        self._publisher = Publisher(self._link, self._topics, self._device)
        self._diagnostics = Diagnostics(self._publisher, self._session, log)
        self._sender = ChunkSender(self._link)
        services = self._task_services(train)
        self._downloads = services.downloads
        self._training = services.training
        self._resender = services.resender
        self._reporter = services.reporter
        self._tasks = TaskSession(services)
        self._models = self._model_keeper(settings or AgentSettings())
        self._lives = EarlierLives(store.folder)
        self._name_guard = DuplicateNameGuard(self._session, self._lives)
        self._presence, self._stopping = PresenceCheck(self._session), threading.Event()
        self._watch = None if watch is None else watch(self._inbox.post)
        self._updates = AgentUpdates(
            updates or UpdateOptions(None, "off", 0, train),
            *(self._device, self._session, self._publisher, store.cache, clock),
        )
        self._next_telemetry = clock.monotonic()
        self._health: Telemetry | None = None
        self._problem: EdgeFedError | None = None

    def _task_services(self, train: Train) -> TaskServices:
        """Return the parts of the agent that a task uses."""
        store, publisher = self._store, self._publisher
        intake = BlobIntake(store.cache, store.staging, random.Random(secrets.randbits(64)))
        return TaskServices(
            store=store,
            downloads=Downloads(self._link, self._topics, intake, publisher.need),
            training=train(self._inbox.post),
            resender=ReplyResender(publisher.reply),
            reporter=ProgressReporter(
                self._identity, self._address, store.folder, self._clock, publisher.progress
            ),
            link=self._link,
            clock=self._clock,
            session=self._session,
            policy=self._policy,
            energy=EnergyMeter(self._sensors.power, self._clock),
        )

    def _model_keeper(self, settings: AgentSettings) -> ModelKeeper:
        folder = self._store.folder / MODELS
        cache = BlobCache(folder / "blobs", settings.cache)
        intake = BlobIntake(cache, folder / "staging", random.Random(secrets.randbits(64)))
        return ModelKeeper(
            settings,
            ModelFolder(folder),
            Downloads(self._link, self._topics, intake, self._publisher.need),
            cache,
            self._training,
            self._publisher.model_answer,
            *(self._clock, self._session),
        )

    # -- life ---------------------------------------------------------------------------------

    def run(self) -> None:
        """Work until ``stop``.

        Raises:
            NotAllowedError: another agent of this name is connected.
            StorageError: the disclosures of its birth cannot be stored first.
        """
        self._store.note_birth(self._birth, timestamp(self._clock.now()))
        self._lives.begin(self._session)
        self._tasks.check_limits(self._clock.monotonic())  # before it can be asked
        self._reporter.repeat(connected=False)
        self._link.start()
        if self._watch is not None:
            self._watch.start()
        self._manager.ready()
        try:
            while not self._stopping.is_set():
                self._turn()
        finally:
            self._manager.stopping()
            self._close()
        if self._problem is not None:
            raise self._problem

    def stop(self) -> None:
        """End ``run`` soon; replies and private state are on disk. Not for a signal handler."""
        self._stopping.set()
        self._inbox.post(_Stop())

    def metrics(self) -> Values:
        """Return the values of its metrics; safe from any thread."""
        activity, counts = self._reporter.activity, self._inbox.counts
        return agent_values(activity, self._link, counts, self._health, self._manager)

    def _turn(self) -> None:
        item = self._inbox.get(timeout=self._patience())
        if item is not None:
            taken = item
            self._tasks.guard(lambda: self._take(taken))
        self._tasks.retry()
        now = self._clock.monotonic()
        if now >= self._manager.next_due:
            self._manager.due(now)
        try:
            self._tick()
        except Exception:  # nothing that repeats may cost the task at hand
            log.exception("error in the agent")

    def _close(self) -> None:
        gone = self._birth.model_copy(update={"status": "lost"})
        if self._link.connected and self._problem is None:
            self._publisher.farewell(gone, STOPPED)
        if self._watch is not None:
            self._watch.stop()
        self._updates.close()
        self._training.stop()
        self._sender.stop()
        self._downloads.close()
        self._models.downloads.close()
        self._link.stop()
        self._reporter.repeat(connected=False)
        self._reporter.write()
        self._policy.save()
        self._store.close()

    def _patience(self) -> float:
        if self._updates.on_trial:
            return LOOK_EVERY
        dues = [
            self._next_telemetry,
            self._tasks.retry_due,
            self._policy.next_due,
            self._reporter.next_due(),
            self._updates.next_due,
        ]
        if self._link.connected:  # else nothing can be repeated
            dues += [
                self._downloads.intake.next_due,
                self._models.downloads.intake.next_due,
                self._resender.next_due(),
                self._presence.next_due,
            ]
        nearest = min(due for due in dues if due is not None)
        return min(LONGEST_WAIT, max(0.001, nearest - self._clock.monotonic()))

    def _tick(self) -> None:
        now = self._clock.monotonic()
        if now >= self._overflow.next_due and self._overflow.due(now):
            self._reporter.note_overflow(self._overflow.dropped, self._overflow.refused)
        self._reporter.due(now)
        if now >= self._unnamed_by:
            self._unnamed_by = math.inf
            self._set_run_at_work(False)
        if now >= self._policy.next_due:
            self._tasks.check_limits(now)
        if self._watch is not None and self._watch.allowed != self._between_runs:
            self._watch.allow(self._between_runs)
        if now >= self._updates.next_due:
            self._look_for_updates(now)
        if self._updates.on_trial:
            return
        if self._link.connected:
            self._tick_connected(now)
        else:
            self._next_telemetry = max(self._next_telemetry, now + 1.0)

    def _tick_connected(self, now: float) -> None:
        if now >= self._downloads.intake.next_due:
            self._tasks.check_downloads(now)
        if now >= self._models.next_due:
            self._models.due(now, is_free=not self._tasks.active)
        self._resender.due(now)
        if now >= self._presence.next_due:
            self._check_presence(now)
        if self._renewal is not None:
            self._renewal.due(now, self._publisher.renewal)
        if now >= self._next_telemetry:
            self._next_telemetry = now + TELEMETRY_EVERY
            self._tasks.look_for_folder()
            health = self._sensors.read(self._session, self._link.sent, self._link.received)
            self._health = health
            self._publisher.telemetry(health)

    def _look_for_updates(self, now: float) -> None:
        quiet = self._coordinator != "" and self._between_runs
        if self._updates.due(now, self._link.connected, quiet) and self._link.connected:
            self._connected()  # a trial is over: the coordinator may know of this agent

    def _check_presence(self, now: float) -> None:
        """Tell, once a connection, that the broker drops our birth; publish it again."""
        if not self._presence.missed(now):
            return
        if not self._presence.silent:
            self._presence.silent = True
            problem = unheard(self._address, self._topics.fleet, self._device)
            log.warning("%s", problem.as_line())
            self._reporter.note_unheard(problem.message)
        self._publisher.birth(self._birth)

    # -- what arrives -------------------------------------------------------------------------

    def _take(self, item: Arrival | Own) -> None:
        match item:
            case Incoming():
                self._take_message(item)
            case LinkUp():
                self._connected()
            case LinkDown():
                self._presence.disconnected()
                self._reporter.disconnected(item.reason)
            case Subscribed():
                self._tasks.subscribed(item.filter)
                self._models.subscribed(item.filter)
            case Progressed():
                self._tasks.progressed(item)
            case TrainingDone():
                self._tasks.finished(item)
            case ModelChecked():
                self._models.finished(item)
            case DataRead():
                self._take_data(item)
            case DataUnused():
                self._reporter.note_data(item.reason, self._link.connected)

    def _take_message(self, arrival: Incoming) -> None:
        if not arrival.payload and arrival.topic == self._topics.birth(self._device):
            self._publisher.birth(self._birth)  # the coordinator forgot us just as we came back
            return
        read = read_arrival(self._topics, arrival, self._refuse, self._verifier)
        if read is None:
            return
        message = read.message
        match message:
            case Task() if not arrival.retained and not self._updates.on_trial:
                self._tasks.take(message)
            case Chunk():
                self._take_chunk(message)
            case Need():
                self._take_need(message)
            case Receipt():
                self._take_receipt(message)
            case Cancel():
                self._tasks.cancel(message.exchange)
            case Birth():
                self._take_birth(message, live=not arrival.retained)
            case _:
                self._take_news(message)

    def _take_chunk(self, chunk: Chunk) -> None:
        """Take a chunk of a model, a task or an update."""
        now = self._clock.monotonic()
        self._updates.take_chunk(chunk, now)
        if not self._models.chunk(chunk):
            self._downloads.take(chunk, now)
            self._tasks.received(chunk.digest)

    def _take_state(self, state: CoordinatorState) -> None:
        if state.session != self._coordinator and state.status == "online":
            self._coordinator = state.session
            self._updates.forget_report()
            self._reporter.repeat(self._link.connected)  # it knows only what the broker kept of us
        self._limits.know_run(state.run)
        if state.status == "online" and (state.run or state.owner != self._owner):
            self._owner, self._unnamed_by = state.owner, math.inf
            self._set_run_at_work(state.run_status in UNFINISHED)
        elif state.status == "online" and self._run_at_work:
            self._unnamed_by = min(self._unnamed_by, self._clock.monotonic() + RUN_NAMED_WITHIN)
        self._tasks.close_exchanges(state)

    def _set_run_at_work(self, at_work: bool) -> None:
        self._run_at_work = at_work
        self._training.keep(at_work)
        self._open_run.note(self._owner if at_work else None)

    @property
    def _between_runs(self) -> bool:
        """Whether neither a run nor a task is at work; a run's data stay as they are."""
        return not self._run_at_work and not self._tasks.active

    def _take_data(self, read: DataRead) -> None:
        """Train on data that were read again, and tell the coordinator of them."""
        if not self._between_runs:
            self._watch_again()
            return
        changed = {**read.described, "revision": self._birth.revision + 1}
        birth = self._birth.model_copy(update=changed)
        try:
            self._store.note_birth(birth, timestamp(self._clock.now()))
            if self._watch is not None:
                self._watch.announce()
        except StorageError as error:
            if self._watch is not None:
                self._watch.refuse(error)
            return
        self._birth = birth
        self._training.renew(read.data)
        self._reporter.note_samples(birth.samples)
        self._reporter.note_data("", self._link.connected)
        log.info("the data have changed: %d samples to train on", birth.samples)
        if self._link.connected:
            self._publisher.birth(birth)

    def _watch_again(self) -> None:
        """Have data that were read again, and could not be used now, read once more."""
        if self._watch is not None:
            self._watch.forget()

    def _connected(self) -> None:
        """Publish the birth, and continue the interrupted transfers."""
        if self._updates.on_trial:
            self._reporter.connected()
            return
        self._publisher.birth(self._birth)
        now = self._clock.monotonic()
        self._updates.reconnected(now)
        self._name_guard.connected(now)
        self._presence.connected(now)
        self._resender.reconnected(now)
        self._downloads.reconnected(now)
        self._models.downloads.reconnected(now)
        self._reporter.connected()

    def _take_news(self, message: Message) -> None:
        """Handle the coordinator's messages beside tasks."""
        match message:
            case CoordinatorState():
                self._take_state(message)
            case ModelOffer() if not self._updates.on_trial:  # it is repeated
                self._models.take(message)
            case RenewalOrder() if self._renewal is not None:
                self._renewal.order(message)
            case IssuedCertificate():
                self._take_certificate(message)
            case Leave() if message.session == self._session:
                self._removed()
            case UpdateOffer():
                self._updates.take(message)
            case _:
                self._diagnostics.take(message)

    def _removed(self) -> None:
        """End: the coordinator has removed this device."""
        self._problem = NotAllowedError(
            f"Device {self._device} was removed from fleet {self._topics.fleet}.",
            code="device.removed",
            hint="to come back, ask for a token: edgefed device invite; edgefed-agent leave deletes"
            " the credentials",
        )
        self.stop()

    def _take_certificate(self, issued: IssuedCertificate) -> None:
        """Connect again with the device's next certificate."""
        made = None if self._renewal is None else self._renewal.take(issued)
        if made is not None:
            self._link.renew(made)

    def _take_birth(self, birth: Birth, *, live: bool) -> None:
        """Meet a message on our own birth topic."""
        if self._presence.heard(birth):
            log.info("the broker forwards this device's messages")
            self._reporter.note_unheard("")
        match self._name_guard.meet(birth, self._clock.monotonic(), live=live):
            case "restore":
                self._publisher.birth(self._birth)
            case "answer":
                if birth.status == "online":
                    log.warning("another agent has the name %s", self._device)
                self._publisher.birth(self._birth)
            case "yield":
                self._problem = NotAllowedError(
                    f"Fleet {self._topics.fleet} already has a device named {self._device}.",
                    code="device.taken",
                    hint="give this device another name with --name",
                )
                self.stop()

    def _take_need(self, need: Need) -> None:
        cache, digest = self._store.cache, need.digest
        size = cache.size(digest)
        if size is None or not self._store.offers(digest):
            return
        self._sender.send(
            self._topics.up_chunk(self._device),
            digest,
            lambda number: cache.chunk(digest, number),
            [number for number in need.chunks if number < chunk_count(size)],
        )

    def _refuse(self, parsed: ParsedTopic, reason: str) -> None:
        """Log invalid messages, at most once a minute."""
        self._refused += 1
        now = self._clock.monotonic()
        if now >= self._next_refusal:
            self._next_refusal = now + COMPLAIN_EVERY
            log.warning("message on %s refused: %s (%d so far)", parsed.leaf, reason, self._refused)
        self._reporter.note_refused(self._refused)

    def _take_receipt(self, receipt: Receipt) -> None:
        states: dict[str, DeviceState] = {"accepted": "done", "late": "late"}
        state = states.get(receipt.outcome, "rejected")
        waited = self._resender.heard(receipt.exchange, self._clock.monotonic())
        if waited:
            log_receipt(receipt)
        if self._tasks.active:  # its own state is shown
            self._reporter.activity.ended[state] += waited
        else:
            self._tasks.tell(state, reason=receipt.reason)
