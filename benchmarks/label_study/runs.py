"""Run simulations in several processes; every finished one is a line in a file."""

from __future__ import annotations

import itertools
import json
import math
import multiprocessing
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefed.clock import SystemClock
from edgefed.config.recipe import Recipe
from edgefed.errors import EdgeFedError
from edgefed.events.model import Event
from edgefed.simulator.run import Simulation
from edgefed.simulator.sweep.plan import trial_digest

LAST = 5
"""Evaluations that make a score."""


@dataclass(frozen=True)
class Work:
    """One run that a process does.

    Attributes:
        key: names its result.
        folder: below which runs have their folders; natural noise is shared.
    """

    key: str
    case: str
    recipe: Recipe
    folder: Path


def do(work: Work) -> dict[str, Any]:
    """Run a recipe and return its line of ``runs.jsonl``."""
    begun, state = time.monotonic(), work.folder / "work" / work.key
    shutil.rmtree(state, ignore_errors=True)
    history: list[tuple[int, float]] = []
    notes: list[str] = []

    def hear(event: Event, _: int) -> None:
        accuracy = event.fields.get("accuracy")
        if event.kind == "scored" and accuracy is not None:
            history.append((event.fields["round"], accuracy))
        if "bount" in (text := str(event.fields.get("text", ""))):
            notes.append(text)

    noise = work.folder / "noise"
    try:
        simulation = Simulation(work.recipe, state, SystemClock(), noise_folder=noise)
        simulation.journal.listen(hear)
        record = simulation.run().record
        ended = record.status if record.status == "finished" else record.reason
    except EdgeFedError as error:
        ended = error.message
    shutil.rmtree(state, ignore_errors=True)
    return {
        "key": work.key,
        "case": work.case,
        "seed": work.recipe.seed,
        "ended": ended,
        "history": history,
        "notes": notes,
        "seconds": round(time.monotonic() - begun, 1),
    }


def score(line: Mapping[str, Any]) -> float:
    """Return the mean accuracy of a run's last evaluations; NaN where it failed."""
    last = [accuracy for _, accuracy in line["history"]][-LAST:]
    return math.fsum(last) / len(last) if line["ended"] == "finished" and last else math.nan


@dataclass(frozen=True)
class Runner:
    """Does runs that are not done yet, in several processes.

    Attributes:
        folder: of ``runs.jsonl``.
        jobs: processes.
        tell: whether a line is printed for each run.
    """

    folder: Path
    jobs: int
    tell: bool

    def scores(self, cases: Mapping[str, Recipe], seeds: Sequence[int]) -> dict[str, list[float]]:
        """Return the scores of each case, one for each seed."""
        keys: dict[tuple[str, int], str] = {}
        works: list[Work] = []
        for seed, (case, recipe) in itertools.product(seeds, cases.items()):
            seeded = recipe.model_copy(update={"seed": seed})
            keys[case, seed] = key = trial_digest(seeded)
            works.append(Work(key, case, seeded, self.folder))
        known = self._known()
        left = {each.key: each for each in works if each.key not in known}
        for number, line in enumerate(self._done(list(left.values())), 1):
            known[line["key"]] = line
            with (self.folder / "runs.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")
            if self.tell:
                told = [line["case"], f"seed {line['seed']}", *line["notes"][-1:], line["ended"]]
                told += [f"{score(line):.3f}", f"{line['seconds']:.0f} s"]
                print(f"  {number}/{len(left)} {'; '.join(told)}", flush=True)
        return {case: [score(known[keys[case, seed]]) for seed in seeds] for case in cases}

    def _known(self) -> dict[str, dict[str, Any]]:
        """Return the lines of finished runs; a line that a kill cut off is left out."""
        path, known = self.folder / "runs.jsonl", {}
        if path.exists():
            whole = path.read_text().rpartition("\n")[0]
            known = {line["key"]: line for line in map(json.loads, whole.splitlines())}
            path.write_text(whole + "\n" if whole else "")
        return known

    def _done(self, works: Sequence[Work]) -> Iterator[dict[str, Any]]:
        if self.jobs == 1 or len(works) < 2:
            yield from map(do, works)
            return
        with multiprocessing.get_context("spawn").Pool(self.jobs) as pool:
            yield from pool.imap_unordered(do, works)
