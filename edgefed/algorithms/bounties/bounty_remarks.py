"""Remarks to the operator after an exchange about label bounties."""

from __future__ import annotations

from edgefed.algorithms.bounties.bounty_records import BountyRecords
from edgefed.algorithms.interface.answer import Remark
from edgefed.terminal.units import counted


def bounty_remarks(
    exchange: str, before: BountyRecords, after: BountyRecords
) -> tuple[Remark, ...]:
    """Return a line about new bounties, or about those that an exchange closed."""
    known = {(bounty.device, bounty.label): bounty for bounty in before.bounties}
    changed = [
        bounty for bounty in after.bounties if known.get((bounty.device, bounty.label)) != bounty
    ]
    if exchange == "label_need":
        devices = {bounty.device for bounty in changed}
        if not devices:
            return ()
        opened = sum(bounty.status == "open" for bounty in changed)
        lacking = f"{counted(len(devices), 'device')} {'lack' if len(devices) > 1 else 'lacks'}"
        return (Remark(f"{lacking} labels: {counted(opened, 'bounty', 'bounties')} open"),)
    ends = [bounty for bounty in changed if bounty.status == "closed"]
    if not ends:
        return ()
    received, mixes = sum(end.received for end in ends), sum(end.mixes for end in ends)
    noise = sum(end.noise for end in ends)
    filled = f"natural noise fills {noise:,}" if noise else "nothing fills the rest"
    bounties = counted(len(ends), "label bounty", "label bounties")
    text = f"{bounties} closed: {received:,} of {mixes:,} mixes are there, {filled}"
    return (Remark(text, warning=received < mixes),)
