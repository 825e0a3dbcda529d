"""Virtual devices in this process: tasks, codecs and worker of real ones, without a network."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import cache

from edgefed.algorithms.averaging.training import trained_samples
from edgefed.algorithms.interface.member import Member, Roster
from edgefed.config.recipes.recipe import SimulationSection
from edgefed.coordinator.exchanges.contributions import Contributions
from edgefed.coordinator.exchanges.fleet import Delivered, Fleet, Overdue, Verdict
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.data.base.types import Shard
from edgefed.data.devices.dealt_shards import outlines
from edgefed.data.devices.partition import label_counts
from edgefed.events.base.device_columns import roster_parts
from edgefed.events.base.model import EventKind
from edgefed.process.clock import Clock
from edgefed.seeds import generator
from edgefed.simulator.device_states import FleetState, SharedTask, VirtualDevice
from edgefed.simulator.executors import Executor, Sequential, WorkOrder
from edgefed.simulator.virtual_time import VirtualTime
from edgefed.wire.blobs import BlobCache
from edgefed.wire.envelope import encode
from edgefed.wire.messages import Reply, Task
from edgefed.wire.patch_assembly import route
from edgefed.worker.outcomes import Outcome, make_reply

Emit = Callable[..., None]


def device_names(count: int) -> tuple[str, ...]:
    """Return ids for virtual and demo devices: ``device-00``, ``device-01`` and so on."""
    width = max(2, len(str(count - 1)))
    return tuple(f"device-{number:0{width}d}" for number in range(count))


def newcomers_of(simulation: SimulationSection, seed: int) -> frozenset[int]:
    """Return the numbers of the devices that never train, drawn from the run's seed.

    They are not the last devices, because some partitions leave the remaining labels to those.
    """
    drawn = generator(seed, "simulation", "newcomers").permutation(simulation.devices)
    return frozenset(drawn[: simulation.newcomers].tolist())


EVALUATION_SHARE = 1 / 3
"""Time of a test on a sample, as a share of that of training on it: a forward pass alone."""


class LocalFleet(Fleet):
    """A fleet of virtual devices.

    Args:
        shards: one device each.
        cache: the coordinator's blobs, which here every device can read.
        clock: measures the devices' work where no executor does.
        emit: takes events about devices; None for silence.
        executor: does the devices' work; None for this process, one after another.
        newcomers: numbers of the devices that never train.
        names: ids of the devices, sorted; empty for ``device_names``.
        time: how long devices take; None where nothing takes time, and replies to ``shared``
            exchanges come in the order in which these were put.
    """

    simulated = True

    def __init__(
        self,
        shards: Sequence[Shard],
        cache: BlobCache,
        clock: Clock,
        emit: Emit | None = None,
        executor: Executor | None = None,
        newcomers: Collection[int] = (),
        names: Sequence[str] = (),
        time: VirtualTime | None = None,
    ) -> None:
        self._time = time
        self.takes_time = time is not None
        self.may_change = time is not None and time.may_change
        self._shared: dict[tuple[str, str], SharedTask] = {}
        self._put_at: dict[str, float] = {}
        self._asked: set[str] = set()
        self._saved = FleetState()
        self._cache = cache
        self._emit: Emit = emit or _silence
        self._session = secrets.token_hex(8)
        self.trace = ""
        """Traceback of the last device whose code failed."""
        self._up = 0
        self._down = 0
        self._open: dict[str, dict[str, Task]] = {}
        self.contributions = Contributions()
        self._executor: Executor = executor or Sequential(shards, clock=clock)
        names = names or device_names(len(shards))
        self._devices = {
            name: VirtualDevice(number, _member(name, shard, number in newcomers))
            for number, (name, shard) in enumerate(zip(names, outlines(shards), strict=True))
        }
        self._members = tuple(device.member for device in self._devices.values())
        for part in roster_parts(map(_facts, self._members, outlines(shards))):
            self._report("roster", **part, joined=True)

    def roster(self) -> Roster:
        """Return the virtual devices that are there: all, where no time passes."""
        if not self.may_change:
            return self._members
        return tuple(member for member in self._members if self._is_present(member.device))

    def known(self) -> Roster:
        """Return all virtual devices."""
        return self._members

    def _is_present(self, device: str) -> bool:
        return self._time is None or self._time.is_present(device)

    def wait_for(self, devices: int, timeout: float, stop: Callable[[], bool]) -> Roster:
        """Return the virtual devices that are there, after virtual time until enough are."""
        del stop
        roster = self.roster()
        if self._time is None or len(roster) >= devices:
            return roster
        # When enough devices are back, or the time is up
        backs = sorted(map(self._time.back_at, self._devices))
        until = self._time.clock.monotonic() + timeout
        self._time.clock.advance(min(until, backs[min(devices, len(backs)) - 1]))
        return self.roster()

    def put(self, exchange: OpenExchange, *, shared: bool = False) -> None:
        """Open an exchange; its tasks are done while its replies are read."""
        self._open[exchange.exchange] = {task.device: task for task in exchange.tasks}
        now = 0.0 if self._time is None else self._time.clock.monotonic()
        self._put_at[exchange.exchange] = now
        if shared:
            for task in exchange.tasks:
                place = exchange.exchange, task.device
                shared_task = SharedTask(task, now, now + exchange.deadline)
                if (times := self._saved.times.get(place)) is not None:
                    shared_task = shared_task.restored(times, self._saved.replies.get(place))
                    self._put_at[exchange.exchange] = shared_task.put_at
                self._shared[place] = shared_task

    def replies(self, exchange: OpenExchange, stop: Callable[[], bool]) -> Iterator[Delivered]:
        """Pass the remaining tasks to the executor and yield replies as they arrive."""
        wanting = self._open[exchange.exchange]
        orders = [self._order(task) for task in wanting.values()]
        for delivered in self._in_time(exchange, orders, stop):
            wanting.pop(delivered.reply.device, None)
            yield delivered
            # It was dropped while its reply was handled
            if exchange.exchange not in self._open:
                return

    def _in_time(
        self, exchange: OpenExchange, orders: Sequence[WorkOrder], stop: Callable[[], bool]
    ) -> Iterator[Delivered]:
        """Yield the replies to orders, in virtual time by its seconds until the deadline."""
        outcomes = self._executor.outcomes(orders, self._get, stop)
        if self._time is None:
            yield from (self._deliver(order, outcome) for order, outcome in outcomes)
            return
        clock, deadline = self._time.clock, self._put_at[exchange.exchange] + exchange.deadline
        # All outcomes are needed to know which one arrives first
        arrivals = sorted(
            (
                self._arrival(self._deliver(order, outcome), order.task)
                for order, outcome in outcomes
            ),
            key=lambda arrival: (arrival[0], arrival[1].reply.device),
        )
        for at, delivered in arrivals:
            if at > deadline:
                clock.advance(deadline)
                return
            clock.advance(at)
            yield delivered

    def _arrival(self, delivered: Delivered, task: Task) -> tuple[float, Delivered]:
        """Return when a reply arrives in virtual time, and the reply with its virtual seconds."""
        assert self._time is not None
        put_at, device = self._put_at[task.exchange], self._devices[task.device]
        begun = max(put_at, device.free_at)
        if task.question == "evaluate":
            samples = device.member.held_out * EVALUATION_SHARE
        else:
            samples = float(trained_samples(task, device.member.samples))
        at = self._time.finish(task.device, begun, samples, device.received, delivered.size)
        device.free_at = at
        speed = self._time.speed(task.device)
        training, upload = speed.seconds(samples, 0, 0), speed.seconds(0, 0, delivered.size)
        return at, replace(delivered, seconds=at - put_at, training=training, upload=upload)

    # -- exchanges whose replies are read together ------------------------------------------------

    def next_reply(self, until: float, stop: Callable[[], bool]) -> Delivered | None:
        """Return the reply to a shared exchange that arrives first; all open tasks are done then.

        The tasks of a call train in parallel: the weights that they start from are known.
        """
        fresh = [shared for shared in self._shared.values() if not shared.begun]
        orders = []
        for shared in fresh:
            shared.begun = True
            orders.append(self._order(shared.task))
        for order, outcome in self._executor.outcomes(orders, self._get, stop):
            shared = self._shared[order.task.exchange, order.task.device]
            delivered = self._deliver(order, outcome)
            shared.arrival = float(shared.task.index), delivered
            if self._time is not None:
                shared.arrival = self._arrival(delivered, order.task)
        waiting = [shared for shared in self._shared.values() if shared.waits]
        if not waiting or stop():
            if self._time is not None and not stop():
                self._time.clock.advance(min(until, self._next_back()))
            return None
        first = min(waiting, key=SharedTask.place)
        assert first.arrival is not None
        at, delivered = first.arrival
        if self._time is not None:
            due = min(until, *(shared.deadline for shared in waiting))
            self._time.clock.advance(min(at, due))
            # Something is due before the reply arrives
            if at > due:
                return None
        first.read = True
        self._open[first.task.exchange].pop(first.task.device, None)
        return delivered

    def _next_back(self) -> float:
        """Return when the next device that is away is back; never, if none is."""
        assert self._time is not None
        now = self._time.clock.monotonic()
        backs = [back for back in map(self._time.back_at, self._devices) if back > now]
        return min(backs, default=math.inf)

    def overdue(self) -> dict[str, Overdue]:
        """Return the shared exchanges that are past their deadline in virtual time."""
        if self._time is None:
            return {}
        now = self._time.clock.monotonic()
        late = (
            shared for shared in self._shared.values() if shared.waits and shared.deadline <= now
        )
        return {shared.task.exchange: "late" for shared in late}

    def drop(self, exchange: OpenExchange, *, put_again: bool = False) -> None:
        """Close an exchange; a virtual device keeps nothing of a task whose reply was not read."""
        del put_again
        for device in self._open.pop(exchange.exchange, {}):  # gives the task up
            if self._time is not None:
                self._asked.add(device)
                self._devices[device].free_at = self._time.clock.monotonic()
        for task in exchange.tasks:
            self._shared.pop((exchange.exchange, task.device), None)
        self._put_at.pop(exchange.exchange, None)

    def verdict(self, reply: Reply, outcome: Verdict, reason: str) -> None:
        """Do nothing: a virtual device keeps no replies."""

    def closed(self, run: str, through: int) -> None:
        """Do nothing: a virtual device keeps no replies."""

    def traffic(self) -> tuple[int, int]:
        """Return the payload bytes that a real fleet would have moved: up, down."""
        return self._up, self._down

    # -- going on after a kill --------------------------------------------------------------------

    def state(self, replies: Collection[tuple[str, str]]) -> FleetState:
        """Return the changes since ``saved``: the devices asked, and replies not in ``replies``.

        No exchange is open but those whose replies are read together.
        """
        shared = self._shared.items()
        return FleetState(
            {device: self._devices[device].to_bytes() for device in sorted(self._asked)},
            {
                place: task.reply_bytes()
                for place, task in shared
                if task.arrival is not None and place not in replies
            },
            {place: task.times() for place, task in shared},
        )

    def saved(self) -> None:
        """Note that the devices are written as ``state`` returned them."""
        self._asked.clear()

    def restore(self, state: FleetState) -> None:
        """Go on from a state, before any exchange is put."""
        self._saved = state
        for device, data in state.devices.items():
            self._devices[device].restore(data)

    def _order(self, task: Task) -> WorkOrder:
        device = self._devices[task.device]
        self._asked.add(task.device)
        self._receive(device, task)
        self._report("device", device=task.device, state="train", exchange=task.exchange)
        kept = device.kept_for(task.exchange)
        return WorkOrder(device.number, task, kept.private, kept.persistent)

    def _deliver(self, order: WorkOrder, outcome: Outcome) -> Delivered:
        task, self.trace = order.task, outcome.trace or self.trace
        if outcome.status == "ok" and task.question != "evaluate":
            self._devices[task.device].keep(task.exchange, outcome)
        reply, blobs = make_reply(task, outcome, self._session)
        size = len(encode(reply)) + sum(len(blob) for blob in blobs.values())
        self._up += size
        self._report("device", device=task.device, state="done", fraction=1.0)
        everything = {**blobs, **reply.inline}
        return Delivered(reply, everything.__getitem__, outcome.seconds, size)

    def _receive(self, device: VirtualDevice, task: Task) -> None:
        """Count the bytes that a device would be sent, given the blobs that it holds."""
        before = self._down
        self._down += len(encode(task))
        device.held = held = device.held or set()
        for ref in task.blobs.values():
            for digest, size in route(ref, held.__contains__).fetch:
                self._down += size
                held.add(digest)
            held.add(ref.digest)
        self._down += sum(relay.size for relay in task.relays)
        device.received = self._down - before

    def _get(self, digest: str) -> bytes:
        data = self._cache.get(digest)
        if data is None:
            raise KeyError(digest)
        return data

    def _report(self, kind: EventKind, **fields: object) -> None:
        self._emit(kind, **fields)


def _member(name: str, shard: Shard, newcomer: bool) -> Member:
    return Member(
        name,
        len(shard.train),
        _shared(tuple(shard.train.inputs.shape[1:])),
        shard.classes,
        class_names=shard.class_names,
        held_out=len(shard.test),
        newcomer=newcomer,
    )


@cache
def _shared(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return one tuple for all equal shapes."""
    return shape


def _facts(member: Member, shard: Shard) -> dict[str, object]:
    """Return the fields of an event about a device that joins."""
    labels = label_counts(shard.train, shard.classes)
    return {"device": member.device, "samples": member.samples, "labels": labels}


def _silence(kind: EventKind, **fields: object) -> None:
    """Drop an event."""
