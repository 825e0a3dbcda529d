"""The tasks that a gateway has passed on to its site, from their arrival until their verdicts."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from edgefed.coordinator.dispatch.mqtt_fleet import MqttFleet
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.errors import WireError
from edgefed.gateway.site_sums import LostSince, SiteSums
from edgefed.process.clock import Clock
from edgefed.transport.downloads import Downloads
from edgefed.transport.reply_resender import ReplyResender
from edgefed.wire.blobs import BlobCache
from edgefed.wire.limits import MAX_DEADLINE
from edgefed.wire.messages import Reply, Task
from edgefed.wire.site_messages import SumReply, SumRequest
from edgefed.worker.task_inputs import TaskInputs

log = logging.getLogger(__name__)

LEAST_REPLY_BYTES = 64 * 1024**2
"""Bytes that the blobs of a reply may take in any case: the coordinator checks them exactly."""

REPLY_TIMES_TASK = 8
"""Otherwise, how many times the bytes of its task's blobs."""

Key = tuple[str, str]
"""Device and exchange."""


@dataclass(frozen=True)
class SiteParts:
    """The parts of a gateway that its tasks use.

    Attributes:
        fleet: the devices of the site.
        cache: the gateway's blobs.
        downloads: fetches blobs from the coordinator upstream.
        send: sends a reply of a device upstream.
        lost_since: of the site's devices.
        clock: for repetitions.
    """

    fleet: MqttFleet
    cache: BlobCache
    downloads: Downloads
    send: Callable[[Reply], None]
    lost_since: LostSince
    clock: Clock


