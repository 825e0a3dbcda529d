"""The common part of objectives that mix a batch with entries of others: draws and checks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgefed.learn.base.types import Array
from edgefed.learn.modeling.model import Model
from edgefed.learn.objectives.averaged_entries import check_entries, check_real, draw_entries
from edgefed.learn.objectives.mixing import Mixing


class EntryMixing(Mixing):
    """A mixing with one entry a batch, drawn from a job's extras (see ``entries``)."""

    def check(self, model: Model, extra: Mapping[str, Array]) -> None:
        """Check that the inputs can be mixed, and that there are entries.

        Raises:
            DataError: the inputs are tokens, or the extras are not entries for this model.
        """
        name = type(self).__name__.removesuffix("Objective")
        check_real(name, model.vocabulary)
        check_entries(name, extra, model.shape, model.classes)

    def draw(
        self, generator: np.random.Generator, size: int, extra: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Return which entry the batch is mixed with."""
        return draw_entries(generator, 1, extra)
