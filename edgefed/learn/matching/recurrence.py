"""Match hidden units by their recurrent weights too: an approximate quadratic assignment.

The weights between hidden units make the assignment of a device quadratic: the reward of a unit in
an atom depends on the atoms of the other units. As in the fast approximate quadratic assignment
(Vogelstein et al. 2015) the quadratic term is linearised at an assignment and the linear problem
solved; the solution is taken if the objective rises.

A hidden-to-hidden weight connects two units, so it belongs to a pair of atoms. The model is that of
a unit's other numbers: the weight of a pair of atoms is normal around 0 with variance sigma0, that
of a device's pair around it with variance sigma.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgefed.learn.base.types import Array
from edgefed.learn.matching.checks import check_recurrence
from edgefed.learn.matching.problem import Matched, MatchingProblem, stated
from edgefed.learn.matching.settings import MatchSettings
from edgefed.learn.matching.sweeps import Prior, Rewards, Search


class Pairs:
    """Sums and precisions of the recurrent weights of pairs of atoms, over the devices added."""

    def __init__(self, gates: int, prior: float) -> None:
        """Begin without atoms; ``prior`` is the inverse variance around 0."""
        self._prior = prior
        self._sums: Array = np.zeros((gates, 0, 0))
        self._precisions: Array = np.zeros((0, 0))

    def add(self, recurrence: Array, precision: float, assignment: Array) -> None:
        """Add a device's weights (gates, units, units)."""
        self.enlarge(int(assignment.max(initial=-1)) + 1)
        pairs = np.ix_(assignment, assignment)
        self._sums[:, pairs[0], pairs[1]] += precision * recurrence
        self._precisions[pairs] += precision

    def remove(self, recurrence: Array, precision: float, assignment: Array) -> None:
        """Take a device's weights away."""
        pairs = np.ix_(assignment, assignment)
        self._sums[:, pairs[0], pairs[1]] -= precision * recurrence
        self._precisions[pairs] -= precision

    def renumber(self, numbers: Array) -> None:
        """Drop the atoms whose new number is -1."""
        kept = np.flatnonzero(numbers >= 0)
        self._sums = self._sums[:, kept[:, None], kept]
        self._precisions = self._precisions[np.ix_(kept, kept)]

    def enlarge(self, size: int) -> None:
        """Make room for ``size`` atoms."""
        more = max(size - len(self._precisions), 0)
        self._sums = np.pad(self._sums, ((0, 0), (0, more), (0, more)))
        self._precisions = np.pad(self._precisions, ((0, more), (0, more)), constant_values=0.0)

    def data_term(self) -> float:
        """Return ``sum T^2 / Lambda`` over pairs and gates."""
        return float((self._sums**2 / (self._prior + self._precisions)).sum())

    def total(self, recurrence: Array, precision: float, assignment: Array) -> float:
        """Return the reward of an assignment, less ``s u^2``; it is quadratic in it."""
        means, common = self._posterior(precision)
        rows, columns = np.ix_(assignment, assignment)
        squares = (recurrence - means[:, rows, columns]) ** 2
        return -float((common[rows, columns] * squares).sum())

    def linearised(self, recurrence: Array, precision: float, assignment: Array) -> Array:
        """Return the gain in reward from each unit in each atom; float64 (units, atoms).

        Each other unit is in the atom that ``assignment`` names.
        """
        means, common = self._posterior(precision)
        weighted = common * means
        squares = weighted * means
        # Of unit u in atom i and every v: weights from v to u, and from u to v.
        into = common[:, assignment], weighted[:, :, assignment], squares[:, :, assignment]
        out = common[assignment].T, weighted[:, assignment], squares[:, assignment]
        rewards = np.zeros((len(assignment), len(common)))
        # -common (u - mean)^2, expanded so that each term is a product of matrices
        for gate, own in enumerate(recurrence):
            rewards -= own**2 @ into[0].T + (own.T) ** 2 @ out[0].T
            rewards += 2.0 * (own @ into[1][gate].T + own.T @ out[1][gate])
            rewards -= into[2][gate].sum(axis=1) + out[2][gate].sum(axis=0)
        return rewards

    def _posterior(self, precision: float) -> tuple[Array, Array]:
        precisions = self._prior + self._precisions
        # Adding u of precision s to m of precision P gains s u^2 - P s / (P + s) (u - m)^2
        return self._sums / precisions, precisions * precision / (precisions + precision)


