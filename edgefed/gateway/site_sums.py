"""Sums at a gateway: one answer for the devices of its site, in place of the reply of each.

A reply is checked as the coordinator would check it. One that fails is passed on singly, and so is
every reply to an exchange whose sum would take more bytes. A sum is made when no device is waited
for any more, and does not change from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from edgefed.algorithms.averaging.fedavg import MAX_DELTA, delta_role
from edgefed.algorithms.interface.exchange import ReplyRole
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.exchanges.reply_checks import Rejection, check
from edgefed.coordinator.exchanges.site_sums import DELTA, WEIGHTS, grid_of, weight_of
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.errors import EdgeFedError, WireError
from edgefed.learn.aggregation.summed_grid import SummedGrid
from edgefed.learn.base.types import Array
from edgefed.wire.blobs import BlobCache
from edgefed.wire.envelope import encode
from edgefed.wire.messages import BlobRef, Reply, Task
from edgefed.wire.site_messages import SUM, SummedAnswer, SumReply, SumRequest
from edgefed.wire.summed_numbers import SUM_BYTES, encode_numbers
from edgefed.wire.tensors import TensorSpec, digest, unpack

SENDING = 0.1
"""The part of the time until an exchange's deadline that is left for sending a sum."""

LostSince = Callable[[Collection[str], float], Mapping[str, float]]
"""Returns which devices are lost and since when, but not before a monotonic second."""


@dataclass
class _OpenSum:
    """The sum for one exchange.

    Attributes:
        request: the last one of the coordinator.
        since, closes: when the first one came, and when the sum is made at the latest.
        replies: those to be summed, with their tasks.
        singly: devices whose replies were passed on.
        made: the sum; None before it is made.
        grid, wanted: from the first reply on, the grid of its numbers, and whether it is made.
    """

    request: SumRequest
    since: float
    closes: float = 0.0
    replies: dict[str, tuple[Task, Reply]] = field(default_factory=dict)
    singly: set[str] = field(default_factory=set)
    made: SumReply | None = None
    grid: SummedGrid | None = None
    wanted: bool | None = None

    @property
    def out(self) -> list[str]:
        """The devices that have not answered."""
        return sorted({*self.request.devices} - self.replies.keys() - self.singly)

    def is_due(self, now: float, lost_since: LostSince) -> bool:
        """Whether it is to be made: no device is waited for any more."""
        out, grace = self.out, self.request.lost_grace
        if self.made is not None or not self.replies:
            return False
        if not out or now >= self.closes:
            return True
        # Before its time, a sum is due only if every device that lacks is lost for the grace
        lost = {} if grace is None else lost_since(out, self.since)
        return len(lost) == len(out) and max(lost.values()) + (grace or 0.0) <= now


