"""The runs of a study: each finished one is a file, and is not repeated."""

from __future__ import annotations

import json
import math
import multiprocessing
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from edgefed.algorithms.interface.base import State
from edgefed.config.recipes.recipe import Recipe
from edgefed.data.base.types import Shard
from edgefed.errors import EdgeFedError
from edgefed.events.base.model import Event
from edgefed.files.writing import write_atomic
from edgefed.learn.base.types import Tensors
from edgefed.process.clock import SystemClock
from edgefed.simulator.executors import Sequential, WorkOrder
from edgefed.simulator.local_fleet import device_names
from edgefed.simulator.run import Simulation
from edgefed.simulator.sweep.plan import trial_digest
from edgefed.simulator.sweep.planted_clusters import PlantedClusters
from edgefed.simulator.sweep.statistics import Spread, spread
from edgefed.worker.outcomes import Outcome

Private = Mapping[str, Tensors]


@dataclass(frozen=True)
class Run:
    """The result of a run.

    Attributes:
        ended: ``finished``, or why it failed.
        seconds: CPU time.
        rows: one a round: accuracy, bytes, growth, and the notes of `Look`.
    """

    words: str
    seed: int
    ended: str = "finished"
    seconds: float = 0.0
    rows: list[dict[str, Any]] = field(default_factory=list)

    def values(self, key: str) -> list[float]:
        """Return a value of the rounds that have it."""
        return [row[key] for row in self.rows if row.get(key) is not None]

    def score(self, key: str = "accuracy", last: int = 1) -> float:
        """Return the mean of the last values; NaN if there is none or the run failed."""
        found = self.values(key)[-last:]
        return math.fsum(found) / len(found) if found and self.ended == "finished" else math.nan


class Observed(Sequential):
    """Runs the devices' tasks one after another and keeps the devices' private state.

    Attributes:
        shards: the data of each device that trains.
        private: the private state of a device after its last answer.
    """

    def __init__(self, shards: Sequence[Shard]) -> None:
        super().__init__(shards)
        names = device_names(len(shards))
        self.shards = dict(zip(names, shards, strict=True))
        self.private: dict[str, Private] = {}
        self._names = names

    def outcomes(
        self, orders: Sequence[WorkOrder], read: Callable[[str], bytes], stop: Callable[[], bool]
    ) -> Iterator[tuple[WorkOrder, Outcome]]:
        """Yield outcomes in the order of completion."""
        for order, outcome in super().outcomes(orders, read, stop):
            if outcome.status == "ok" and order.task.question != "evaluate":
                self.private[self._names[order.device]] = outcome.private
            yield order, outcome


Look = Callable[[int, State, Observed], dict[str, Any]]
"""Given a round, the state after it and the devices, returns notes for the round's row."""

Work = tuple[str, Recipe, Path]
"""A run's words, its recipe, and the file of its result."""


@dataclass(frozen=True)
class Runner:
    """Executes the runs that have no result yet.

    Attributes:
        folder: of the results, ``runs/DIGEST.json``; several processes may share it.
        tell: whether a line is printed for each run.
        jobs: processes; 1 where runs have a look.
        lacking: whether runs without a result are left out.
    """

    folder: Path
    tell: bool = False
    jobs: int = 1
    lacking: bool = False

    def runs(
        self, recipes: Mapping[str, Recipe], look: Callable[[Recipe], Look] | None = None
    ) -> dict[str, Run | None]:
        """Return the results of several runs by their words; None if one is left out.

        Args:
            recipes: by their words.
            look: makes what looks at the rounds of a recipe's run.
        """
        files = {words: self.file(recipe) for words, recipe in recipes.items()}
        wanted = {file: words for words, file in files.items() if not file.exists()}
        works = [] if self.lacking else [(w, recipes[w], file) for file, w in wanted.items()]
        for number, run in enumerate(self._done(works, look), 1):
            if self.tell:
                place = f"{number}/{len(works)}; " if len(works) > 1 else ""
                told = f"{run.words}; seed {run.seed}; {run.ended}; {run.score():.3f}"
                print(f"  {place}{told}; {run.seconds} s", flush=True)
        return {
            words: Run(**json.loads(file.read_text())) if file.exists() else None
            for words, file in files.items()
        }

    def file(self, recipe: Recipe) -> Path:
        """Return the file of a result; the data file counts without its folder."""
        name = Path(str(recipe.data.settings().get("path", ""))).name
        data = recipe.data.model_copy(update={"path": name})
        digest = trial_digest(recipe.model_copy(update={"data": data}))
        return self.folder / "runs" / f"{digest}.json"

    def _done(self, works: Sequence[Work], look: Callable[[Recipe], Look] | None) -> Iterator[Run]:
        if self.jobs == 1 or len(works) < 2:
            for work in works:
                yield _execute(work, look(work[1]) if look else None)
            return
        with multiprocessing.get_context("spawn").Pool(self.jobs) as pool:
            yield from pool.imap_unordered(_execute, works)


def _execute(work: Work, look: Look | None = None) -> Run:
    """Execute a run and write its result."""
    words, recipe, file = work
    study, begun = file.parent.parent, time.process_time()
    state = study / "work" / file.stem
    shutil.rmtree(state, ignore_errors=True)
    rows: list[dict[str, Any]] = []
    try:
        _simulate(recipe, state, study / "noise", rows, look)
        ended = "finished"
    except EdgeFedError as error:
        ended = error.message
    shutil.rmtree(state, ignore_errors=True)
    found = Run(words, recipe.seed, ended, round(time.process_time() - begun, 1), rows)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(file, json.dumps(asdict(found)).encode())
    return found


def _simulate(
    recipe: Recipe, state: Path, noise: Path, rows: list[dict[str, Any]], look: Look | None
) -> None:
    """Run a recipe and note its rounds.

    Raises:
        EdgeFedError: the run failed.
    """
    devices: list[Observed] = []

    def observe(shards: Sequence[Shard], *_: Any) -> tuple[Observed, str]:
        devices.append(Observed(shards))
        return devices[0], ""

    executors = None if look is None else observe
    simulation = Simulation(recipe, state, SystemClock(), executors=executors, noise_folder=noise)
    (run,) = simulation.store.runs()
    clusters = PlantedClusters(recipe)

    def hear(event: Event, _: int) -> None:
        clusters.hear(event)
        if event.kind != "scored":
            return
        fields = {key: value for key, value in event.fields.items() if key != "run"}
        rows.append({**fields, **clusters.scores()})
        if look is not None:
            checkpoint = simulation.store.checkpoint(run.run)
            assert checkpoint is not None
            rows[-1] |= look(event.fields["round"], checkpoint.state, devices[0])

    simulation.journal.listen(hear)
    record = simulation.run().record
    if record.status != "finished":
        raise EdgeFedError(record.reason or record.status, code=record.error or "run.failed")


# -- comparing ------------------------------------------------------------------------------------


def best_of(scores: Mapping[str, float]) -> str:
    """Return the setting with the best score, the first of several; NaN is the worst."""
    return max(scores, key=lambda words: -1.0 if math.isnan(scores[words]) else scores[words])


def difference(scores: Sequence[float], others: Sequence[float]) -> Spread:
    """Return the difference by seed."""
    return spread([one - other for one, other in zip(scores, others, strict=True)])
