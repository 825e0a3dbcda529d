"""A gateway: one of the coordinator's parties upstream, and the coordinator of its site downstream.

The site is a fleet of its own, with its own broker and authority. The gateway passes on tasks,
keeps blobs for its site, and sends the devices' replies upstream; it starts no runs. When the link
upstream is cut, its devices train and answer, and their replies wait here.
"""

from __future__ import annotations

import logging
import random
import secrets
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from edgefed.config.values.address import Address
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.process.service import Service
from edgefed.coordinator.process.service_settings import ServiceSettings
from edgefed.errors import EdgeFedError, NotAllowedError, WireError
from edgefed.events.base.coordinator_states import REMOVED
from edgefed.events.base.model import UNFINISHED, Event, RunStatus
from edgefed.gateway.site_tasks import SiteParts, SiteTasks
from edgefed.process.clock import Clock
from edgefed.process.service_manager import ServiceManager
from edgefed.transport.batch_sender import BatchSender
from edgefed.transport.blob_intake import BlobIntake
from edgefed.transport.downloads import Downloads
from edgefed.transport.inbox import (
    Arrival,
    Inbox,
    Incoming,
    LinkDown,
    LinkUp,
    Subscribed,
    read_arrival,
)
from edgefed.transport.link import Link
from edgefed.transport.renewal import Renewal
from edgefed.transport.sender import ChunkSender
from edgefed.trust.superseded_certificate import COORDINATOR_SINCE, verifier_of_coordinator
from edgefed.version import VERSION
from edgefed.wire.diagnostic_messages import LogRequest, LogTail, Ping, Pong
from edgefed.wire.enrolment_messages import IssuedCertificate, Leave, RenewalOrder, RenewalRequest
from edgefed.wire.messages import (
    Birth,
    Cancel,
    Chunk,
    CoordinatorState,
    Message,
    Need,
    Progress,
    Receipt,
    Reply,
    Task,
    Telemetry,
)
from edgefed.wire.site_messages import (
    TO_DEVICES,
    GatewayState,
    SiteMessages,
    SumRequest,
    unpack_batch,
)
from edgefed.wire.topics import ParsedTopic, Topics

log = logging.getLogger(__name__)

UPSTREAM = ""
"""The only receiver of the batches that a gateway sends."""

REPEAT_EVERY = 60.0
"""Seconds between two announcements of all devices: one may have been refused for a while."""

MOST_OTHERS = 3
"""Kept announcements of another gateway of this name, from which on there is one."""

ANNOUNCE_EVERY = 10.0
"""Seconds between two announcements of a gateway whose devices nobody has asked for yet."""

_PASSED_ON = (Telemetry, Pong, LogTail)


@dataclass(frozen=True)
class Upstream:
    """The fleet to which a site belongs.

    Attributes:
        fleet: its name.
        name: of the gateway in it.
        address: of its broker, with the gateway's credentials.
        folder: of the gateway's state in it.
    """

    fleet: str
    name: str
    address: Address
    folder: Path


class _Stop:
    """Ends the gateway's loop."""


Own = Delivered | _Stop