class SiteSums:
    """The sums of a site for all open exchanges; owned by one thread.

    Args:
        cache: the gateway's blobs.
        lost_since: of the site's devices.
    """

    def __init__(self, cache: BlobCache, lost_since: LostSince) -> None:
        self._cache = cache
        self._lost_since = lost_since
        self._open: dict[str, _OpenSum] = {}

    def request(self, request: SumRequest, now: float) -> None:
        """Take the coordinator's request for a sum; others than its devices are not summed."""
        known = self._open.setdefault(request.exchange, _OpenSum(request, now))
        # The rest of the time is left for sending the sum
        known.request, known.closes = request, now + (1 - SENDING) * request.seconds
        known.replies = {d: own for d, own in known.replies.items() if d in request.devices}

    def take(self, task: Task, reply: Reply) -> Reply | None:
        """Take a device's reply.

        Returns:
            The message to be passed on: the reply, or the sum that it is part of; None if the reply
            is kept for a sum, or has come after it.
        """
        known = self._open.get(task.exchange)
        if known is None:
            return reply
        if known.made is not None:
            return known.made if task.device in known.made.devices else None
        if known.wanted is False or not self._fits(known, task, reply):
            known.singly.add(task.device)
            return reply
        known.replies[task.device] = task, reply
        return None

    def complete(self, now: float) -> list[Reply]:
        """Make the sums that wait for no device; return them.

        In place of a sum that cannot be made there are its replies.
        """
        made: list[Reply] = []
        for known in self._open.values():
            if known.is_due(now, self._lost_since):
                try:
                    known.made = self._sum(known)
                    made.append(known.made)
                except (Rejection, EdgeFedError):  # a blob is lost, or it is no one message
                    made += [reply for _, reply in known.replies.values()]
                    known.wanted, known.singly = False, known.singly | known.replies.keys()
                    known.replies.clear()
        return made

    def forget(self, device: str, exchange: str, *, asked: bool = False) -> None:
        """Forget the reply of a device that is not asked any more, or is ``asked`` again."""
        known = self._open.get(exchange)
        if known is not None and known.made is None:
            known.replies.pop(device, None)
            if asked:
                known.singly.discard(device)

    def close(self, run: str, through: int) -> None:
        """End the exchanges of a run up to an index, and those of other runs."""
        for exchange, known in [*self._open.items()]:
            if known.request.run != run or known.request.index <= through:
                self._open.pop(exchange)
                if known.made is not None:
                    self._cache.discard(known.made.blobs[SUM].digest)

    def _fits(self, known: _OpenSum, task: Task, reply: Reply) -> bool:
        """Whether a reply can be part of a sum."""
        if reply.status != "ok" or not 0 < reply.samples <= task.samples or reply.relays:
            return False
        others = [other for _, other in known.replies.values()]
        if others and others[0].bases != reply.bases:
            return False
        try:
            if known.grid is None:
                weights = unpack(self._read(task.blobs[WEIGHTS].digest), None)
                known.grid = grid_of(delta_role(weights), known.request.total)
            # Tried here: a reply that cannot be summed is passed on singly, and spoils no sum
            self._weighted(known.grid, task, reply)
        except (Rejection, EdgeFedError, KeyError):
            return False
        if known.wanted is None:
            single = sum(ref.size for ref in reply.blobs.values())
            devices = len(known.request.devices)
            # Otherwise the replies themselves take no more bytes than their sum
            known.wanted = known.request.always or single * devices > SUM_BYTES * known.grid.count
        return known.wanted

    def _weighted(self, grid: SummedGrid, task: Task, reply: Reply) -> Array:
        """Return a reply's update times its weight, on the grid; raise if it may be refused."""
        specs = {name: TensorSpec(dtype, shape) for name, dtype, shape in grid.tensors}
        role = ReplyRole(specs, MAX_DELTA, trained=True)
        own = (task.exchange, task.index, task.question, task.round, (task,), 1, 1, task.deadline)
        opened = OpenExchange(*own, max_reply_bytes=2 * role.nbytes, reply_roles={DELTA: role})
        answer = check(Delivered(reply, self._read, 0.0, 0), opened, lambda answer: "")
        return grid.weighted(answer.groups[DELTA].arrays, weight_of(task, reply.samples))

    def _sum(self, known: _OpenSum) -> SumReply:
        assert known.grid is not None
        total = np.zeros(known.grid.count, np.uint64)
        ordered = [known.replies[device] for device in sorted(known.replies)]
        for task, reply in ordered:
            total += self._weighted(known.grid, task, reply)
        blob = encode_numbers(total.view(np.int64))
        replies = [reply for _, reply in ordered]
        shares = (SummedAnswer.model_validate(reply, from_attributes=True) for reply in replies)
        changed = {
            "samples": sum(reply.samples for reply in replies),
            "metrics": {},
            "blobs": {SUM: BlobRef(digest=digest(blob), size=len(blob))},
            "answers": tuple(shares),
            "without": tuple(known.out),
        }
        made = SumReply(**{**dict(replies[0]), **changed})
        # Raises if it is no one message, before the blob is kept
        encode(made)
        self._cache.put(blob)
        return made

    def _read(self, name: str) -> bytes:
        data = self._cache.get(name)
        if data is None:
            raise WireError(f"Blob {name[:12]} is not in the cache.", code="wire.blob")
        return data
