"""The coordinator's message loop: one thread that reads the inbox and dispatches each message.

It handles births, replies, needs, chunks and requests, and repeats unacknowledged messages. It
never trains, merges or blocks. The engine's thread opens and closes exchanges
(``PendingExchange``) and receives complete replies through the queue of each exchange.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Collection, Iterable
from datetime import datetime
from functools import partial

from edgefed.coordinator.devices.known_devices import NewDevices
from edgefed.coordinator.devices.sender_limits import COORDINATOR, STATES
from edgefed.coordinator.devices.sites import relays_across_sites
from edgefed.coordinator.devices.unheard_devices import UnheardDevices
from edgefed.coordinator.dispatch.device_publisher import (
    BlobDistributor,
    DevicePublisher,
    TaskSender,
)
from edgefed.coordinator.dispatch.dispatcher_deps import DispatcherDeps
from edgefed.coordinator.dispatch.gateway_messages import GatewayMessages, SiteDeviceHandler
from edgefed.coordinator.dispatch.reply_receiver import ReplyReceiver
from edgefed.coordinator.exchanges.awaited_replies import PendingExchange, PendingExchanges
from edgefed.coordinator.exchanges.fleet import Verdict
from edgefed.coordinator.exchanges.site_sums import sum_requests
from edgefed.coordinator.journal.rate_limited_notes import OverflowNotes, RateLimitedNotes
from edgefed.errors import DISK_MAY_RETURN, EdgeFedError
from edgefed.events.base.coordinator_states import REMOVED
from edgefed.files.writing import check_in_place, free_bytes, takes_writes
from edgefed.process.clock import timestamp
from edgefed.terminal.units import duration
from edgefed.transport.batch_sender import BatchSender
from edgefed.transport.blob_intake import BlobIntake
from edgefed.transport.inbox import Arrival, Incoming, LinkDown, LinkUp, read_arrival
from edgefed.transport.rate_limits import Buckets, Rate
from edgefed.transport.sender import ChunkSender
from edgefed.trust.certificates import Certificate
from edgefed.version import OLDEST_PROTOCOL
from edgefed.wire.blobs import chunk_count
from edgefed.wire.diagnostic_messages import LogRequest, LogTail, Ping, Pong
from edgefed.wire.enrolment_messages import EnrolmentRequest, Leave, RenewalRequest
from edgefed.wire.limits import MAX_MESSAGE_BYTES
from edgefed.wire.messages import (
    Birth,
    Chunk,
    CoordinatorState,
    Message,
    Need,
    Progress,
    Reply,
    Request,
    Task,
    Telemetry,
)
from edgefed.wire.rollout_messages import ModelAnswer, ModelOffer
from edgefed.wire.site_messages import GatewayState, SiteMessages
from edgefed.wire.topics import UNSIGNED_USER, ParsedTopic
from edgefed.wire.update_messages import UpdateOffer, UpdateState

log = logging.getLogger(__name__)

TICK = 1.0
"""Longest sleep of the thread; all real waits have their own due time."""

CHECK_EVERY = 0.1
"""Seconds between two checks of all devices for losses and tasks to repeat."""

LOOK_EVERY = 0.01
"""Most seconds between two looks at due times while messages wait."""

ROOM = 4 * MAX_MESSAGE_BYTES
"""Free bytes above which a disk that was full is tried again."""

LOOKS = Rate(1 / 30, 1)
"""How often a device's retained birth is asked for, when it speaks and has none here."""

MAX_LOOKS = 1024
"""Devices whose births were asked for that are remembered."""

MAX_DEVICES = 10_000
"""Devices that may join."""


