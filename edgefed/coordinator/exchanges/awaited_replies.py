"""The open exchanges of an MQTT fleet: each device's progress, repetitions, and their order."""

from __future__ import annotations

import queue
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.wire.messages import Progress, Reply, Task

REPEAT = 5.0
"""Seconds after which a task that a device does not seem to work on is sent again, then doubled."""

MAX_REPEAT = 60.0


@dataclass
class PendingExchange:
    """One open exchange; guarded by its lock.

    Attributes:
        began: when it was opened; ``started`` moves with the deadline.
        arrivals: whole replies for the engine; None wakes it.
        wanting: devices whose reply has not arrived.
        lost: those of them that are not connected, and since when.
        accepted: devices whose replies are merged, or are held until all can be compared.
        quorum_at: when there were enough of them; None before.
        presence_changed: set when devices came or went, so that ``note_lost`` is due.
        withdrawn: whether a device that had not answered is not waited for any more.
        dropped: whether its replies are no longer needed.
        shared: whether ``arrivals`` is the queue of several exchanges.
    """

    exchange: OpenExchange
    started: float
    shared: bool = False
    arrivals: queue.SimpleQueue[Delivered | None] = field(default_factory=queue.SimpleQueue)
    lock: threading.Lock = field(default_factory=threading.Lock)
    wanting: dict[str, Task] = field(default_factory=dict)
    lost: dict[str, float] = field(default_factory=dict)
    accepted: set[str] = field(default_factory=set)
    quorum_at: float | None = None
    presence_changed: threading.Event = field(default_factory=threading.Event)
    withdrawn: bool = False
    dropped: bool = False
    _repeats: dict[str, tuple[float, float]] = field(default_factory=dict)
    _training_since: dict[str, float] = field(default_factory=dict)
    _upload_since: dict[str, float] = field(default_factory=dict)
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.started
        self.wanting = dict(self.exchange.task_of)
        self._repeats = dict.fromkeys(self.wanting, (self.started + REPEAT, REPEAT))
        self.presence_changed.set()
        # Without a quorum to wait for, the grace of lost devices runs from the beginning
        if self.exchange.quorum <= 0:
            self.quorum_at = self.started

    @property
    def deadline(self) -> float:
        """When it closes, even if devices are still at work."""
        return self.started + self.exchange.deadline

    def accept(self, device: str, now: float) -> None:
        """Count a device's reply towards the quorum, once."""
        with self.lock:
            self.accepted.add(device)
            if self.quorum_at is None and len(self.accepted) >= self.exchange.quorum:
                self.quorum_at = now

    def note_lost(self, lost: Mapping[str, float]) -> None:
        """Note which devices are not there, and since when."""
        with self.lock:
            self.lost = {device: lost[device] for device in lost if device in self.wanting}

    def closes_at(self) -> float:
        """Return the monotonic second at which it closes if no other reply arrives.

        A device that answered and is not merged yet is neither wanted nor lost.
        """
        with self.lock:
            return self._closes_at()

    def is_open(self, now: float) -> bool:
        """Whether there are replies to merge, or some are out and there is time for them."""
        with self.lock:
            if self.dropped:
                return False
            if not self.arrivals.empty():
                return True
            return bool(self.wanting) and now < self._closes_at()

    def _closes_at(self) -> float:
        working = len(self.wanting) - len(self.lost)
        return closing_time(
            self.deadline,
            self.exchange.lost_grace,
            self.quorum_at,
            self.lost.values(),
            working,
        )

    def wanted(self) -> list[str]:
        """Return the devices whose reply is out."""
        with self.lock:
            return list(self.wanting)

    def lost_devices(self) -> frozenset[str]:
        """Return the devices whose reply is out and that are not there."""
        with self.lock:
            return frozenset(self.lost)

    def out(self) -> tuple[list[str], list[str]]:
        """Return the devices whose reply is still out, by name: those lost, those there."""
        with self.lock:
            return sorted(self.lost), sorted(self.wanting.keys() - self.lost.keys())

    def task(self, device: str) -> Task | None:
        """Return the task that a device has still to answer."""
        with self.lock:
            return self.wanting.get(device)

    def ask_also(self, task: Task, now: float) -> None:
        """Ask another device, or a device once more, whose task came later than the others."""
        with self.lock:
            others = tuple(t for t in self.exchange.tasks if t.device != task.device)
            self.exchange = replace(self.exchange, tasks=(*others, task))
            self.wanting[task.device] = task
            self._repeats[task.device] = (now + REPEAT, REPEAT)
            self.presence_changed.set()

    def withdraw(self, device: str) -> None:
        """Stop waiting for a device, which wakes the reader of replies."""
        with self.lock:
            self.withdrawn = self.wanting.pop(device, None) is not None or self.withdrawn
            self.lost.pop(device, None)
            self._repeats.pop(device, None)
        self.arrivals.put(None)

    def extend(self, seconds: float) -> None:
        """Move the deadline: replies could not be taken for so long."""
        with self.lock:
            self.started += seconds
            # The grace counts from the quorum, so it moves with the deadline
            if self.quorum_at is not None:
                self.quorum_at += seconds

    def wants(self, reply: Reply) -> bool:
        """Whether a reply is one that is still out."""
        with self.lock:
            return reply.exchange == self.exchange.exchange and reply.device in self.wanting

    def note_progress(self, device: str, progress: Progress, now: float) -> None:
        """Note when a device begins and ends its training; a restarted agent begins anew."""
        if progress.state == "upload":
            self.note_upload(device, now)
        if progress.state != "train":
            return
        with self.lock:
            if not progress.fraction:
                self._training_since[device] = now
                self._upload_since.pop(device, None)
            elif device not in self._upload_since:  # its first reports may be lost
                self._training_since.setdefault(device, now)

    def note_upload(self, device: str, now: float) -> None:
        """Note that a device has begun to send its reply."""
        with self.lock:
            self._upload_since.setdefault(device, now)

    def measured(self, reply: Reply, now: float) -> tuple[float | None, float | None]:
        """Return the seconds of a device's training and upload; None where one is not known.

        The seconds of training are those that the device measured. A reply of one message often
        arrives together with the report before it, so that its upload is the rest of the time
        since the training began, without that for which the device worked and waited.
        """
        with self.lock:
            begun = self._training_since.get(reply.device)
            ended = self._upload_since.get(reply.device)
        if ended is None:
            return None, None
        training = reply.cost.training_seconds
        if not training:
            return None if begun is None else ended - begun, now - ended
        # All blobs are in the message itself, so no chunk marks where its upload began
        if begun is not None and len(reply.inline) == len(reply.needed):
            return training, max(0.0, now - begun - max(training, reply.cost.work_seconds))
        return training, now - ended

    def deliver(self, delivered: Delivered) -> None:
        """Hand a whole reply to the engine; it is not out any more."""
        with self.lock:
            # Wanting and queue change under one lock: is_open sees a reply in exactly one of them
            for device in (reply.device for reply in delivered.replies):
                self.wanting.pop(device, None)
                self.lost.pop(device, None)
                self._repeats.pop(device, None)
            self.arrivals.put(delivered)

    def sent(self, device: str, now: float) -> None:
        """Note that a device's task was sent; it is repeated from then on."""
        with self.lock:
            if device in self._repeats:
                self._repeats[device] = (now + REPEAT, REPEAT)

    def drop(self) -> list[Delivered]:
        """Stop waiting; return the replies that nobody has read."""
        with self.lock:
            self.dropped = True
        # The queue has replies to other exchanges too, so it is left to its reader
        if self.shared:
            return []
        unread: list[Delivered] = []
        while True:
            try:
                arrived = self.arrivals.get_nowait()
            except queue.Empty:
                self.arrivals.put(None)  # ends the reader of replies
                return unread
            if arrived is not None:
                unread.append(arrived)

    def to_repeat(self, now: float) -> list[Task]:
        """Return the tasks whose time to be sent again has come, if nobody works on them."""
        with self.lock:
            due = [device for device, (when, _) in self._repeats.items() if when <= now]
            for device in due:
                # Doubled up to a limit: a device that is busy or slow is not flooded
                wait = min(2 * self._repeats[device][1], MAX_REPEAT)
                self._repeats[device] = (now + wait, wait)
            return [self.wanting[device] for device in due]


