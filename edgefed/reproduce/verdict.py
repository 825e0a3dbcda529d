"""Judge a paper's claims against the noise between seeds.

A claim is a sum of cells, computed for each seed separately: cells of one seed share their data,
partition and initial weights, so common effects cancel. The noise is half the width of the 95 %
confidence interval of the mean over seeds, by Student's t-distribution (Biometrika 6 (1), 1908).
Where only one seed ran and the deviations of the published numbers are known, the noise is 1.96
standard deviations of the sum of one run of each cell. The same sum of published numbers shows
whether the paper's own table agrees with its text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from edgefed.reproduce.table import EACH, Claim, PaperColumn, Published
from edgefed.simulator.sweep.statistics import spread

Word = Literal["yes", "no", "within the noise", "unknown"]

Values = Callable[[str, PaperColumn], Mapping[int, float]]
"""A row's label and a column to accuracy by seed; empty where nothing was run."""

Numbers = Callable[[str, str], Published | None]
"""A row's label and a column of the paper to what was published."""

NORMAL = 1.96
"""The normal distribution's quantile for 95 %, two-sided."""


@dataclass(frozen=True)
class Verdict:
    """The result of a claim in one column, or over several.

    Attributes:
        column: the column's label; empty for a claim over several.
        mean: of the sum over seeds, as a share; None when there is none.
        noise: its possible deviation; None with fewer than two seeds.
        reason: why it is unknown.
        published: the sum of the published numbers, as a share; None where one is not known.
    """

    claim: str
    column: str
    word: Word
    mean: float | None = None
    noise: float | None = None
    reason: str = ""
    published: float | None = None


def judge(
    claim: Claim, columns: Sequence[PaperColumn], values: Values, numbers: Numbers
) -> list[Verdict]:
    """Return a verdict for each column that the claim is about, or one if it spans several."""
    if any(term.column == EACH for term in claim.terms):
        return [
            replace(
                _by_published_noise(
                    _one(claim, [column] * len(claim.terms), column.label, values),
                    claim,
                    _published(claim, numbers, column.of),
                ),
                published=published_sum(claim, numbers, column.of),
            )
            for column in columns
        ]
    own = published_sum(claim, numbers)
    chosen = [next((c for c in columns if c.of == term.column), None) for term in claim.terms]
    present = [column for column in chosen if column is not None]
    if len(present) < len(chosen):
        absent = "a column is not run at this scale"
        return [Verdict(claim.text, "", "unknown", reason=absent, published=own)]
    one = present[0].label if len({column.label for column in present}) == 1 else ""
    verdict = _one(claim, present, one, values)
    verdict = _by_published_noise(verdict, claim, _published(claim, numbers))
    return [replace(verdict, published=own)]


def published_sum(claim: Claim, numbers: Numbers, column: str = "") -> float | None:
    """Return a claim's sum over published numbers, as a share; None where one is not known.

    Args:
        claim: of the paper.
        numbers: published in it.
        column: the paper's column that a term of any column means.
    """
    cells = _published(claim, numbers, column)
    if not cells:
        return None
    terms = zip(claim.terms, cells, strict=True)
    return round(math.fsum(term.weight * cell.value for term, cell in terms), 6) / 100


def _published(claim: Claim, numbers: Numbers, column: str = "") -> list[Published]:
    """Return the published number of each term; none where one is not known."""
    columns = (column if term.column == EACH else term.column for term in claim.terms)
    cells = [numbers(term.row, of) for term, of in zip(claim.terms, columns, strict=True)]
    known = [cell for cell in cells if cell is not None]
    return known if len(known) == len(cells) else []


def _by_published_noise(verdict: Verdict, claim: Claim, cells: Sequence[Published]) -> Verdict:
    """Return a verdict of one seed by the deviations of the published numbers, if known."""
    deviations = [cell.deviation for cell in cells if cell.deviation is not None]
    if verdict.mean is None or verdict.noise is not None or len(deviations) < len(claim.terms):
        return verdict
    terms = zip(claim.terms, deviations, strict=True)
    noise = NORMAL * math.hypot(*(term.weight * deviation / 100 for term, deviation in terms))
    word = _word(claim, verdict.mean, noise)
    return replace(verdict, word=word, noise=noise, reason="one seed, by the published deviations")


def _one(claim: Claim, columns: Sequence[PaperColumn], label: str, values: Values) -> Verdict:
    cells = [values(term.row, column) for term, column in zip(claim.terms, columns, strict=True)]
    missing = [term.row for term, cell in zip(claim.terms, cells, strict=True) if not cell]
    if missing:
        reason = f"not run: {', '.join(dict.fromkeys(missing))}"
        return Verdict(claim.text, label, "unknown", reason=reason)
    seeds = set.intersection(*(set(cell) for cell in cells))
    sums = [
        math.fsum(term.weight * cell[seed] for term, cell in zip(claim.terms, cells, strict=True))
        for seed in sorted(seeds)
    ]
    return _weighed(claim, label, sums)


def _weighed(claim: Claim, label: str, sums: Sequence[float]) -> Verdict:
    estimate = spread(sums)
    if estimate.mean is None or estimate.margin is None:
        reason = "one seed tells nothing of the noise" if sums else "no seed ran all of its cells"
        return Verdict(claim.text, label, "unknown", estimate.mean, reason=reason)
    word = _word(claim, estimate.mean, estimate.margin)
    return Verdict(claim.text, label, word, estimate.mean, estimate.margin)


def _word(claim: Claim, mean: float, noise: float) -> Word:
    if claim.relation == "equal":
        return "yes" if abs(mean) <= noise else "no"
    if claim.relation == "not below":
        return "yes" if mean >= -noise else "no"
    if abs(mean) <= noise:
        return "within the noise"
    return "yes" if mean > 0 else "no"
