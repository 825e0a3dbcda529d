"""Replies that wait for the others of their exchange, to be compared and merged together.

A held reply is not in memory: its blobs stay pinned in the cache, and are decoded again when they
are needed. The values for comparisons, such as norms, are computed when it arrives.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.config.recipes.checks_section import ChecksSection
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.exchanges.reply_checks import read_role
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.learn.robust.norms import Norms, median_norms, norms_of
from edgefed.wire.blobs import BlobCache


@dataclass(frozen=True)
class HeldReply:
    """A reply that passed the checks of a single reply.

    Attributes:
        delivered: the reply as it arrived.
        answer: the answer, without its arrays.
        group: its ``Algorithm.merge_group``; answers of one group are averaged together.
        norms: of each trained role that it holds.
    """

    delivered: Delivered
    answer: Answer
    group: str
    norms: Mapping[str, Norms]

    @property
    def device(self) -> str:
        """Whose reply it is."""
        return self.delivered.reply.device

    def read(self, exchange: OpenExchange) -> Answer:
        """Return the whole answer, decoded again.

        Raises:
            WireError: ``wire.blob``: one of its blobs is lost.
        """
        roles = self.delivered.reply.blobs
        groups = {role: Group(read_role(self.delivered, exchange, role)) for role in roles}
        return replace(self.answer, groups=groups)


def hold(
    delivered: Delivered, answer: Answer, group: str, compared_roles: Collection[str]
) -> HeldReply:
    """Return a reply to be held; the norms of ``compared_roles`` are computed."""
    norms = {
        # Norms are computed while the arrays are in memory; the answer is kept without them
        role: norms_of(answer.groups[role].arrays)
        for role in compared_roles
        if role in answer.groups
    }
    return HeldReply(delivered, replace(answer, groups={}), group, norms)


def trained_roles(exchange: OpenExchange) -> tuple[str, ...]:
    """Return the roles of an exchange whose arrays are trained."""
    return tuple(role for role, wanted in exchange.reply_roles.items() if wanted.trained)


@dataclass(frozen=True)
class Medians:
    """Reference values with which the replies of a cohort are compared.

    Attributes:
        norms: median norms of each trained role.
        samples: median number of samples.
    """

    norms: Mapping[str, Norms]
    samples: float

    @classmethod
    def of(cls, held: Sequence[HeldReply], exchange: OpenExchange) -> Medians:
        """Return the medians of the replies that are held."""
        norms = {
            role: median_norms([reply.norms[role] for reply in held if role in reply.norms])
            for role in trained_roles(exchange)
        }
        return cls(norms, median(reply.answer.samples for reply in held) if held else 0.0)

    def problem(self, held: HeldReply, section: ChecksSection) -> str:
        """Return why a reply differs too much from the others, or nothing."""
        # A factor of 0 switches a check off
        if section.samples_factor and held.answer.samples > section.samples_factor * self.samples:
            return (
                f"it counts {held.answer.samples} samples, more than {section.samples_factor:g}"
                f" times the cohort's median {self.samples:g} (checks.samples_factor)"
            )
        if not section.norm_factor:
            return ""
        for role, norms in held.norms.items():
            for part, norm in norms.items():
                middle = self.norms[role][part]
                if norm > section.norm_factor * middle:
                    return (
                        f"the norm of its {role} ({part}) is {norm:.3g}, more than"
                        f" {section.norm_factor:g} times the cohort's median {middle:.3g}"
                        " (checks.norm_factor)"
                    )
        return ""


class Pins:
    """Keeps the blobs of held replies in the cache."""

    def __init__(self, cache: BlobCache) -> None:
        self._cache = cache
        self._pinned: list[str] = []

    def pin(self, digests: Iterable[str]) -> None:
        """Keep these until ``release``."""
        for digest in digests:
            # The cache counts pins, so equal blobs of two replies are pinned and unpinned twice
            self._cache.pin(digest)
            self._pinned.append(digest)

    def release(self) -> None:
        """Let the cache evict them again."""
        while self._pinned:
            self._cache.unpin(self._pinned.pop())
