"""What answers about label bounties change in the coordinator's records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from edgefed.algorithms.base import Answer, Exchange
from edgefed.algorithms.label_answers import NEEDS, OFFERS, RECEIVED, budget_of, rows_of
from edgefed.algorithms.label_device import asks_of
from edgefed.algorithms.label_records import (
    MAX_TRIES,
    Allocation,
    Asked,
    LabelRecords,
    SentMixes,
    ended,
    missing,
)
from edgefed.seeds import derive
from edgefed.sharing.equal_split import equal_split
from edgefed.sharing.label_report import Bounty


def merge_needs(
    records: LabelRecords, exchange: Exchange, answers: Sequence[Answer], fills: bool
) -> LabelRecords:
    """Open bounties for what devices lack."""
    stated = {
        answer.device: [
            Bounty(answer.device, label, count, mixes, received=received)
            for label, count, mixes, received in rows_of(answer, NEEDS)
        ]
        for answer in answers
    }
    asked = {
        each.device: Asked(each.params["data"], exchange.round, each.device not in stated)
        for each in exchange.questions
    }
    known = replace(records, asked={**records.asked, **asked})
    return known.with_needs(stated, fills) if stated else known


def merge_offers(
    records: LabelRecords, exchange: Exchange, answers: Sequence[Answer], fills: bool
) -> LabelRecords:
    """Take each bounty's offers in equal parts; a bounty without any is closed."""
    offers: dict[tuple[str, int], dict[str, int]] = {}
    asked = {each.device: asks_of(each.params["bounties"]) for each in exchange.questions}
    for answer in answers:
        for place, mixes in rows_of(answer, OFFERS):
            asks = asked[answer.device][place]
            offers.setdefault((asks.requester, asks.label), {})[answer.device] = mixes
    changed, allocations = [], list(records.allocations)
    for bounty in records.to_publish(asked):
        own = offers.get((bounty.device, bounty.label), {})
        taken = equal_split(missing(bounty), list(own.values()))
        told = replace(bounty, offered=sum(own.values()))
        changed.append(told if own else ended(told, fills))
        allocations += [
            Allocation(provider, bounty.device, bounty.label, mixes)
            for provider, mixes in zip(own, taken, strict=True)
            if mixes
        ]
    known = records.with_bounties(changed).with_budgets(map(budget_of, answers))
    return replace(known, allocations=tuple(allocations), batch=records.batch + 1)


def merge_mixes(
    records: LabelRecords, exchange: Exchange, answers: Sequence[Answer], fills: bool
) -> LabelRecords:
    """Note what is on its way; bounties that got nothing are closed."""
    token, counts = token_of(records), _counts(records.allocations)
    sent = [
        SentMixes(relay, token, counts[relay.sender, relay.receiver])
        for answer in answers
        for relay in answer.relayed
    ]
    coming = {(each.relay.receiver, label) for each in sent for label in each.counts}
    asked = {(each.requester, each.label) for each in records.allocations}
    ends = [
        ended(each, fills)
        for each in records.bounties
        if each.status == "open" and (each.device, each.label) in asked - coming
    ]
    known = records.with_bounties(ends).with_budgets(map(budget_of, answers))
    return replace(known, allocations=(), sent=(*records.sent, *sent))


def merge_received(
    records: LabelRecords, exchange: Exchange, answers: Sequence[Answer], fills: bool
) -> LabelRecords:
    """Close the bounties of those who received mixes; the others get them in a later round."""
    there = {
        answer.device: {row[0]: row[1] for row in rows_of(answer, RECEIVED)} for answer in answers
    }
    asked = {each.device for each in exchange.questions}
    left, over = [], set()
    for sent in records.sent:
        receiver = sent.relay.receiver
        tries = sent.tries + (receiver in asked)
        if receiver in there or tries == MAX_TRIES:
            over |= {(receiver, label) for label in sent.counts}
        elif receiver in asked:
            left.append(replace(sent, tries=tries, round=exchange.round))
        else:
            left.append(sent)
    changed = [
        _received(each, there.get(each.device, {}), fills)
        for each in records.bounties
        if each.status == "open" and (each.device, each.label) in over
    ]
    return replace(records.with_bounties(changed), sent=tuple(left))


def _received(bounty: Bounty, held: Mapping[int, int], fills: bool) -> Bounty:
    """Return a bounty that is closed, its device holding so many mixes by label."""
    received = min(held.get(bounty.label, bounty.received), bounty.mixes)
    return ended(replace(bounty, received=received), fills)


def token_of(records: LabelRecords) -> str:
    """Return what marks the mixes for the batch of bounties that was published last."""
    return f"{derive(records.seed, 'batch', records.batch):016x}"


def _counts(allocations: Sequence[Allocation]) -> dict[tuple[str, str], dict[int, int]]:
    """Return the mixes of each label by provider and requester."""
    counts: dict[tuple[str, str], dict[int, int]] = {}
    for each in allocations:
        counts.setdefault((each.provider, each.requester), {})[each.label] = each.mixes
    return counts
