"""The coordinator process: owns the connection, executes one run, and resumes after a kill."""

from __future__ import annotations

import logging
import queue
import random
import secrets
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

from edgefed.algorithms.composed.registry import make
from edgefed.config.recipes.recipe import EvaluationPlace, Recipe
from edgefed.coordinator.alerts.alert_watch import AlertWatch
from edgefed.coordinator.devices.connected_minutes import Presence
from edgefed.coordinator.devices.device_diagnostics import DeviceDiagnostics
from edgefed.coordinator.devices.device_orders import DeviceOrders
from edgefed.coordinator.devices.device_pauses import DevicePauses
from edgefed.coordinator.devices.device_registry import DeviceRegistry
from edgefed.coordinator.devices.known_devices import KnownDevices
from edgefed.coordinator.devices.sender_limits import (
    RetainedMessages,
    SenderLimits,
    either,
    everybody,
)
from edgefed.coordinator.devices.sites import Sites
from edgefed.coordinator.devices.trust_scores import TrustScores
from edgefed.coordinator.dispatch.dispatcher import Dispatcher
from edgefed.coordinator.dispatch.dispatcher_deps import Answer, DispatcherDeps
from edgefed.coordinator.dispatch.mqtt_fleet import MqttFleet
from edgefed.coordinator.exchanges.relayed_blobs import open_blobs
from edgefed.coordinator.journal.announcements import Announcements
from edgefed.coordinator.journal.event_journal import EventJournal, EventLog
from edgefed.coordinator.journal.stored_events import StoredEvents
from edgefed.coordinator.members.enrolment_server import EnrolmentServer
from edgefed.coordinator.members.membership import Membership, member_verifier, open_membership
from edgefed.coordinator.members.membership_messages import MembershipMessages
from edgefed.coordinator.models.run_model import load_dataset
from edgefed.coordinator.process.challenges import Challenges
from edgefed.coordinator.process.device_actions import device_actions
from edgefed.coordinator.process.duplicate_coordinator import refuse_second_coordinator
from edgefed.coordinator.process.enrolment_orders import enrolment_actions
from edgefed.coordinator.process.event_actions import event_actions
from edgefed.coordinator.process.failed_run import note_failure
from edgefed.coordinator.process.last_run import with_last_run
from edgefed.coordinator.process.model_actions import model_actions
from edgefed.coordinator.process.request_handler import RequestHandler
from edgefed.coordinator.process.request_server import RequestServer
from edgefed.coordinator.process.run_check import RunCheck, check_start
from edgefed.coordinator.process.service_metrics import ServiceMetrics
from edgefed.coordinator.process.service_settings import ServiceSettings, owner_of
from edgefed.coordinator.process.site_actions import site_actions
from edgefed.coordinator.process.update_actions import update_actions
from edgefed.coordinator.rollouts.model_rollouts import ModelRollouts
from edgefed.coordinator.rollouts.rollout_store import RolloutStore
from edgefed.coordinator.rounds.engine import Engine
from edgefed.coordinator.rounds.engine_deps import EngineDeps
from edgefed.coordinator.rounds.evaluation_request import EvaluationRequest
from edgefed.coordinator.rounds.requested_evaluations import Evaluations
from edgefed.coordinator.rounds.run_beginning import check_resumable
from edgefed.coordinator.rounds.run_controls import RunControls
from edgefed.coordinator.storage.new_run import create_run
from edgefed.coordinator.storage.run_store import Store
from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.coordinator.updates.agent_releases import AgentReleases
from edgefed.errors import EdgeFedError, NotAllowedError, UsageError
from edgefed.events.base.model import UNFINISHED
from edgefed.events.base.snapshot import Snapshot
from edgefed.events.state.fold import MAX_LINES
from edgefed.files.plugin_failures import plugin_errors
from edgefed.learn.base.processors import set_threads
from edgefed.process.clock import Clock, timestamp
from edgefed.process.lock import FolderLock
from edgefed.process.memory import release_memory
from edgefed.process.service_manager import ServiceManager
from edgefed.transport.inbox import Inbox
from edgefed.transport.link import Link
from edgefed.trust.certificates import Certificate
from edgefed.wire.chunk_staging import prune
from edgefed.wire.messages import CoordinatorState, Message, Request
from edgefed.wire.rollout_messages import ModelAnswer
from edgefed.wire.topics import Topics
from edgefed.wire.update_messages import UpdateState

