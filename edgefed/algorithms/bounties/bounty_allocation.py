"""Changes of the coordinator's records by answers about label bounties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from edgefed.algorithms.bounties.bounty_answers import NEEDS, OFFERS, RECEIVED, budget_of, rows_of
from edgefed.algorithms.bounties.bounty_device_half import asks_of
from edgefed.algorithms.bounties.bounty_records import (
    MAX_TRIES,
    Allocation,
    BountyRecords,
    NeedsRequest,
    SentMixes,
    ended,
    missing,
)
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.seeds import derive
from edgefed.sharing.bounty_report import Bounty
from edgefed.sharing.groups import equal_split


def merge_needs(
    records: BountyRecords, exchange: Exchange, answers: Sequence[Answer], fills: bool
) -> BountyRecords:
    """Open bounties for the labels that devices lack."""
    stated = {
        answer.device: [
            Bounty(answer.device, label, count, mixes, received=received)
            for label, count, mixes, received in rows_of(answer, NEEDS)
        ]
        for answer in answers
    }
    asked = {
        question.device: NeedsRequest(
            question.params["data"], exchange.round, question.device not in stated
        )
        for question in exchange.questions
    }
    known = replace(records, asked={**records.asked, **asked})
    return known.with_needs(stated, fills) if stated else known


def merge_offers(
    records: BountyRecords, exchange: Exchange, answers: Sequence[Answer], fills: bool
) -> BountyRecords:
    """Take each bounty's offers in equal parts; a published bounty without any is closed.

    Orders may have opened and cancelled bounties since they were published.
    """
    offers: dict[tuple[str, int], dict[str, int]] = {}
    asked = {
        question.device: asks_of(question.params["bounties"]) for question in exchange.questions
    }
    for answer in answers:
        for place, mixes in rows_of(answer, OFFERS):
            asks = asked[answer.device][place]
            offers.setdefault((asks.requester, asks.label), {})[answer.device] = mixes
    changed, allocations = [], list(records.allocations)
    published = {(ask.requester, ask.label) for asks in asked.values() for ask in asks}
    for bounty in records.bounties:
        # Where its own device alone was asked, nobody else could offer
        told_of = (bounty.device, bounty.label) in published or set(asked) == {bounty.device}
        if bounty.status != "open" or not told_of:
            continue
        own = offers.get((bounty.device, bounty.label), {})
        taken = equal_split(missing(bounty), list(own.values()))
        offered = replace(bounty, offered=sum(own.values()))
        changed.append(offered if own else ended(offered, fills))
        allocations += [
            Allocation(provider, bounty.device, bounty.label, mixes)
            for provider, mixes in zip(own, taken, strict=True)
            if mixes
        ]
    known = records.with_bounties(changed).with_budgets(map(budget_of, answers))
    return replace(known, allocations=tuple(allocations), batch=records.batch + 1)


def merge_mixes(
    records: BountyRecords, exchange: Exchange, answers: Sequence[Answer], fills: bool
) -> BountyRecords:
    """Record the mixes on their way; bounties without any are closed."""
    token, counts = token_of(records), _counts(exchange)
    sent = [
        SentMixes(relay, token, counts[relay.sender, relay.receiver])
        for answer in answers
        for relay in answer.relayed
    ]
    coming = {(mixes.relay.receiver, label) for mixes in sent for label in mixes.counts}
    asked = {(allocation.requester, allocation.label) for allocation in records.allocations}
    ends = [
        ended(bounty, fills)
        for bounty in records.bounties
        if bounty.status == "open" and (bounty.device, bounty.label) in asked - coming
    ]
    known = records.with_bounties(ends).with_budgets(map(budget_of, answers))
    return replace(known, allocations=(), sent=(*records.sent, *sent))


def merge_received(
    records: BountyRecords, exchange: Exchange, answers: Sequence[Answer], fills: bool
) -> BountyRecords:
    """Close the bounties of devices that received mixes; the others get them in a later round."""
    there = {
        answer.device: {row[0]: row[1] for row in rows_of(answer, RECEIVED)} for answer in answers
    }
    delivered = {
        (question.device, sender, token)
        for question in exchange.questions
        for sender, token, _ in question.params["sent"]
    }
    asked = {question.device for question in exchange.questions}
    left, over, given_up = [], set(), []
    for sent in records.sent:
        receiver = sent.relay.receiver
        silent = receiver in asked - there.keys()
        tried = replace(sent, tries=sent.tries + 1, round=exchange.round) if silent else sent
        known = receiver in there and (receiver, sent.relay.sender, sent.token) in delivered
        if known or tried.tries == MAX_TRIES:
            over |= {(receiver, label) for label in sent.counts}
            given_up += [] if known else [sent.relay]
        else:
            left.append(tried)
    # A label is over once none of its mixes are on their way
    over -= {(mixes.relay.receiver, label) for mixes in left for label in mixes.counts}
    changed = [
        _received(bounty, there.get(bounty.device), (bounty.device, bounty.label) in over, fills)
        for bounty in records.bounties
    ]
    return replace(records.with_bounties(changed), sent=tuple(left), given_up=tuple(given_up))


def _received(bounty: Bounty, held: Mapping[int, int] | None, over: bool, fills: bool) -> Bounty:
    """Return a bounty after mixes were forwarded.

    Args:
        bounty: as it was; it may be cancelled while mixes are on their way.
        held: mixes of each label that its device has; None if unknown.
        over: whether no more are on their way.
        fills: whether natural noise covers the rest.
    """
    # A device may hold more than it asked for, from earlier runs
    received = bounty.received if held is None else min(held.get(bounty.label, 0), bounty.mixes)
    known = replace(bounty, received=received)
    if bounty.status != "open":
        return ended(known, fills, bounty.status)
    return ended(known, fills) if over else known


def token_of(records: BountyRecords) -> str:
    """Return the token of the mixes for the last published batch of bounties."""
    return f"{derive(records.seed, 'batch', records.batch):016x}"


def _counts(exchange: Exchange) -> dict[tuple[str, str], dict[int, int]]:
    """Return the mixes of each label that were asked for, by provider and requester."""
    counts: dict[tuple[str, str], dict[int, int]] = {}
    for question in exchange.questions:
        for asks in asks_of(question.params["mixes"]):
            counts.setdefault((question.device, asks.requester), {})[asks.label] = asks.mixes
    return counts
