"""Advise on a recipe for a fleet: twin, race, answer; a killed advice goes on where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from edgefed.advise.advice import Advice, answer, failed
from edgefed.advise.candidates import Check, Entrants, entrants, recipe_from, with_candidate
from edgefed.advise.checks import ADVICE, RECIPE, record_of
from edgefed.advise.profile import Profile
from edgefed.advise.race import RaceScore, Run, affordable_rounds, race
from edgefed.advise.stand_in import StandIn
from edgefed.advise.twin import RECIPES_OWN, Twin, make_twin
from edgefed.config.loading.write import to_toml
from edgefed.config.recipes.recipe import Recipe
from edgefed.errors import UsageError
from edgefed.files.writing import write_output
from edgefed.process.clock import Clock
from edgefed.simulator.sweep.plan import Plan, SweepCase

PLANNED = "race.json"

PROBE_ROUNDS = 2
"""Rounds of the run that measures how long a round takes here."""


@dataclass(frozen=True)
class Wishes:
    """The limits of an advice.

    Attributes:
        seconds: for the race.
        seeds: of each candidate.
        methods: that enter; none for all.
        jobs: runs at once.
    """

    seconds: float
    seeds: tuple[int, ...]
    methods: tuple[str, ...] = ()
    jobs: int = 1


def advise(
    recipe: Recipe,
    profile: Profile,
    folder: Path,
    wishes: Wishes,
    check: Check,
    run: Run,
    clock: Clock,
    stand_in: StandIn = RECIPES_OWN,
) -> Advice:
    """Return the advice, and write it and the recommended recipe into a folder.

    Args:
        recipe: that is advised on; its algorithm is replaced.
        profile: of the fleet.
        folder: for all files.
        wishes: limits.
        check: checks a recipe to the last key.
        run: runs the trials of a plan in the folder.
        clock: measures a round.
        stand_in: the data in place of the devices'.

    Raises:
        UsageError: ``advise.budget``: not even the shortest race fits; ``advise.refused``: no
            candidate may enter.
        EdgeFedError: the data cannot stand in, or the disk does not take the files.
    """
    twin = make_twin(recipe, profile, folder, stand_in)
    field = entrants(twin.tables, profile, check, wishes.methods)
    if not field.cases:
        raise _nobody(field)
    rounds = _rounds(field, recipe, folder, wishes, run, clock)
    notes = list(twin.notes)
    if rounds < recipe.rounds.count:
        notes.append(
            f"Candidates were compared after {rounds} of {recipe.rounds.count} rounds, which is"
            " what the time allows: the order may change later."
        )
    scores = race(field.cases, wishes.seeds, rounds, run)
    made = answer(
        scores,
        field.refused,
        recipe,
        wishes.seeds,
        len(profile.devices),
        twin,
        notes=notes,
        record=record_of(folder.parent),
    )
    write_output(folder / ADVICE, f"{json.dumps(made.to_json(), indent=2)}\n".encode())
    recommended = with_candidate(recipe.model_dump(mode="json"), made.recommended, check)
    write_output(folder / RECIPE, to_toml(recommended, comments=False).encode())
    return made


def _nobody(field: Entrants) -> UsageError:
    name, reason = next(iter(field.refused.items()))
    return UsageError(
        f"No candidate may enter the race; {name}: {reason.rstrip('.')}.",
        code="advise.refused",
        hint="change the recipe, or what the profile refuses",
    )


def predict(
    recipe: Recipe,
    profile: Profile,
    folder: Path,
    seeds: Sequence[int],
    check: Check,
    run: Run,
    stand_in: StandIn = RECIPES_OWN,
) -> tuple[RaceScore, Twin]:
    """Return the score of a recipe as it is on the fleet's twin, and the twin; see `advise`.

    Raises:
        EdgeFedError: the recipe or the data cannot be used, or every run failed.
    """
    twin = make_twin(recipe, profile, folder, stand_in)
    case = SweepCase(recipe.algorithm.name, {}, recipe_from(twin.tables, check))
    score = race([case], seeds, recipe.rounds.count, run)[0]
    if not score.results:
        raise failed(score.reason)
    return score, twin


def _rounds(
    field: Entrants, recipe: Recipe, folder: Path, wishes: Wishes, run: Run, clock: Clock
) -> int:
    """Return the rounds of the last level; those of the same race before a kill, if there was one.

    Raises:
        UsageError: ``advise.budget``: not even the shortest race fits.
    """
    cases = [case.recipe.model_dump_json() for case in field.cases]
    words = json.dumps([cases, wishes.seeds, wishes.seconds, wishes.jobs])
    key = hashlib.sha256(words.encode()).hexdigest()
    try:
        kept = json.loads((folder / PLANNED).read_text(encoding="utf-8"))
        if kept["key"] == key:
            return int(kept["rounds"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    seconds = _measured(field.cases, wishes.seeds, run, clock) / wishes.jobs
    wanted = recipe.rounds.count
    rounds = affordable_rounds(len(field.cases), len(wishes.seeds), wanted, seconds, wishes.seconds)
    write_output(folder / PLANNED, json.dumps({"key": key, "rounds": rounds}).encode())
    return rounds


def _measured(cases: Sequence[SweepCase], seeds: Sequence[int], run: Run, clock: Clock) -> float:
    """Return the seconds of a round of the first candidate here, with its share of the start.

    Raises:
        UnknownNameError: ``advise.failed``: not even this run finished.
    """
    case = cases[0]
    section = case.recipe.rounds.model_copy(update={"count": PROBE_ROUNDS})
    probe = replace(case, recipe=case.recipe.model_copy(update={"rounds": section}))
    began = clock.monotonic()
    outcome = run(Plan((probe,), tuple(seeds[:1])))
    if outcome.failures:
        raise failed(next(iter(outcome.failures.values())))
    return max(1e-3, (clock.monotonic() - began) / PROBE_ROUNDS)
