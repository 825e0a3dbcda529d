"""Remarks to the operator about the experts after a round: a warning when one is unused."""

from __future__ import annotations

from edgefed.algorithms.answer import Remark
from edgefed.algorithms.expert_report import ExpertReport


def expert_remarks(before: ExpertReport, after: ExpertReport) -> tuple[Remark, ...]:
    """Return a warning when experts have become unused."""
    if after.collapsed and not before.collapsed:
        text = "one expert does nearly everything; the others are unused"
        return (Remark(f"round {after.round}: {text}", warning=True),)
    if new := sorted(set(after.dead) - set(before.dead)):
        which = ", ".join(str(each) for each in new)
        text = f"hardly any device uses {'experts' if len(new) > 1 else 'expert'} {which}"
        return (Remark(f"round {after.round}: {text}", warning=True),)
    return ()
