"""The recipe's ``[selection]`` table: how the devices of a cohort are chosen."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from edgefed.config.recipes.sections import OpenSection

RANDOM = "random"
"""Name of the selector that draws all devices with the same probability."""


class SelectionSection(OpenSection):
    """How the devices of a cohort are chosen; further keys are the selector's.

    Tests are not affected: they draw their devices at random.
    """

    name: str = RANDOM
    """Name of a selector: ``random``, ``samples``, ``round-robin``, ``power-of-choice``, ``oort``;
    one of a plug-in; or in simulations ``package.module:Class`` for one of your own."""

    rest: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Rounds in which a device is not asked again after it was asked, while there are enough
    others: its share of the rounds is then at most 1 / (``rest`` + 1). 0: no rest."""

    @property
    def wanted(self) -> bool:
        """Whether devices are chosen otherwise than at random."""
        return self.name != RANDOM or self.rest > 0