class SiteTasks:
    """Puts tasks to the devices of a site, and keeps their replies; owned by one thread.

    A task is put once its blobs are here, so that a blob crosses the link upstream once. A reply,
    or the sum of several, is sent upstream, and again until its verdict comes, which goes to the
    device.

    Args:
        parts: of the gateway.
    """

    def __init__(self, parts: SiteParts) -> None:
        self._fleet = parts.fleet
        self._cache = parts.cache
        self._downloads = parts.downloads
        self._clock = parts.clock
        self._send = parts.send
        self._waiting: dict[Key, TaskInputs] = {}
        self._put: dict[Key, TaskInputs] = {}
        self._held: dict[Key, Reply] = {}
        self._sums = SiteSums(parts.cache, parts.lost_since)
        self._resenders: defaultdict[str, ReplyResender] = defaultdict(self._new_resender)
        self._open: dict[str, OpenExchange] = {}
        self._asked_for: set[str] = set()

    def _new_resender(self) -> ReplyResender:
        return ReplyResender(self._send)

    # -- from the coordinator -----------------------------------------------------------------

    def take(self, task: Task) -> None:
        """Take a task: fetch its blobs, pass it on, or send the reply again."""
        key = task.device, task.exchange
        held = self._held.get(key)
        if held is not None:
            self._resenders[task.device].put(held, self._clock.monotonic())
            return
        if key in self._put:
            return
        if key in self._waiting:  # a full disk may have been in the way
            self._go_on(self._waiting[key])
            return
        inputs = TaskInputs(task, self._cache)
        for patch in (patch for ref in task.blobs.values() for patch in ref.patches):
            if not self._cache.has(patch.blob):  # a device may hold an older base than we do
                inputs.lacking[patch.blob] = patch.size
        self._waiting[key] = inputs
        self._sums.forget(*key, asked=True)
        self._fetch(inputs)

    def request_sum(self, request: SumRequest) -> None:
        """Take the coordinator's request for a sum of the site."""
        self._sums.request(request, self._clock.monotonic())

    def _fetch(self, inputs: TaskInputs) -> None:
        lacking = {n: size for n, size in inputs.lacking.items() if n not in self._asked_for}
        self._asked_for |= lacking.keys()
        private = {name: size for name, size in lacking.items() if name in inputs.private}
        self._downloads.want({name: lacking[name] for name in lacking.keys() - private.keys()})
        self._downloads.pull(private, self._clock.monotonic())
        self._go_on(inputs)

    def lacks(self) -> Mapping[str, int]:
        """Return the blobs that tasks wait for, by digest, with their sizes."""
        lacking: dict[str, int] = {}
        for inputs in self._waiting.values():
            lacking |= inputs.lacking
        return lacking

    def received(self, digest: str) -> None:
        """Pass on the tasks for which a blob was missing, if it is whole."""
        waiting = [inputs for inputs in self._waiting.values() if digest in inputs.lacking]
        if waiting and self._downloads.arrived(digest):
            self._asked_for.discard(digest)
            for inputs in waiting:
                self._go_on(inputs)

    def _go_on(self, inputs: TaskInputs) -> None:
        """Put a task to its device if all that it needs is here."""
        for digest in [name for name in inputs.lacking if self._cache.has(name)]:
            inputs.arrived(digest)
        task = inputs.task
        if not inputs.ready:
            return
        try:
            if not inputs.assemble():
                self._fetch(inputs)
                return
        except WireError as error:
            log.warning("a task of %s was not passed on: %s", task.device, error.message)
            self._waiting.pop((task.device, task.exchange), None)
            inputs.clear()
            return
        self._waiting.pop((task.device, task.exchange))
        self._put[task.device, task.exchange] = inputs
        task = self._with_held_patches(task)
        if not self._fleet.ask_also(task.exchange, task):
            opened = self._open[task.exchange] = _exchange_of(task)
            self._fleet.put(opened, shared=True)

    def _with_held_patches(self, task: Task) -> Task:
        """Return a task that names only those direct patches that are here.

        Others lead from versions that single devices hold. At the site a whole blob is cheaper than
        such a patch over the link.
        """
        blobs = {}
        for role, ref in task.blobs.items():
            held = tuple(patch for patch in ref.direct if self._cache.has(patch.blob))
            blobs[role] = ref.model_copy(update={"direct": held})
        return task.model_copy(update={"blobs": blobs})

    def cancel(self, device: str, exchange: str) -> None:
        """Stop asking a device: its reply is not needed any more."""
        self._fleet.withdraw(exchange, device)
        self.settle(device, exchange)

    def close(self, run: str, through: int) -> None:
        """End the exchanges of a run up to an index."""
        over = [o for o in self._open.values() if _run_of(o) == run and o.index <= through]
        for opened in over:
            for device, exchange in [*self._waiting, *self._put, *self._held]:
                if exchange == opened.exchange:
                    self.settle(device, exchange)
        self._sums.close(run, through)

    def settle(self, device: str, exchange: str) -> None:
        """Forget a task, its reply, which has its verdict, and its exchange with the last one."""
        key = device, exchange
        for inputs in (self._waiting.pop(key, None), self._put.pop(key, None)):
            if inputs is not None:
                inputs.clear()
        self._held.pop(key, None)
        self._sums.forget(device, exchange)
        self._resenders[device].heard(exchange)
        if self._resenders[device].next_due() is None:
            del self._resenders[device]
        left = (name for _, name in (*self._waiting, *self._put, *self._held))
        if exchange not in left and exchange in self._open:
            self._fleet.drop(self._open.pop(exchange), put_again=True)
            self._fleet.forget([exchange])

    # -- from devices -------------------------------------------------------------------------

    def answered(self, reply: Reply) -> None:
        """Take a whole reply of a device, and send it upstream or keep it for the site's sum."""
        inputs = self._put.get((reply.device, reply.exchange))
        if inputs is not None:
            # Larger ones are asked for as blobs, like all that are not inside.
            reply = reply.model_copy(update={"inline": {}})
            passed = self._sums.take(inputs.task, reply)
            if passed is not None:
                self._pass_on(passed)

    def _pass_on(self, reply: Reply) -> None:
        """Send a reply or a sum upstream, until each of its devices has the verdict."""
        for device in reply.devices if isinstance(reply, SumReply) else (reply.device,):
            self._held[device, reply.exchange] = reply
        self._resenders[reply.device].put(reply, self._clock.monotonic())

    def named(self) -> set[str]:
        """Return the blobs that the replies name which wait for their verdicts."""
        return {digest for reply in self._held.values() for digest in reply.needed}

    # -- what time brings ---------------------------------------------------------------------

    def due(self, now: float) -> None:
        """Repeat replies that were not confirmed, and requests for blobs; make the sums due."""
        for made in self._sums.complete(now):
            self._pass_on(made)
        if self._downloads.due(now):
            log.warning("blobs of %d tasks did not arrive; asking again", len(self._waiting))
            self._downloads.want(self.lacks())
        for resender in self._resenders.values():
            resender.due(now)

    def next_due(self) -> float | None:
        """Return the monotonic second of the next repetition, or None."""
        dues: Iterable[float | None] = (
            self._downloads.next_due(),
            *(resender.next_due() for resender in self._resenders.values()),
        )
        return min((due for due in dues if due is not None), default=None)

    def reconnected(self, now: float) -> None:
        """Send all replies, and requests for blobs, again."""
        self._downloads.reconnected(now)
        for resender in self._resenders.values():
            resender.reconnected(now)


def _run_of(opened: OpenExchange) -> str:
    return opened.tasks[0].run


def _exchange_of(task: Task) -> OpenExchange:
    """Return the exchange of a task, which other tasks may join."""
    sent = sum(ref.size for ref in task.blobs.values())
    return OpenExchange(
        exchange=task.exchange,
        index=task.index,
        name=task.question,
        round=task.round,
        tasks=(task,),
        wanted=1,
        quorum=0,
        deadline=MAX_DEADLINE,  # the coordinator upstream decides who is late
        max_reply_bytes=max(LEAST_REPLY_BYTES, REPLY_TIMES_TASK * sent),
    )