class Gateway:
    """One gateway.

    Args:
        upstream: the fleet to which its site belongs.
        settings: of the site's coordinator.
        clock: the only source of time.
        manager: the service manager that started this process; None for none.

    Attributes:
        metrics: the values of its site's metrics.

    Raises:
        EdgeFedError: as ``Service``.
    """

    def __init__(
        self,
        upstream: Upstream,
        settings: ServiceSettings,
        clock: Clock,
        manager: ServiceManager | None = None,
    ) -> None:
        self._name = upstream.name
        self._topics = Topics(upstream.fleet)
        self._clock = clock
        self._session = secrets.token_hex(8)
        self._state = GatewayState(
            session=self._session, status="online", agent=VERSION, site=settings.fleet
        )
        self._site = Service(settings, clock, self._heard, manager)
        self.metrics = self._site.metrics
        self._sent_births: dict[str, Birth] = {}
        self._site.registry.listen(lambda device: self._announce(device, why=True))
        self._site.journal.listen(self._note)
        self._inbox: Inbox[Own] = Inbox(clock)
        self._link = self._make_link(upstream)
        own = upstream.address.credentials
        self._verifier, self._renewal = None, None
        if own is not None:
            since = upstream.folder / COORDINATOR_SINCE
            self._verifier = verifier_of_coordinator(own.authority, since, clock)
            self._renewal = Renewal(own, clock)
        self._batches = BatchSender(self._publish_batch)
        self._sender = ChunkSender(self._link)
        intake = BlobIntake(
            self._site.cache, upstream.folder / "staging", random.Random(secrets.randbits(64))
        )
        self._downloads = Downloads(self._link, self._topics, intake, self._ask)
        self._tasks = SiteTasks(
            SiteParts(
                *(self._site.fleet, self._site.cache, self._downloads, self._send_reply),
                *(self._site.registry.lost_since, clock),
            )
        )
        self._problem: NotAllowedError | None = None
        self._welcome = self._announced = False
        self._run_shown: dict[str, Any] = {}
        self._others = 0
        self._next_announcement = self._next_repetition = clock.monotonic()
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for name, target in (("gateway", self._run), ("replies", self._collect))
        ]

    def _make_link(self, upstream: Upstream) -> Link:
        topics = self._topics
        return Link(
            upstream.address,
            f"edgefed-{upstream.fleet}-{upstream.name}-{secrets.token_hex(8)}",
            self._inbox.put,
            will=(topics.gateway(self._name), self._state.model_copy(update={"status": "lost"})),
            subscriptions=(
                topics.coordinator(),
                topics.every_down(self._name),
                topics.gateway(self._name),
            ),
            option="--upstream",
        )

    # -- life ---------------------------------------------------------------------------------

    def serve(self) -> None:
        """Work until ``stop``.

        Raises:
            UnreachableError: there is no broker at the site.
            NotAllowedError: ``gateway.removed``: it is no longer a member upstream.
        """
        self._link.start()
        for thread in self._threads:
            thread.start()
        try:
            self._site.serve()
        finally:
            self._close()
        if self._problem is not None:
            raise self._problem

    def stop(self) -> None:
        """End ``serve`` soon."""
        self._site.stop()

    def _close(self) -> None:
        self._closing.set()
        self._inbox.post(_Stop())
        for thread in self._threads:
            thread.join(timeout=5)
        self._batches.stop()
        # The broker publishes the will only if a connection breaks, not when it is ended
        if self._link.connected:
            gone = self._state.model_copy(update={"status": "lost"})
            self._link.send(self._topics.gateway(self._name), gone, retain=True)
        self._sender.stop()
        self._downloads.close()
        self._link.stop()

    def _collect(self) -> None:
        """Hand the replies of the site's devices to the gateway's thread."""
        while not self._closing.is_set():
            delivered = self._site.fleet.next_reply(
                self._clock.monotonic() + 1.0, self._closing.is_set
            )
            if delivered is not None:
                self._inbox.post(delivered)

    def _run(self) -> None:
        while not self._closing.is_set():
            item = self._inbox.get(timeout=self._patience())
            try:
                if item is not None:
                    self._take(item)
                self._tick()
            except EdgeFedError as error:
                log.warning("%s", error.as_line())
            except Exception:
                log.exception("error in the gateway")

    def _patience(self) -> float:
        due = self._tasks.next_due()
        left = 1.0 if due is None else due - self._clock.monotonic()
        return min(1.0, max(0.001, left))

    def _tick(self) -> None:
        now = self._clock.monotonic()
        if not self._link.connected:
            return
        self._link.end_if_stalled()
        self._tasks.due(now)
        if self._renewal is not None:
            self._renewal.due(now, self._ask_renewal)
        if not self._welcome and now >= self._next_announcement:
            self._next_announcement = now + ANNOUNCE_EVERY
            self._link.send(self._topics.gateway(self._name), self._state, retain=True)
        elif self._welcome and now >= self._next_repetition:
            self._announce_all(progress=False)  # which would pass for a sign of life

    # -- from upstream ------------------------------------------------------------------------

    def _take(self, item: Arrival | Own) -> None:
        match item:
            case Incoming():
                self._take_message(item)
            case LinkUp():
                log.info("connected to fleet %s", self._topics.fleet)
                self._welcome, self._next_announcement = False, self._clock.monotonic()
                self._tasks.reconnected(self._clock.monotonic())
            case LinkDown():
                log.warning("connection to fleet %s lost: %s", self._topics.fleet, item.reason)
            case Subscribed():
                wanted, now = self._tasks.lacks(), self._clock.monotonic()
                self._tasks.received(self._downloads.subscribed(item.filter, wanted, now))
            case Delivered():
                self._tasks.answered(item.reply)

    def _take_message(self, arrival: Incoming) -> None:
        read = read_arrival(self._topics, arrival, self._refuse, self._verifier)
        if read is None:
            return
        match read.message:
            case CoordinatorState():
                self._follow(read.message)
            case SiteMessages() if read.message.session == self._session:
                self._take_batch(read.message)
            case Chunk():
                self._downloads.take(read.message, self._clock.monotonic())
                self._tasks.received(read.message.digest)
            case Need():
                self._give(read.message)
            case GatewayState():
                self._meet(read.message, live=not arrival.retained)
            case _:
                self._take_membership(read.message)

    def _meet(self, state: GatewayState, *, live: bool) -> None:
        """Take the last announcement of a gateway of this name: an earlier life, or another one.

        Two gateways with one certificate end each other's connection, and see each other only by
        the message that the broker kept. After a crash it may have kept one of an earlier life.
        """
        if state.session == self._session:
            self._announced = self._announced or state.status == "online"
        if state.session == self._session or not self._announced:
            return
        self._next_announcement, self._welcome = self._clock.monotonic(), False
        self._others += state.status == "online"
        if state.status == "lost" or not (live or self._others == MOST_OTHERS):
            return
        self._problem = NotAllowedError(
            f"Another gateway {self._name} of fleet {self._topics.fleet} is connected.",
            code="gateway.taken",
            hint="stop one of the two; each gateway needs a name and credentials of its own",
        )
        self.stop()

    def _take_membership(self, message: Message) -> None:
        """Take a message about the gateway's own certificate."""
        match message:
            case RenewalOrder() if self._renewal is not None:
                self._renewal.order(message)
            case IssuedCertificate() if self._renewal is not None:
                made = self._renewal.take(message)
                if made is not None:
                    self._link.renew(made)
            case Leave() if message.session == self._session:
                self._problem = NotAllowedError(
                    f"Gateway {self._name} was removed from fleet {self._topics.fleet}.",
                    code="gateway.removed",
                    hint="to come back, ask for a token there: edgefed gateway invite",
                )
                self.stop()

    def _refuse(self, parsed: ParsedTopic, reason: str) -> None:
        log.warning(
            "message on %s of fleet %s refused: %s", parsed.leaf, self._topics.fleet, reason
        )

    def _follow(self, state: CoordinatorState) -> None:
        """Tell the site of the run upstream; while its coordinator is away nothing changes."""
        if state.status != "online" or not state.run:
            return
        self._site.dispatcher.flush()  # to gateways of this site
        self._site.announcements.change(
            run=state.run,
            run_status=state.run_status,
            round=state.round,
            closed_through=state.closed_through,
        )
        self._tasks.close(state.run, state.closed_through)
        self._site.dispatcher.forget(state.run, state.closed_through)
        if state.run_status in get_args(RunStatus):
            ended = {} if state.run_status in UNFINISHED else {"round": state.round}
            self._show_run(state.run, status=state.run_status, **ended)

    def _show_task(self, task: Task) -> None:
        """Show the run of a task, unless the task is of a round that is over."""
        shown = self._run_shown
        if task.run != shown.get("run") or task.round >= shown.get("round", 0):
            described = {"algorithm": task.algorithm, "rounds": task.rounds, "round": task.round}
            self._show_run(task.run, **described)

    def _show_run(self, run: str, **fields: Any) -> None:
        """Show at the site what is new about the run upstream, as far as messages say it."""
        before = self._run_shown if self._run_shown.get("run") == run else {}
        self._run_shown = {**before, "run": run, **fields}
        new = dict(self._run_shown.items() - before.items())
        begun = new.pop("round", None) if "status" not in new else None
        if new:
            self._site.journal.emit("run", **{**new, "run": run})
        if begun is not None:
            self._site.journal.emit("round", run=run, round=begun)

    def _take_batch(self, messages: SiteMessages) -> None:
        self._welcome = True
        if not messages.batch:
            self._announce_all()
            return
        try:
            for device, message, _ in unpack_batch(messages.batch, *TO_DEVICES):
                self._pass_down(device, message)
        except WireError as error:
            log.warning("messages from fleet %s refused: %s", self._topics.fleet, error.message)

    def _pass_down(self, device: str, message: Message) -> None:
        match message:
            case Task() if message.device == device:
                self._show_task(message)
                self._tasks.take(message)
            case SumRequest():
                self._tasks.request_sum(message)
            case Receipt():
                self._site.dispatcher.send_receipt(
                    device, message.exchange, message.outcome, message.reason
                )
                self._tasks.settle(device, message.exchange)
            case Cancel():
                self._tasks.cancel(device, message.exchange)
            case Ping() | LogRequest():
                self._site.dispatcher.send(device, message)

    def _give(self, need: Need) -> None:
        """Send chunks of a blob that a reply names."""
        if need.digest not in self._tasks.named():
            return
        cache, digest = self._site.cache, need.digest
        self._sender.send(
            self._topics.up_chunk(self._name),
            digest,
            lambda number: cache.chunk(digest, number),
            need.chunks,
        )

    # -- to upstream --------------------------------------------------------------------------

    def _heard(self, device: str, message: Message) -> None:
        """Pass on what a device says; called on the site's dispatcher's thread."""
        if isinstance(message, (Birth, Progress)):
            self._announce(device, birth=isinstance(message, Birth))
        elif isinstance(message, _PASSED_ON) and self._link.connected:
            self._batches.put(UPSTREAM, device, message)

    def _note(self, event: Event, number: int) -> None:
        """Pass on that an operator of the site has paused or resumed a device."""
        del number
        if event.kind == "device" and "paused_by" in event.fields:
            self._announce(event.fields["device"], birth=False)

    def _announce_all(self, *, progress: bool = True) -> None:
        self._next_repetition = self._clock.monotonic() + REPEAT_EVERY
        known = self._site.registry.devices()
        for device in known:
            self._announce(device, progress=progress)
        for device in self._sent_births.keys() - {*known}:
            self._announce(device, why=True)

    def _announce(
        self, device: str, *, birth: bool = True, progress: bool = True, why: bool = False
    ) -> None:
        """Tell of a device that has come, has other data, or is lost; and of its progress.

        With ``why``, a lost device's reason goes before, as the device's own farewell would.
        """
        if not self._link.connected:
            return
        announced = self._site.registry.announced(device)
        if announced is not None:
            self._sent_births[device] = announced[0]
        else:
            announced = self._removed(device)
        if announced is None:
            return
        lost = announced[0].status == "lost"
        if lost and why:
            self._batches.put(UPSTREAM, device, announced[1])
        if birth:
            self._batches.put(UPSTREAM, device, announced[0])
        if progress and not lost:
            self._batches.put(UPSTREAM, device, announced[1])

    def _removed(self, device: str) -> tuple[Birth, Progress] | None:
        """Return the will and the farewell of a device that the site has removed, once."""
        birth = self._sent_births.pop(device, None)
        if birth is None:
            return None
        farewell = Progress(session=birth.session, state="lost", reason=REMOVED)
        return birth.model_copy(update={"status": "lost"}), farewell

    def _send_reply(self, reply: Reply) -> None:
        if self._link.connected:
            self._batches.put(UPSTREAM, reply.device, reply)

    def _publish_batch(self, receiver: str, batch: bytes) -> None:
        del receiver
        message = SiteMessages(session=self._session, batch=batch)
        self._link.send(self._topics.up_site(self._name), message)

    def _ask_renewal(self, asked: RenewalRequest) -> None:
        self._link.send(self._topics.renewal(self._name), asked)

    def _ask(self, need: Need) -> None:
        self._link.send(self._topics.up_need(self._name), need)