def closing_time(
    deadline: float,
    grace: float | None,
    quorum_at: float | None,
    lost_since: Collection[float],
    working: int,
) -> float:
    """Return the monotonic second at which an exchange closes if no other reply arrives.

    An exchange with its quorum that waits only for lost devices closes when the last of them has
    had its grace, counted from the later of quorum and loss; any other one at its deadline.

    Args:
        deadline: of the exchange.
        grace: seconds for a lost device; None for as long as for any other one.
        quorum_at: when the quorum was reached; None before.
        lost_since: when each device that is lost, and still to answer, was lost.
        working: devices that are still to answer and are not lost.
    """
    # A device at work may still answer, so only the deadline bounds the wait for it
    if grace is None or quorum_at is None or working:
        return deadline
    return min(deadline, max(quorum_at, max(lost_since, default=quorum_at)) + grace)


Access = Literal["none", "private", "shared"]


class PendingExchanges:
    """The exchanges that are open, in the order in which they were put; safe from any thread.

    An agent does one task at a time and gives it up for a new one. A device therefore gets its open
    tasks one after another, in the order in which their exchanges were put.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, PendingExchange] = {}
        self._by_device: dict[str, dict[str, PendingExchange]] = {}

    def add(self, pending: PendingExchange) -> None:
        """Open an exchange."""
        exchange = pending.exchange.exchange
        with self._lock:
            self._open[exchange] = pending
            for task in pending.exchange.tasks:
                self._by_device.setdefault(task.device, {})[exchange] = pending

    def ask_also(self, pending: PendingExchange, task: Task, now: float) -> None:
        """Ask another device in an exchange that is open."""
        pending.ask_also(task, now)
        with self._lock:
            self._by_device.setdefault(task.device, {})[task.exchange] = pending

    def remove(self, exchange: str) -> PendingExchange | None:
        """Close an exchange and return it; None when it is not open."""
        with self._lock:
            pending = self._open.pop(exchange, None)
            for task in pending.exchange.tasks if pending is not None else ():
                own = self._by_device[task.device]
                own.pop(exchange, None)
                if not own:
                    del self._by_device[task.device]
            return pending

    def _of(self, device: str) -> list[PendingExchange]:
        """Return the open exchanges that ask a device, in the order in which they were put."""
        with self._lock:
            return list(self._by_device.get(device, {}).values())

    def get(self, exchange: str) -> PendingExchange | None:
        """Return an open exchange; None when it is not open."""
        with self._lock:
            return self._open.get(exchange)

    def all(self) -> list[PendingExchange]:
        """Return every open exchange, in the order in which they were put."""
        with self._lock:
            return list(self._open.values())

    def task(self, device: str) -> Task | None:
        """Return the task that a device is to do now, if any."""
        tasks = (pending.task(device) for pending in self._of(device))
        return next((task for task in tasks if task is not None), None)

    def is_current(self, task: Task) -> bool:
        """Whether a task is the one that its device is to do now."""
        return self.task(task.device) is task

    def access(self, device: str, digest: str) -> Access:
        """Return a device's access to a blob, from the tasks that it has not answered yet.

        It is ``shared`` if a task names it among the coordinator's own, so that others may get it
        too; ``private`` if another device sent it to this one; else ``none``.
        """
        tasks = [task for pending in self._of(device) if (task := pending.task(device))]
        refs = [ref for task in tasks for ref in task.blobs.values()]
        if any(digest in ref.blobs for ref in refs):
            return "shared"
        relayed = any(digest == relay.digest for task in tasks for relay in task.relays)
        return "private" if relayed else "none"

    def access_of_any(self, devices: Iterable[str], digest: str) -> Access:
        """Return the widest access to a blob among devices; see ``access``."""
        widest: Access = "none"
        for device in devices:
            access = self.access(device, digest)
            if access == "shared":
                return access
            # A private access is remembered while a shared one is looked for
            widest = access if widest == "none" else widest
        return widest

    def wanting(self, reply: Reply) -> PendingExchange | None:
        """Return the exchange that waits for a reply; None when none does."""
        pending = self.get(reply.exchange)
        return pending if pending is not None and pending.wants(reply) else None

    def devices(self) -> set[str]:
        """Return the devices that have a task to do."""
        return {device for pending in self.all() for device in pending.wanted()}

    def is_over(self, reply: Reply) -> bool:
        """Whether a reply belongs to an exchange before all that are open in its run.

        While none is open, the reply may be to an exchange that is about to be put again.
        """
        indexes = [
            pending.exchange.index
            for pending in self.all()
            if pending.exchange.tasks and pending.exchange.tasks[0].run == reply.run
        ]
        # Indexes grow within a run, so a lower one than all open ones is not asked again
        return bool(indexes) and reply.index < min(indexes)
