"""Put the robust aggregate of a cohort's updates in the place of each device's update.

An algorithm takes a weighted mean of the arrays of its answers. If every answer holds the same
values, the mean equals them, to the grid of the exact merge. Every algorithm that averages can
therefore be used with every rule of ``[merging]``: role by role, over the answers of one
``merge_group`` that hold the role. Norm clipping changes each answer by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.exchange import Exchange, Finished
from edgefed.config.recipes.merging_section import MergingSection
from edgefed.coordinator.exchanges.reply_checks import read_role
from edgefed.coordinator.rounds.held_replies import HeldReply, Medians, trained_roles
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.learn.base.types import Tensors
from edgefed.learn.robust.aggregate import aggregated
from edgefed.learn.robust.norms import WEIGHTS, Norms, clipped
from edgefed.learn.robust.updates import Updates


def with_least_answers(
    planned: Exchange | Finished, section: MergingSection
) -> Exchange | Finished:
    """Return an exchange whose quorum is no lower than the answers that the rule needs."""
    # A rule such as a median is undefined for fewer answers
    if isinstance(planned, Finished) or planned.quorum >= section.least_answers:
        return planned
    if not any(role.trained for role in planned.reply_roles.values()):
        return planned
    return replace(planned, quorum=section.least_answers)


class RobustMerging:
    """Changes the answers to one exchange on their way to the algorithm's merge.

    Args:
        section: the rule.
        exchange: the question.
        held: the replies that were accepted, sorted by device, where the rule needs them all.
        medians: of the cohort, where the rule needs them.
    """

    def __init__(
        self,
        section: MergingSection,
        exchange: OpenExchange,
        held: Sequence[HeldReply],
        medians: Medians | None,
    ) -> None:
        self._section = section
        self._exchange = exchange
        self._held = held
        self._medians = medians
        self._roles = trained_roles(exchange)
        self._groups = {reply.device: reply.group for reply in held}
        self._common: dict[tuple[str, str], Tensors] = {}

    def changed(self, answer: Answer) -> Answer:
        """Return an answer as it is to be merged."""
        groups = dict(answer.groups)
        for role in self._roles:
            if role not in groups:
                continue
            # With the same update in every answer, any weighted mean returns it
            if self._section.replaces:
                groups[role] = Group(self._aggregate(role, self._groups[answer.device]))
            else:
                groups[role] = Group(clipped(groups[role].arrays, self._largest(role)))
        return replace(answer, groups=groups)

    def _largest(self, role: str) -> Norms:
        """Return the largest norm of each part of a role's arrays."""
        if self._section.clip_norm:
            return {WEIGHTS: self._section.clip_norm}
        assert self._medians is not None, "a relative norm needs all replies"
        factor = self._section.clip_factor
        return {part: factor * norm for part, norm in self._medians.norms[role].items()}

    def _aggregate(self, role: str, group: str) -> Tensors:
        """Return the common update of a role, computed once."""
        # Computed on the first answer of the group, and kept for the others
        if (role, group) not in self._common:
            among = [reply for reply in self._held if reply.group == group and role in reply.norms]

            def read(number: int) -> Tensors:
                return read_role(among[number].delivered, self._exchange, role)

            self._common[role, group] = aggregated(Updates.read_by(len(among), read), self._section)
        return self._common[role, group]