log = logging.getLogger(__name__)


class Service:
    """The coordinator.

    Args:
        settings: of the process.
        clock: the only source of time.
        on_heard: called with each message of a device that has joined; None for nothing.
        manager: the service manager that started this process; None for none.

    Attributes:
        cache: the coordinator's blobs.
        registry: the connected devices.
        dispatcher: the thread that talks to the broker.
        fleet: the devices, to be asked.
        journal: receives events.
        announcements: publish the coordinator's state.
        metrics: the values of its metrics.

    Raises:
        NotAllowedError: another coordinator holds the folder or the fleet.
        UnreachableError: there is no broker.
        StorageError: the folder cannot be used.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        clock: Clock,
        on_heard: Callable[[str, Message], None] | None = None,
        manager: ServiceManager | None = None,
    ) -> None:
        set_threads(1)
        self._settings, self._clock, self._on_heard = settings, clock, on_heard
        self._manager = manager or ServiceManager({}, clock)
        self._topics, self._session = Topics(settings.fleet), secrets.token_hex(8)
        self._lock, self._owner = self._take_folder()
        self._store = Store(settings.folder)
        self._events = StoredEvents(settings.folder, clock, settings.party)
        self.cache, self._relays = open_blobs(settings.folder, stored=self._store.relays())
        self.journal = EventJournal(settings.fleet, clock)
        self._known = KnownDevices(self._store)
        self.journal.begin_with(self._state_on_disk)
        self._trust, self._pauses = TrustScores(settings.folder), DevicePauses(settings.folder)
        self._membership = open_membership(settings.membership, clock)
        self._sites = self._make_sites()
        self._enrolled = self._make_enrolled()
        self.registry = self._make_registry()
        self._presence = Presence(settings.folder, clock, self._online)
        self._run_check = self._make_run_check()
        self._limits = SenderLimits(self._topics, clock, self._joined(), self._enrolled)
        inbox: Inbox[NoReturn] = Inbox(clock, gate=self._limits)
        state = CoordinatorState(session=self._session, owner=self._owner, status="online")
        self._link = self._make_link(inbox, state)
        self.announcements = Announcements(self._link, self._topics, state)
        self._members = self._make_members(inbox)
        self._diagnostics = self._make_diagnostics()
        self._rollouts = self._make_rollouts()
        self._releases = self._make_releases()
        self.dispatcher = self._make_dispatcher(inbox)
        self.fleet = self._make_fleet()
        self._evaluations = Evaluations(self._engine_deps, self.fleet.wake)
        self._requests = RequestServer(
            *(self._make_requests(inbox), self._link, self._topics, clock),
            *(self._limits.answered, self._limits.has_time),
        )
        self._pending: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._jobs: dict[str, RunControls] = {}
        self._guard, self._stopping = threading.Lock(), False
        self.journal.listen(self.announcements.event)
        self.journal.listen(EventLog(clock).take)
        self.metrics = ServiceMetrics(
            self.journal, lambda: inbox.counts, self._link, self._manager, clock
        )
        self._alerts = AlertWatch(settings.alerts, self.journal, clock, settings.folder)

    def _take_folder(self) -> tuple[FolderLock, str]:
        """Return the lock of the state folder, and the owner that it names."""
        lock = FolderLock(self._settings.folder, f"a {self._settings.party}")
        owner = owner_of(self._settings.folder)
        try:
            refuse_second_coordinator(self._settings.address, self._topics, owner)
        except EdgeFedError:
            lock.release()
            raise
        return lock, owner

    def _state_on_disk(self, snapshot: Snapshot) -> Snapshot:
        return self._events.with_lines(with_last_run(snapshot, self._store), MAX_LINES)

    def _joined(self) -> Callable[[str], bool]:
        if self._membership:
            return self._enrolled
        joined = either(self.registry.knows, self._known.__contains__)
        return either(joined, self._sites.is_gateway)

    def _make_enrolled(self) -> Callable[[str], bool]:
        if self._membership is None:
            return everybody
        return either(self._membership.parties.is_enrolled, self._sites.owns)

    def _make_sites(self) -> Sites:
        membership = self._membership
        if membership is not None:
            return Sites(membership.parties.is_enrolled, membership.site_limits)
        return Sites(lambda device: self.registry.online(device))  # noqa: PLW0108 - made later

    def _make_registry(self) -> DeviceRegistry:
        return DeviceRegistry(
            *(self.journal, self._clock, self._trust, self._enrolled, self._pauses),
            self._sites.gateway_of,
        )

    def _make_run_check(self) -> RunCheck:
        return RunCheck(
            self._settings,
            lambda checks: self._trust.exclusions(self.registry.known(), checks),
            self._sites.gateway_of,
        )

    def _make_link(self, inbox: Inbox[NoReturn], state: CoordinatorState) -> Link:
        topics = self._topics
        will = state.model_copy(update={"status": "lost"})
        retained = RetainedMessages(
            topics,
            self._enrolled,
            lambda topic: self._link.clear(topic),  # noqa: PLW0108 - made later
            inbox.put,
        )
        return Link(
            self._settings.address,
            f"edgefed-{self._settings.fleet}-coordinator-{secrets.token_hex(8)}",
            retained.take,
            will=(topics.coordinator(), will),
            subscriptions=(
                topics.every_up(),
                topics.every_request(),
                topics.coordinator(),
            ),
        )

    def _make_requests(self, inbox: Inbox[NoReturn]) -> RequestHandler:
        return RequestHandler(
            self._session,
            self._store,
            self.journal,
            self,
            Challenges(self._clock, lambda: secrets.token_hex(16)),
            lambda: inbox.counts,
            self._evaluations.result,
            {
                **device_actions(self._make_device_orders(), self._diagnostics, self._presence),
                **enrolment_actions(self._members, self._sites.gateway_of),
                **event_actions(self._events),
                **model_actions(self._rollouts, self._store),
                **update_actions(self._releases),
                **site_actions(
                    *(self._sites, self.registry),
                    self._membership.listing if self._membership is not None else tuple,
                ),
            },
        )

    def _make_diagnostics(self) -> DeviceDiagnostics:
        return DeviceDiagnostics(
            lambda device, message: self.dispatcher.send(device, message),  # noqa: PLW0108
            *(self.registry, self.journal, self._clock),
            lambda: secrets.token_hex(8),
        )

    def _make_rollouts(self) -> ModelRollouts:
        return ModelRollouts(
            *(RolloutStore(self._settings.folder), self._store, self.registry),
            *(self.cache, self.journal, self._clock),
            lambda device, offer: self.dispatcher.offer(device, offer),  # noqa: PLW0108
            lambda: secrets.token_hex(4),
            self._sites.gateway_of,
        )

    def _make_releases(self) -> AgentReleases:
        return AgentReleases(
            self._settings.folder / "updates",
            lambda device, offer: self.dispatcher.offer(device, offer),  # noqa: PLW0108
            *(self.registry, self._sites.gateway_of, self.journal),
            lambda: secrets.token_hex(8),
        )

    def _make_device_orders(self) -> DeviceOrders:
        return DeviceOrders(
            *(self.registry, self._trust, self._pauses),
            *(self.journal, self._clock, self._clear),
        )

    def _make_dispatcher(self, inbox: Inbox[NoReturn]) -> Dispatcher:
        return Dispatcher(
            DispatcherDeps(
                link=self._link,
                inbox=inbox,
                topics=self._topics,
                registry=self.registry,
                cache=self.cache,
                relays=self._relays,
                staging=self._settings.folder / "staging",
                journal=self.journal,
                clock=self._clock,
                jitter=random.Random(secrets.randbits(64)),
                on_request=self._take_request,
                on_up=self.announcements.repeat,
                session=self._session,
                verifier=member_verifier(self._settings.address, self._membership),
                known=self._known.__contains__,
                enrolled=self._enrolled,
                expect=self._limits.expect,
                members=self._members,
                on_answer=self._take_answer,
                offered=self._rollouts.offered,
                sites=self._sites,
                updates=self._releases,
                on_heard=self._on_heard,
                parts=(self._manager, self._presence, self._rollouts, self._releases),
                party=self._settings.party,
            )
        )

    def _make_fleet(self) -> MqttFleet:
        return MqttFleet(
            *(self.dispatcher, self.registry, self.journal, self._clock),
            *(self._closed, self._known.add),
        )

    def _make_enrolment(
        self, membership: Membership, inbox: Inbox[NoReturn]
    ) -> EnrolmentServer | None:
        address = self._settings.address
        if not address.tls:
            return None
        return EnrolmentServer(address, self._topics, membership.trust, inbox.put)

    def _make_members(self, inbox: Inbox[NoReturn]) -> MembershipMessages | None:
        if self._membership is None:
            return None
        return MembershipMessages(
            self._membership,
            self._link,
            self._make_enrolment(self._membership, inbox),
            self._topics,
            self.journal,
            lambda name: self.registry.session(name) or self._sites.session(name),
            lambda device: self.dispatcher.drop_device(device),  # noqa: PLW0108 - made later
            self._clock,
        )

    # -- life ---------------------------------------------------------------------------------

    def serve(self) -> None:
        """Work until ``stop``, first on runs that an earlier process left unfinished."""
        self._link.start_now(timeout=10)
        self._events.begin(self.journal)
        self._take_up_unfinished()  # before a request could start another run
        self._manager.ready()
        self.dispatcher.start()
        if self._members is not None:
            self._members.start()
        self._alerts.start()
        try:
            while not self._stopping:
                work = self._pending.get()
                if work is not None:
                    work()
                    release_memory()  # a run's parts, with its data set, refer to each other
        finally:
            self._manager.stopping()
            self._close()

    def stop(self) -> None:
        """End ``serve`` soon; a run at work resumes when the coordinator is started again."""
        self._stopping = True
        for controls in (*self._jobs.values(), *self._evaluations.controls()):
            controls.stop_process()
        self._pending.put(None)

    def _close(self) -> None:
        self._alerts.stop()
        self.announcements.change(status="lost")
        self.dispatcher.stop()
        self._presence.save()
        if self._members is not None:
            self._members.stop()
        self.journal.emit("note", text=self._events.stopped)
        self._link.stop()
        self.journal.close()
        self._events.close()
        self._store.close()
        self._trust.close()
        self._pauses.close()
        self._rollouts.close()
        if self._membership is not None:
            self._membership.close()
        self._lock.release()

    def _online(self) -> list[str]:
        return [device for device in self.registry.devices() if self.registry.online(device)]

    def _take_up_unfinished(self) -> None:
        with self._guard:
            unfinished = [record for record in self._store.runs() if record.status in UNFINISHED]
            if not unfinished:
                prune(self._settings.folder / "staging", ())
            for record in reversed(unfinished):
                if record.run not in self._jobs:  # else it was begun this moment
                    self._queue(record, paused=record.status == "paused")

    # -- runs ---------------------------------------------------------------------------------

    def start(self, recipe: Recipe, *, paused: bool = False) -> RunRecord:
        """Begin a run, unless one is at work.

        Raises:
            NotAllowedError: a run is at work.
            EdgeFedError: the recipe cannot be run, or names code that is not run here.
        """
        with self._guard:
            self._check_free()  # before what takes time
        check_start(recipe, self._settings)
        with self._guard:
            self._check_free()
            record = create_run(self._store, recipe, self._clock)
            self._queue(record, paused=paused)
        return record

    def check(self, recipe: Recipe) -> dict[str, Any]:
        """Return which of the devices that are there have data that fit a recipe.

        ``busy`` is the run at work, if there is one: another cannot start before its end.

        Raises:
            EdgeFedError: the recipe cannot be run.
        """
        report = self._run_check.report(recipe, self.registry.roster())
        return {**report, "busy": next(iter(list(self._jobs)), "")}

    def order(self, run: str, action: str) -> str:
        """Give an order to the run at work, or take up one that failed or was aborted.

        Raises:
            UsageError: the run is not at work.
            StorageError: ``run.checkpoint``: the run has no checkpoint to go on from.
        """
        with self._guard:
            controls = self._jobs.get(run)
            if controls is not None:
                message = controls.order(action)
                self._show_order(run, action)
                return message
            record = self._store.run(run)
            # One that nobody works on may still say so, when a full disk did not take its end.
            if action == "resume" and record.status != "finished":
                self._check_free()
                begun = check_resumable(self._store, record)
                record = replace(record, error="", hint="", ended="")
                self._store.save_run(record)
                self._queue(record, paused=False)
                return f"taken up from its {'last checkpoint' if begun else 'beginning'}"
        raise UsageError(
            f"Run {run} is {record.status}; it takes no '{action}'.",
            code="run.not_active",
            hint=f"edgefed run show {run}",
        )

    def evaluate(self, run: str, on: EvaluationPlace | None, mode: str, *, best: bool) -> str:
        """Begin to test the model of a run that is paused or has ended; return the test's id.

        Raises:
            NotAllowedError: this run, or another one, is at work.
        """
        request = EvaluationRequest(on, mode, best)
        with self._guard:
            record = self._store.run(run)
            if next(iter(self._jobs), "") == run and record.status == "paused":
                self._jobs[run].evaluate(request)
            else:
                self._check_free()
                self._pending.put(self._evaluations.of_ended_run(record, request))
        return self._evaluations.add(request)

    def delete(self, run: str) -> None:
        """Delete an ended run, its folder and its rows.

        Raises:
            NotAllowedError: it has not ended, or an ended run is being evaluated.
            StorageError: the disk does not take it.
        """
        with self._guard:
            self._evaluations.check_free()
            record = self._store.run(run)
            self._store.delete_run(record, at_work=record.run in self._jobs)
            shown = self.journal.snapshot.run
            if shown is not None and shown.run == record.run:
                self.journal.begin_with(lambda snapshot: with_last_run(snapshot, self._store))

    def _check_free(self) -> None:
        if self._settings.gateway:
            raise NotAllowedError(
                f"This is gateway {self._settings.gateway}: it has no runs of its own.",
                code="run.gateway",
                hint="use the same command at the coordinator to which the gateway belongs",
            )
        self._evaluations.check_free()
        for run in list(self._jobs):
            raise NotAllowedError(
                f"Run {run} is at work.",
                code="run.busy",
                hint=f"edgefed run finish {run}, or edgefed run abort",
            )

    def _show_order(self, run: str, action: str) -> None:
        status = {"pause": "pausing", "finish": "finishing"}.get(action)
        if status is not None:
            self.journal.emit("run", run=run, status=status)

    def _queue(self, record: RunRecord, *, paused: bool) -> None:
        controls = RunControls(paused=paused)
        controls.on_change = self.fleet.wake
        self._jobs[record.run] = controls
        self._pending.put(lambda: self._work(record, controls))

    def _work(self, record: RunRecord, controls: RunControls) -> None:
        """Run one run to its end; whatever happens, the coordinator lives on."""
        try:
            recipe = Recipe.model_validate_json(record.recipe)
            self.journal.open(self._store.run_folder(record.run) / "events.jsonl")
            with plugin_errors():
                deps = self._engine_deps(recipe, controls)
                Engine(record, deps, self.announcements.record).run()
        except EdgeFedError as error:
            self._fail(record.run, error)
        except Exception as error:
            log.exception("run %s failed", record.run)
            text = f"{type(error).__name__}: {error}"
            self._fail(record.run, EdgeFedError(text, code="internal", hint="see the log"))
        finally:
            self.journal.close()
            with self._guard:
                self._jobs.pop(record.run, None)
            controls.give_up_evaluations()

    def _engine_deps(self, recipe: Recipe, controls: RunControls) -> EngineDeps:
        data = self._settings.folder / "data"
        return EngineDeps(
            recipe=recipe,
            algorithm=make(recipe),
            fleet=self.fleet,
            dataset=load_dataset(recipe, data),
            data_folder=data,
            store=self._store,
            cache=self.cache,
            relays=self._relays,
            journal=self.journal,
            controls=controls,
            clock=self._clock,
            trackers=self._settings.trackers,
            user_models=self._settings.user_models,
            memory=self._settings.memory,
            trust=self._trust,
            release=self.dispatcher.release_space,
        )

    def _fail(self, run: str, error: EdgeFedError) -> None:
        ended = timestamp(self._clock.now())
        note_failure(self._store, self.announcements, self._relays, self.journal, run, error, ended)

    def _clear(self, device: str) -> None:
        """Forget that a device took part, and delete the broker's retained messages of it."""
        self._known.forget(device)
        self._presence.forget(device)
        self._sites.forget(device)
        self._releases.forget(device)
        self._link.clear(*self._topics.written_by_device(device))

    def _closed(self, run: str, through: int) -> None:
        self._known.save()
        self.announcements.closed(run, through)

    def _take_answer(self, device: str, answer: Answer) -> None:
        match answer:
            case UpdateState():
                self._releases.take(device, answer)
            case ModelAnswer():
                self._rollouts.take(device, answer)
            case _:
                self._diagnostics.take(device, answer)

    def _take_request(self, client: str, request: Request, signer: Certificate | None) -> None:
        self._requests.take(client, request, signer)
