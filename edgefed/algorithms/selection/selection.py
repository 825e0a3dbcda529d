"""The choice of a round's devices, by the recipe's selector and the run's measurements.

Devices that are to rest (``selection.rest``) come behind the others. The result is a rank for each
member of the roster, which ``cohort_sampling.draw`` follows, so that every algorithm that draws
cohorts obeys it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from edgefed.algorithms.interface.cohort_sampling import sizes
from edgefed.algorithms.interface.member import Roster
from edgefed.algorithms.selection.base import Candidate
from edgefed.algorithms.selection.measurements import Measurements
from edgefed.algorithms.selection.registry import SELECTOR_PLUGINS, make_selector
from edgefed.config.recipes.recipe import Recipe
from edgefed.errors import PluginError
from edgefed.seeds import generator


class Selection:
    """Ranks the devices of a run.

    Args:
        recipe: of the run, whose ``[selection]`` table is checked.
        measurements: of its devices, kept up to date by the caller.

    Attributes:
        measures: whether devices are measured, for their choice or as they do unequal work.
    """

    def __init__(self, recipe: Recipe, measurements: Measurements) -> None:
        self._selector = make_selector(recipe.selection)
        self._section = recipe.selection
        self._rounds = recipe.rounds
        self._measurements = measurements
        self.measures = recipe.selection.wanted or recipe.training.varies

    def ranked(self, roster: Roster, number: int, seed: int) -> Roster:
        """Return a roster with measurements, and with ranks for the cohort of a round from 1.

        A uniform choice, and one of all devices, has no ranks.

        Args:
            roster: all devices that can be asked.
            number: of the round.
            seed: of the plan.
        """
        if not self.measures:
            return roster
        roster = self._measurements.paced(roster)
        able = sum(member.samples > 0 for member in roster)
        count = sizes(able, self._rounds)[1]
        if not self._section.wanted or count >= able:
            return roster
        ranks = {
            device: rank for rank, device in enumerate(self.first(roster, count, number, seed))
        }
        last = len(roster)
        return tuple(replace(member, rank=ranks.get(member.device, last)) for member in roster)

    def first(self, roster: Roster, count: int, number: int, seed: int) -> list[str]:
        """Return the ids of so many devices, those to ask first; fewer where there are no more.

        Of devices that should rest, those come first that have rested for the longest time, ties at
        random.

        Raises:
            PluginError: ``selection.plugin``: the selector failed.
        """
        candidates = self._measurements.candidates(roster)
        rested = [entry for entry in candidates if not self._rests(entry, number)]
        resting = [entry for entry in candidates if self._rests(entry, number)]
        chosen = self._ordered(rested, min(count, len(rested)), number, seed)
        missing = min(count - len(chosen), len(resting))
        ties = generator(seed, "selection", "resting").permutation(len(resting))
        by_rest = sorted(zip(resting, ties, strict=True), key=lambda pair: (pair[0].last, pair[1]))
        return chosen + [entry.device for entry, _ in by_rest[:missing]]

    def _rests(self, candidate: Candidate, number: int) -> bool:
        return candidate.last > 0 and number - candidate.last <= self._section.rest

    def _ordered(
        self, candidates: Sequence[Candidate], count: int, number: int, seed: int
    ) -> list[str]:
        if count == len(candidates):
            return [candidate.device for candidate in candidates]
        draws, known = generator(seed, "selection"), {entry.device for entry in candidates}
        try:
            order = list(self._selector.order(candidates, count, number, draws))[:count]
        except Exception as error:  # whatever a package does, the run says whose it is
            raise self._failed(f"{type(error).__name__}: {error}") from error
        if len(set(order) & known) < count:
            raise self._failed(f"it did not name {count} of {len(known)} devices")
        return order

    def _failed(self, why: str) -> PluginError:
        name = self._section.name
        package = SELECTOR_PLUGINS.package(name)
        return PluginError(
            f"The selector '{name}' of {package} failed: {why}.",
            code=SELECTOR_PLUGINS.code,
            hint="choose another selector, or correct it",
        )