class Dispatcher:
    """The dispatch thread.

    Attributes:
        exchanges: the open exchanges.
    """

    def __init__(self, deps: DispatcherDeps) -> None:
        self.exchanges = PendingExchanges()
        self._deps = deps
        self._clock = deps.clock
        self._registry = deps.registry
        self._notes = RateLimitedNotes(deps.journal, deps.clock, deps.party)
        self._batches = BatchSender(self._publish_batch)
        self._publisher = DevicePublisher(
            deps.link, deps.topics, deps.registry.addressed, deps.sites.gateway_of, self._batches
        )
        self._sender = ChunkSender(deps.link)
        self._distributor = BlobDistributor(deps.cache, self._sender, deps.topics)
        self._tasks = TaskSender(self.exchanges, deps.registry, self._publisher, deps.clock)
        self._intake = BlobIntake(deps.cache, deps.staging, deps.jitter, in_memory=True)
        self._replies = ReplyReceiver(
            self.exchanges,
            self._intake,
            deps.relays,
            self._publisher,
            self._notes,
            deps.clock,
            self._tasks.give_next,
            deps.sites.gateway_of,
        )
        self._gateways = GatewayMessages(
            deps.sites,
            deps.registry,
            SiteDeviceHandler(
                lambda device, birth: self._join(device, birth, None, live=True),
                self._take_from_device,
            ),
            *(deps.link, deps.topics, deps.journal, self._notes),
        )
        self._lock = threading.RLock()
        self._new = NewDevices()
        self._unheard = UnheardDevices(deps.registry, self._ping)
        self._looks = Buckets(LOOKS, MAX_LOOKS)
        self._overflow = OverflowNotes(lambda: deps.inbox.counts, self._notes)
        self._next_check, self._up, self._closing = 0.0, 0, False
        self._full_since: float | None = None
        self._down_since: datetime | None = None
        self._thread = threading.Thread(target=self._run, name="dispatcher", daemon=True)

    # -- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to read the inbox."""
        self._thread.start()

    def stop(self) -> None:
        """End the threads."""
        self._closing = True
        self._thread.join(timeout=5)
        self._batches.stop()
        self._sender.stop()
        self._replies.stop()

    # -- what the engine's thread calls -------------------------------------------------------

    def check_receivers(self, tasks: Iterable[Task]) -> None:
        """Check that no task has its device send something to a device at another site.

        Raises:
            NotAllowedError: ``site.relays``: one has.
        """
        site_of = self._deps.sites.gateway_of
        for task in tasks:
            others = [other for other in task.receivers if site_of(other) != site_of(task.device)]
            if others:
                raise relays_across_sites(task.device, others[0])

    def open(self, pending: PendingExchange) -> None:
        """Put an exchange's tasks to their devices."""
        with self._lock:
            self._replies.open(pending)
            # Before the tasks, so that a gateway knows of the sum when replies to them come
            self._request_sums(pending)
            self._tasks.put(pending)

    def ask_also(self, pending: PendingExchange, task: Task) -> None:
        """Ask another device in an open exchange."""
        with self._lock:
            self._tasks.ask_also(pending, task)

    def withdraw(self, pending: PendingExchange, device: str) -> None:
        """Stop asking one device of an open exchange."""
        with self._lock:
            self._tasks.withdraw(pending, device)

    def close(self, pending: PendingExchange) -> None:
        """Stop waiting for an exchange; tell the devices that still work on it."""
        with self._lock:
            self._replies.close(pending)
            self._tasks.drop(pending)

    def forget(self, run: str, through: int) -> None:
        """Delete the replies to exchanges that are over: they are merged into the state."""
        with self._lock:
            self._replies.forget(run, through)

    def forget_exchanges(self, exchanges: Collection[str]) -> None:
        """Delete the replies to exchanges that were closed."""
        with self._lock:
            self._replies.forget_exchanges(exchanges)

    def release_space(self) -> None:
        """Delete blobs and parts of blobs that no open exchange needs."""
        with self._lock:
            self._replies.release_space()

    def drop_device(self, device: str) -> None:
        """Stop asking a device that is no longer a member, in the middle of an exchange too."""
        with self._lock:
            for one in (*self._deps.sites.remove(device), device):
                self._registry.remove(one)
                self._replies.leave(one)
                self._tasks.withdraw_all(one)

    def flush(self) -> None:
        """Send the messages now that wait for the next batch of a gateway."""
        self._batches.flush()

    def send_receipt(self, device: str, exchange: str, outcome: Verdict, reason: str) -> None:
        """Send a device the verdict on its reply, which is not read again."""
        self._replies.judge(device, exchange, outcome, reason)

    def send(self, device: str, message: Ping | LogRequest) -> None:
        """Send a device a message, best effort."""
        self._publisher.send(device, message, qos=0)

    def offer(self, device: str, offer: ModelOffer | UpdateOffer) -> None:
        """Send a device the offer of a model or an update; none to a device of a gateway."""
        if not self._deps.sites.gateway_of(device):
            self._publisher.send(device, offer)

    def traffic(self) -> tuple[int, int]:
        """Return payload bytes from and to devices."""
        return self._up, self._publisher.sent + self._distributor.delivered

    # -- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        inbox, next_look = self._deps.inbox, 0.0
        while not self._closing:
            # Due times are looked up only where there is something to wait for
            arrival = inbox.get(timeout=TICK if inbox.waiting else self._patience())
            with self._lock:
                try:
                    if arrival is not None:
                        self._take(arrival)
                    # Looking after each of a thousand messages takes longer than their handling.
                    now = self._clock.monotonic()
                    if not inbox.waiting or now >= next_look:
                        next_look = now + LOOK_EVERY
                        self._tick()
                # One bad message or a full disk must not end the thread
                except EdgeFedError as error:
                    if error.code in DISK_MAY_RETURN:
                        self._wait_for_disk(make_room=error.code == "storage.full")
                    self._notes.warn(self._notes.party, error.code, error.message)
                except Exception:
                    log.exception("error in the dispatcher")
            now = self._clock.monotonic()
            for part in self._deps.parts:
                if now >= part.next_due:
                    part.due(now)

    def _wait_for_disk(self, *, make_room: bool) -> None:
        """Until the disk takes writes, no deadline comes nearer; then chunks are asked again."""
        if self._full_since is None:
            self._full_since = self._clock.monotonic()
        if make_room:
            self.release_space()

    def _see_whether_full(self, now: float) -> None:
        """Move the deadlines by as long as the disk takes no replies."""
        if self._full_since is None:
            return
        for pending in self.exchanges.all():
            pending.extend(now - self._full_since)
        # The next look adds only what passes from here on
        self._full_since = now
        if free_bytes(self._deps.staging) >= ROOM and takes_writes(self._deps.staging):
            self._full_since = None
            self._replies.ask_again()

    def _patience(self) -> float:
        dues = [self._distributor.next_due(), self._registry.next_due]
        if self._deps.link.connected:  # else nothing can be repeated
            dues.append(self._intake.next_due)
        now = self._clock.monotonic()
        return min((TICK, *(max(0.001, due - now) for due in dues if due is not None)))

    def _tick(self) -> None:
        now = self._clock.monotonic()
        self._distributor.due(now)
        if now >= self._overflow.next_due:
            self._overflow.due(now)
        self._registry.due()
        # Without a connection no answer can come, so nothing is repeated or given up
        if not self._deps.link.connected:
            return
        self._deps.link.end_if_stalled()
        self._see_whether_full(now)
        if now >= self._intake.next_due:
            self._replies.due(now)
        if now >= self._next_check:
            self._next_check = now + CHECK_EVERY
            self._check_devices()
            if self._deps.members is not None:
                self._deps.members.tick()
            check_in_place(self._deps.staging)  # an idle coordinator may not write for days

    def _check_devices(self) -> None:
        """Give up the devices that are silent, and repeat the tasks that nobody works on."""
        for device in self._registry.expire():
            self._replies.leave(device)
        # A reply that waits in the inbox is no reason to ask again.
        until = self._deps.inbox.handled_until()
        self._tasks.repeat(until)
        self._unheard.check(self.exchanges.devices(), until)

    def _ping(self, device: str) -> None:
        """Ping a device; any message of it is an answer."""
        self.send(device, Ping(nonce=secrets.token_hex(8), session=self._registry.session(device)))

    def _request_sums(self, pending: PendingExchange) -> None:
        """Ask gateways for sums of their sites, where an exchange takes them."""
        site_of, now = self._deps.sites.gateway_of, self._clock.monotonic()
        for gateway, request in sum_requests(pending, site_of, self._registry.knows, now):
            self._batches.put(gateway, gateway, request)

    def _publish_batch(self, gateway: str, batch: bytes) -> None:
        session = self._deps.sites.session(gateway)
        if session:  # else it has gone meanwhile
            message = SiteMessages(session=session, batch=batch)
            self._deps.link.send(self._deps.topics.down_site(gateway), message)

    def _take(self, arrival: Arrival) -> None:
        match arrival:
            case Incoming():
                self._take_message(arrival)
            case LinkUp():
                self._registry.doubt()
                self._deps.on_up()
                self._note_connection()
                self._replies.ask_again()
            case LinkDown():
                # The first loss counts, however often reconnecting fails
                self._down_since = self._down_since or self._clock.now()
                text = f"connection to the broker lost: {arrival.reason}; reconnecting"
                self._deps.journal.emit("note", level="warning", text=text)

    def _note_connection(self) -> None:
        """Note that the broker is there, and how long it was not."""
        if self._down_since is None:
            log.info("connected to the broker")
            return
        since, self._down_since = self._down_since, None
        away = duration(max(0.0, (self._clock.now() - since).total_seconds()))
        text = f"connection to the broker restored after {away}"
        self._deps.journal.emit("note", text=text, since=timestamp(since))

    def _take_message(self, arrival: Incoming) -> None:
        read = read_arrival(self._deps.topics, arrival, self._refuse, self._deps.verifier)
        if read is None:
            self._meet_unintroduced(arrival)
            return
        parsed, message = read.topic, read.message
        if isinstance(message, CoordinatorState):
            self._meet(message, live=not arrival.retained)
        elif isinstance(message, Request) and not arrival.retained:
            self._deps.on_request(parsed.who, message, read.signer)
        elif isinstance(message, EnrolmentRequest) and not arrival.retained:
            if self._deps.members is not None:
                self._deps.members.take_enrolment(parsed.who, message)
        # Of retained messages, only those count that are retained on purpose, such as births
        elif parsed.branch == "up" and (not arrival.retained or parsed.spec.retained):
            self._up += len(arrival.payload)
            self._take_up(parsed.who, message, read.signer, arrival)

    def _take_up(
        self, sender: str, message: Message, signer: Certificate | None, arrival: Incoming
    ) -> None:
        if isinstance(message, Birth):
            self._take_birth(sender, message, signer, arrival)
        elif isinstance(message, GatewayState):
            if self._deps.members is not None:
                self._deps.members.note_use(signer)
            self._gateways.meet(sender, message)
        elif self._deps.sites.is_gateway(sender):
            self._take_from_gateway(sender, message)
        else:
            self._take_from_device(sender, message, len(arrival.payload))

    def _refuse(self, parsed: ParsedTopic, reason: str) -> None:
        text = f"message on {parsed.leaf} refused: {reason}"
        if self._is_stranger(parsed):
            self._notes.warn_of_stranger(parsed.user, text)
        else:
            self._notes.warn(parsed.user or COORDINATOR, parsed.leaf, text)

    def _is_stranger(self, parsed: ParsedTopic) -> bool:
        """Whether nobody vouches for the name in a topic: neither the broker nor a reply of it."""
        if parsed.branch == "enrol":
            return True
        if self._deps.verifier is not None:
            return parsed.branch == "up" and not self._deps.enrolled(parsed.user)
        if parsed.branch == "control":
            return parsed.user != UNSIGNED_USER
        device = parsed.who
        return bool(device) and not (self._registry.knows(device) or self._deps.known(device))

    def _meet(self, state: CoordinatorState, *, live: bool) -> None:
        """Meet a message on our own topic: an earlier life's will, or another coordinator."""
        session = self._deps.session
        if not live or not session or state.session == session:
            return
        # The will of an earlier life has replaced our retained state, which is published again
        if state.status == "lost":
            self._deps.on_up()
        else:
            self._notes.warn(self._notes.party, "second", "another one is at work in this fleet")

    def _take_birth(
        self, device: str, birth: Birth, signer: Certificate | None, arrival: Incoming
    ) -> None:
        if self._deps.members is not None:
            self._deps.members.note_use(signer)
        if birth.status == "online" and birth.protocol < OLDEST_PROTOCOL:
            why = f"it has protocol version {birth.protocol}; {OLDEST_PROTOCOL} is the oldest taken"
            self._notes.warn(device, "birth", f"message on birth refused: {why}")
            return
        if not self._leaves_its_site(device, birth):
            return
        known = signer is not None or self._registry.knows(device) or self._deps.known(device)
        if not self._deps.enrolled(device):
            self._notes.warn_of_stranger(device, "it is not enrolled and was refused")
        elif known:
            self._join(device, birth, signer, live=not arrival.retained)
        else:
            self._new.take(device, birth, len(arrival.payload))

    def _leaves_its_site(self, device: str, birth: Birth) -> bool:
        """Whether a device that announces itself without a gateway is not connected by one."""
        gateway = self._deps.sites.gateway_of(device)
        if gateway and birth.status == "online":
            if self._registry.online(device):
                self._notes.warn(device, "site", f"{device} is at site {gateway}; refused")
                return False
            self._deps.sites.forget(device)
        return True

    def _join(self, device: str, birth: Birth, signer: Certificate | None, *, live: bool) -> None:
        if birth.status == "lost":
            self._take_farewell(device)
        begins = self._registry.take_birth(device, birth, signer, live=live)
        self._pass_on(device, birth)
        online = self._registry.online(device)
        if online and live:
            self._registry.hear(device)
        if begins:
            task = self.exchanges.task(device)
            pending = self.exchanges.get(task.exchange) if task is not None else None
            if pending is not None:
                # A device that was unknown so far may answer through its gateway's sum
                self._request_sums(pending)
            self._tasks.give_again(device)
            if self._deps.updates is not None:
                self._deps.updates.joined(device)
        elif not online:
            self._replies.leave(device)
            announced = self._registry.announced(device)
            if announced is not None and announced[1].reason == REMOVED:
                self._tasks.withdraw_all(device)

    def _take_farewell(self, device: str) -> None:
        """Take the progress that a device sent before its farewell and that the inbox delayed."""
        waiting = self._deps.inbox.take_latest(self._deps.topics.progress(device))
        if waiting is not None:
            self._take_message(waiting)

    def _take_from_gateway(self, gateway: str, message: Message) -> None:
        match message:
            case SiteMessages():
                self._gateways.take(gateway, message)
            case Need():
                self._take_need(gateway, message, self._deps.sites.devices(gateway))
            case Chunk():
                self._replies.take_chunk(gateway, message)
            case RenewalRequest() | Leave() if self._deps.members is not None:
                self._deps.members.take(gateway, message)

    def _take_from_device(self, device: str, message: Message, size: int) -> None:
        if isinstance(message, (RenewalRequest, Leave)):  # also of a member that is not online
            if self._deps.members is not None:
                self._deps.members.take(device, message)
            return
        if isinstance(message, (Progress, Telemetry)) and not self._stays(device, message):
            return
        if not (self._registry.knows(device) and self._deps.enrolled(device)):
            return
        self._registry.hear(device)
        match message:
            case Progress() | Telemetry():
                self._take_device_state(device, message)
            case Reply():
                self._replies.take(device, message, size)
            case Need():
                self._take_need(device, message, (device,))
            case Chunk():
                self._replies.take_chunk(device, message)
            case Pong() | LogTail() | ModelAnswer() | UpdateState():
                self._deps.on_answer(device, message)
        self._pass_on(device, message)

    def _pass_on(self, device: str, message: Message) -> None:
        if self._deps.on_heard is not None:
            self._deps.on_heard(device, message)

    def _stays(self, device: str, message: Progress | Telemetry) -> bool:
        """Let a device join that shows that it is alive; whether it does not leave by this."""
        if not isinstance(message, Progress) or message.state != "lost":
            self._meet_new(device, message.session)
            return True
        # A farewell of an unknown device is remembered too, so it counts towards the limit
        known = self._registry.knows(device) or len(self._registry) < MAX_DEVICES
        if known and self._deps.enrolled(device):
            self._registry.take_farewell(device, message)
        return False

    def _take_device_state(self, device: str, message: Progress | Telemetry) -> None:
        if isinstance(message, Progress):
            known = self._registry.take_progress(device, message)
            pending = self.exchanges.get(message.exchange) if known else None
            if pending is not None:
                pending.note_progress(device, message, self._clock.monotonic())
        else:
            known = self._registry.take_telemetry(device, message)
        if not known:
            self._look_for_birth(device)

    def _take_need(self, device: str, need: Need, served: Iterable[str]) -> None:
        """Send a device or a gateway a blob that an open task of those it serves names."""
        updates = self._deps.updates
        if updates is not None and updates.serves(device, need.digest):
            numbers = [n for n in need.chunks if n < chunk_count(updates.size(need.digest))]
            topic = self._deps.topics.down_chunk(device)
            self._sender.send(topic, need.digest, partial(updates.chunk, need.digest), numbers)
            return
        # Access follows from open tasks: a digest alone gives no right to a blob
        access = self.exchanges.access_of_any(served, need.digest)
        offered = self._deps.offered(need.digest) if access == "none" else 0
        if access != "none" or offered:
            now, private = self._clock.monotonic(), access == "private"
            arrived = self._deps.inbox.arrived
            expected = (lambda: offered) if offered else self._expected
            self._distributor.take(device, need, expected, now, private=private, arrived=arrived)
        elif self._deps.relays.is_for_another(device, need.digest):
            self._notes.warn(device, "need", "it asked for a blob that was sent to another device")

    def _meet_new(self, device: str, session: str) -> None:
        """Let a device join that shows that it is alive; look for its birth if none has come."""
        if self._registry.knows(device):
            return
        birth = self._new.hear(device, session)
        if birth is None:
            self._look_for_birth(device)
        elif len(self._registry) < MAX_DEVICES:
            self._join(device, birth, None, live=True)
        else:
            warning = f"{device} cannot join: there are {MAX_DEVICES} devices already"
            self._notes.warn(self._notes.party, "devices", warning)

    def _meet_unintroduced(self, arrival: Incoming) -> None:
        """Look for the birth of a device whose signature cannot be verified without it."""
        parsed = self._deps.topics.parse(arrival.topic) if self._deps.verifier else None
        if parsed is not None and parsed.leaf in STATES and not self._registry.knows(parsed.who):
            self._look_for_birth(parsed.who)

    def _look_for_birth(self, device: str) -> None:
        """Have the broker send a device's retained birth again: it was lost on its way to us."""
        if self._deps.enrolled(device) and self._looks.take(device, 1, self._clock.monotonic()):
            self._deps.expect(device)
            topic = self._deps.topics.birth(device)
            # Subscribing makes the broker send the retained message again; other filters stay
            self._deps.link.subscribe(topic)
            self._deps.link.unsubscribe(topic)

    def _expected(self) -> int:
        """Return how many devices may ask for the open exchanges' blobs."""
        if not self.exchanges.all():
            return 1
        asked = (d for d in self.exchanges.devices() if self._registry.online(d))
        # A gateway asks once for all devices of its site
        return len({self._deps.sites.gateway_of(device) or device for device in asked})
