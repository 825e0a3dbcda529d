"""The recipe's ``[rollout]`` table: whether devices get the run's model for their programs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from edgefed.config.recipes.sections import Section


def _growing(shares: tuple[float, ...]) -> tuple[float, ...]:
    if [*shares] != sorted(set(shares)) or shares[-1] != 1:
        raise ValueError("each stage asks more devices than the one before, and the last all")
    return shares


Share = Annotated[float, Field(gt=0, le=1)]
Shares = Annotated[tuple[Share, ...], Field(min_length=1, max_length=100), AfterValidator(_growing)]
"""Shares of the devices that each stage asks, with those before."""

DEFAULT_SHARES = (0.05, 0.25, 1.0)


class RolloutSection(Section):
    """Whether devices are offered the run's model as the current one of their inference programs.

    The offer is made in stages, as ``edgefed model rollout`` does. Simulations offer nothing.
    """

    when: Literal["never", "end", "best"] = "never"
    """``end``: when the run has finished. ``best``: at each round whose test is the best so far; a
    better round replaces a rollout that goes on."""

    stages: Shares = DEFAULT_SHARES
    """Shares of the devices that each stage asks, with those before; the last one is 1."""

    stop_at: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share of refusals above which the rollout stops."""