def refined_by_recurrence(
    matched: Matched,
    weights: Sequence[Array],
    recurrence: Sequence[Array],
    *,
    settings: MatchSettings,
    rng: np.random.Generator,
    devices: int | None = None,
    mean: Array | float = 0.0,
    precisions: Sequence[float] | None = None,
    iterations: int = 8,
) -> Matched:
    """Improve a matching of hidden units by the weights between them.

    The objective of the result includes that of the recurrent weights; no step lowers it.

    Args:
        matched: the result of ``match_layer`` for ``weights`` with the same arguments; its
            variances are used.
        weights: of each device, (units, numbers).
        recurrence: hidden-to-hidden weights of each device, (gates, units, units).
        settings: ``sweeps`` bounds the sweeps here too.
        rng: draws the order of devices in each sweep.
        devices: J, as for ``match_layer``.
        mean: mu0, as for ``match_layer``.
        precisions: precision of each device's weights, as for ``match_layer``; one number each.
        iterations: most linear assignments of a device in a sweep.

    Raises:
        DataError: the weights cannot be matched.
    """
    problem = stated(weights, matched.known(settings), devices, mean, precisions)
    check_recurrence(recurrence, weights)
    search = _RecurrentSearch(problem, recurrence, matched.assignments)
    sweeps = search.run(rng, iterations)
    return problem.matched(search.assignments, sweeps, search.pairs.data_term())


class _RecurrentSearch:
    """A matching that is improved device by device."""

    def __init__(
        self, problem: MatchingProblem, recurrence: Sequence[Array], assignments: Sequence[Array]
    ) -> None:
        prior = Prior(problem.prior, problem.devices, problem.settings.most_atoms)
        self._search = Search(problem.units, prior, problem.settings)
        self._recurrence = [np.asarray(weights, np.float64) for weights in recurrence]
        self._precisions = [float(unit.precision[0]) for unit in problem.units]
        self._settings = problem.settings
        self.pairs = Pairs(len(recurrence[0]), 1.0 / problem.sigma0)
        for device, assignment in enumerate(assignments):
            self._add(device, assignment)

    @property
    def assignments(self) -> Sequence[Array]:
        """Of the devices."""
        return self._search.assignments

    def run(self, rng: np.random.Generator, iterations: int) -> int:
        """Improve all devices until a sweep changes nothing; return the number of sweeps."""
        for sweep in range(1, self._settings.sweeps + 1):
            order = rng.permutation(len(self._recurrence))
            changed = [device for device in order if self._improve(device, iterations)]
            if not changed:
                return sweep
        return self._settings.sweeps

    def _add(self, device: int, assignment: Array) -> None:
        self._search.add(device, assignment)
        self.pairs.add(self._recurrence[device], self._precisions[device], assignment)

    def _improve(self, device: int, iterations: int) -> bool:
        search, own = self._search, self._recurrence[device]
        self.pairs.remove(own, self._precisions[device], self.assignments[device])
        self.pairs.renumber(search.remove(device))
        size, changed = search.atoms.size, False
        best = search.assignments[device].copy()
        best[best < 0] = size + np.arange(int((best < 0).sum()))
        # Units may become new atoms, which have recurrent weights of their own.
        self.pairs.enlarge(size + len(best))
        rewards = search.rewards(device)
        for _ in range(iterations):
            chosen = self._solved(device, rewards, best)
            if self._total(device, rewards, chosen) <= self._total(device, rewards, best):
                break
            best, changed = chosen, True
        self._add(device, best)
        kept = search.atoms.size
        self.pairs.renumber(np.where(np.arange(size + len(best)) < kept, 0, -1))
        return changed

    def _solved(self, device: int, rewards: Rewards, assignment: Array) -> Array:
        more = self.pairs.linearised(self._recurrence[device], self._precisions[device], assignment)
        size = rewards.existing.shape[1]
        # The last atom has no weights yet, so it stands for any new one
        linear = Rewards(rewards.existing + more[:, :size], rewards.new + more[:, -1])
        poisson = self._settings.new_penalty == "poisson"
        return linear.best(self._search.room(device), poisson=poisson)

    def _total(self, device: int, rewards: Rewards, assignment: Array) -> float:
        quadratic = self.pairs.total(self._recurrence[device], self._precisions[device], assignment)
        return rewards.total(assignment) + quadratic
