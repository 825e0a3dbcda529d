"""The coordinator's records of label bounties: devices asked, open bounties, mixes on their way."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Relay
from edgefed.algorithms.interface.member import Roster
from edgefed.sharing.bounty_report import Bounty, BountyOrder, Budget

LABELS = "labels"
"""The fact of a state that holds the records."""

PATIENCE = 10
"""Rounds after which a device that stated no needs is asked again."""

MAX_TRIES = 3
"""How often mixes are sent to a device before they are given up; once a round."""

MAX_REQUESTERS = 64
MAX_BOUNTIES = 1024
"""Devices whose bounties are published together, and bounties."""


@dataclass(frozen=True)
class NeedsRequest:
    """The last time that a device was asked for its needs.

    Attributes:
        data: the word of its data at that time.
        round: of the question.
        silent: whether it stated none.
    """

    data: str
    round: int
    silent: bool


@dataclass(frozen=True)
class Allocation:
    """The number of mixes of a label that the provider makes for the requester."""

    provider: str
    requester: str
    label: int
    mixes: int


@dataclass(frozen=True)
class SentMixes:
    """Mixes on their way.

    Attributes:
        relay: the blob that holds them.
        token: of the batch of bounties that it answers.
        counts: mixes by label that it may hold.
        tries: number of times they were forwarded.
        round: of the last time.
    """

    relay: Relay
    token: str
    counts: Mapping[int, int]
    tries: int = 0
    round: int = 0


@dataclass(frozen=True)
class BountyRecords:
    """The records.

    Attributes:
        seed: of the batches' tokens and of the devices' noise.
        asked: by device.
        bounties: sorted by device and label.
        budgets: sorted by device.
        allocations: mixes that providers are to make next.
        sent: mixes that requesters have not received yet.
        given_up: blobs that could not be delivered, for the coordinator to delete.
        batch: number of batches of bounties so far.
        orders: number of the last order that was carried out.
    """

    seed: int
    asked: Mapping[str, NeedsRequest] = field(default_factory=dict)
    bounties: tuple[Bounty, ...] = ()
    budgets: tuple[Budget, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    sent: tuple[SentMixes, ...] = ()
    given_up: tuple[Relay, ...] = ()
    batch: int = 0
    orders: int = 0

    @classmethod
    def of(cls, state: State) -> BountyRecords:
        """Return the records of a state."""
        known: Mapping[str, Any] = state.params[LABELS]
        return cls(
            seed=known["seed"],
            asked={device: NeedsRequest(*row) for device, row in known["asked"].items()},
            bounties=tuple(Bounty(*row) for row in known["bounties"]),
            budgets=tuple(Budget(*row) for row in known["budgets"]),
            allocations=tuple(Allocation(*row) for row in known["allocations"]),
            sent=tuple(_sent(row) for row in known["sent"]),
            given_up=tuple(Relay.from_json(row) for row in known["given_up"]),
            batch=known["batch"],
            orders=known["orders"],
        )

    def kept_in(self, state: State) -> State:
        """Return the state with these records."""
        rows = {
            "seed": self.seed,
            "asked": {device: _row(request) for device, request in self.asked.items()},
            "bounties": [_row(bounty) for bounty in self.bounties],
            "budgets": [_row(budget) for budget in self.budgets],
            "allocations": [_row(allocation) for allocation in self.allocations],
            "sent": [_sent_row(mixes) for mixes in self.sent],
            "given_up": [relay.to_json() for relay in self.given_up],
            "batch": self.batch,
            "orders": self.orders,
        }
        return replace(state, params={**state.params, LABELS: rows})

    # -- what is to be done ---------------------------------------------------------------------

    def due(self, roster: Roster, number: int) -> Roster:
        """Return the devices to ask for their needs in a round.

        These are devices that were never asked, those whose data changed, and those that did not
        answer long ago; each at most once a round.
        """
        return tuple(
            member for member in roster if self._is_due(member.device, member.data, number)
        )

    def _is_due(self, device: str, data: str, number: int) -> bool:
        known = self.asked.get(device)
        if known is None:
            return True
        changed = known.data != data and known.round < number
        return changed or (known.silent and known.round <= number - PATIENCE)

    def deliverable(self, online: Collection[str], number: int) -> tuple[SentMixes, ...]:
        """Return the mixes to forward in a round, to connected devices."""
        return tuple(
            mixes
            for mixes in self.sent
            if mixes.relay.receiver in online and (not mixes.tries or mixes.round < number)
        )

    def to_publish(self, online: Collection[str]) -> tuple[Bounty, ...]:
        """Return the next batch of open bounties, of connected devices."""
        waiting = {mixes.relay.receiver for mixes in self.sent}
        wanted: list[Bounty] = []
        for bounty in self.bounties:
            device = bounty.device
            if bounty.status != "open" or device not in online or device in waiting:
                continue
            devices = {bounty.device for bounty in wanted} | {device}
            if len(devices) > MAX_REQUESTERS or len(wanted) == MAX_BOUNTIES:
                break
            wanted.append(bounty)
        return tuple(wanted)

    # -- what changes ---------------------------------------------------------------------------

    def with_needs(self, stated: Mapping[str, Sequence[Bounty]], fills: bool) -> BountyRecords:
        """Return the records with the needs of devices in place of their earlier ones.

        Bounties of others that ended with too few mixes are reopened: a device that states needs
        for the first time, or has other data, may have mixes to offer.

        Args:
            stated: needs of each device.
            fills: whether natural noise covers the rest.
        """
        cancelled = {
            (bounty.device, bounty.label)
            for bounty in self.bounties
            if bounty.status == "cancelled"
        }
        others = [
            reopened(bounty) if bounty.status == "closed" else bounty
            for bounty in self.bounties
            if bounty.device not in stated
        ]
        new: list[Bounty] = []
        for bounty in (bounty for needs in stated.values() for bounty in needs):
            if (bounty.device, bounty.label) in cancelled:
                new.append(ended(bounty, fills, "cancelled"))
            else:
                new.append(bounty if missing(bounty) else ended(bounty, fills))
        return replace(self, bounties=_sorted([*others, *new]))

    def with_bounties(self, changed: Iterable[Bounty]) -> BountyRecords:
        """Return the records with these bounties in place of those of the same device and label."""
        rows = {(bounty.device, bounty.label): bounty for bounty in self.bounties}
        rows.update({(bounty.device, bounty.label): bounty for bounty in changed})
        return replace(self, bounties=_sorted(rows.values()))

    def with_budgets(self, stated: Iterable[Budget]) -> BountyRecords:
        """Return the records with the devices' stated budgets."""
        rows = {budget.device: budget for budget in (*self.budgets, *stated)}
        return replace(self, budgets=tuple(rows[device] for device in sorted(rows)))

    def after(self, order: BountyOrder, fills: bool) -> BountyRecords:
        """Return the records after an operator's order."""
        matching = [
            bounty
            for bounty in self.bounties
            if order.device in ("", bounty.device) and order.label in (None, bounty.label)
        ]
        if order.action == "open":
            return self.with_bounties(map(reopened, matching))
        # One that is closed with mixes missing would be open again when another device joins.
        dropped = [
            bounty for bounty in matching if bounty.status != "cancelled" and missing(bounty)
        ]
        names = {(bounty.device, bounty.label) for bounty in dropped}
        kept = tuple(
            allocation
            for allocation in self.allocations
            if (allocation.requester, allocation.label) not in names
        )
        ends = (ended(bounty, fills, "cancelled") for bounty in dropped)
        return replace(self.with_bounties(ends), allocations=kept)


