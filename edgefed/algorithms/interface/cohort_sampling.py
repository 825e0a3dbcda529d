"""Sample a round's cohort, with the number of answers that it waits for and its quorum."""

from __future__ import annotations

import math
from dataclasses import dataclass

from edgefed.algorithms.interface.member import Roster
from edgefed.config.recipes.recipe import RoundsSection
from edgefed.seeds import generator


@dataclass(frozen=True)
class Cohort:
    """The devices asked, sorted by id, and the required numbers of answers.

    Attributes:
        members: the devices asked: ``wanted`` and the over-selected ones.
        wanted: answers after which the exchange closes.
        quorum: answers that suffice when the deadline passes.
    """

    members: Roster
    wanted: int
    quorum: int


def draw(roster: Roster, rounds: RoundsSection, seed: int) -> Cohort:
    """Draw a cohort uniformly without replacement, or by the ranks of the members.

    Devices without samples are never drawn. The quorum is a share of the recipe's cohort, so a
    fleet that has shrunk below it is noticed.
    """
    able = [member for member in roster if member.samples > 0]
    aim = rounds.cohort or len(able)
    wanted, asked = sizes(len(able), rounds)
    ranks = [(member.rank, index) for index, member in enumerate(able) if member.rank is not None]
    if ranks:
        picked = [index for _, index in sorted(ranks)[:asked]]
    else:
        picked = generator(seed, "cohort").permutation(len(able))[:asked].tolist()
    members = tuple(able[index] for index in sorted(picked))
    return Cohort(members, wanted, max(1, _share(rounds.quorum, aim)))


def sizes(able: int, rounds: RoundsSection) -> tuple[int, int]:
    """Return the awaited answers and the size of a cohort, given the number of able devices."""
    wanted = min(rounds.cohort or able, able)
    return wanted, min(able, wanted + _share(rounds.over_selection, wanted))


def draw_testers(roster: Roster, rounds: RoundsSection, seed: int) -> Cohort:
    """Draw the cohort of an evaluation, which may have another size than that of a round."""
    if rounds.test_cohort is None:
        return draw(roster, rounds, seed)
    return draw(roster, rounds.model_copy(update={"cohort": rounds.test_cohort}), seed)


def _share(share: float, count: int) -> int:
    """Return a share of a count, rounded up; 0.1 of 30 is 3, not 4 by a float's last bit."""
    return math.ceil(round(share * count, 6))
