"""The exchange that an algorithm plans first, to check the roles of its answers before a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgefed.algorithms.interface.exchange import Exchange
from edgefed.algorithms.interface.member import Member
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm

if TYPE_CHECKING:
    from edgefed.learn.modeling.model import Model


def first_exchange(algorithm: CompleteAlgorithm[Any], model: Model) -> Exchange | None:
    """Return the first exchange with enough devices of one sample each; None if there is none."""
    rounds = algorithm.rounds
    count = max(2, rounds.cohort, rounds.min_devices)
    roster = tuple(Member(f"device-{number:06d}", 1) for number in range(count))
    planned = algorithm.plan(algorithm.start(model.weights(), roster, 0), roster, 0)
    return planned if isinstance(planned, Exchange) else None