def missing(bounty: Bounty) -> int:
    """Return how many mixes a bounty still lacks."""
    return max(0, bounty.mixes - bounty.received)


def ended(bounty: Bounty, fills: bool, status: Any = "closed") -> Bounty:
    """Return a bounty that is no longer open; natural noise fills the rest, if it ``fills``."""
    noise = bounty.count - min(bounty.received, bounty.mixes) if fills else 0
    return replace(bounty, noise=noise, status=status)


def reopened(bounty: Bounty) -> Bounty:
    """Return a bounty as open if mixes are missing, else as it is."""
    return replace(bounty, noise=0, status="open") if missing(bounty) else bounty


def _sorted(bounties: Iterable[Bounty]) -> tuple[Bounty, ...]:
    return tuple(sorted(bounties, key=lambda bounty: (bounty.device, bounty.label)))


def _row(record: Any) -> list[Any]:
    return list(asdict(record).values())


def _sent_row(sent: SentMixes) -> list[Any]:
    counts = [[label, number] for label, number in sent.counts.items()]
    return [sent.relay.to_json(), sent.token, counts, sent.tries, sent.round]


def _sent(row: Sequence[Any]) -> SentMixes:
    relay, token, counts, tries, number = row
    return SentMixes(Relay.from_json(relay), token, dict(counts), tries, number)
