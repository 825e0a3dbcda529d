"""Run simulations and look into them; every finished one is a line in a file."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.expert_study.device_tests import Private
from edgefed.algorithms.base import State
from edgefed.clock import SystemClock
from edgefed.config.recipe import Recipe
from edgefed.data.types import Shard
from edgefed.errors import EdgeFedError
from edgefed.events.model import Event
from edgefed.simulator.executors import Order, Sequential
from edgefed.simulator.local_fleet import device_names
from edgefed.simulator.run import Simulation
from edgefed.simulator.sweep.plan import trial_digest
from edgefed.worker.outcome import Outcome


class Observed:
    """Does the devices' work one after another, and remembers what devices keep to themselves.

    Attributes:
        shards: the data of each device that trains.
        private: what a device's last answer left on it.
    """

    def __init__(self, shards: Sequence[Shard]) -> None:
        names = device_names(len(shards))
        self.shards = dict(zip(names, shards, strict=True))
        self.private: dict[str, Private] = {}
        self._names = names
        self._inner = Sequential(shards)

    def outcomes(
        self, orders: Sequence[Order], read: Callable[[str], bytes], stop: Callable[[], bool]
    ) -> Iterator[tuple[Order, Outcome]]:
        """Yield outcomes as they come."""
        for order, outcome in self._inner.outcomes(orders, read, stop):
            if outcome.status == "ok" and order.task.question != "evaluate":
                self.private[self._names[order.device]] = outcome.private
            yield order, outcome

    def close(self) -> None:
        """Nothing was started."""


Look = Callable[[int, State, Observed], dict[str, Any]]
"""Given a round, the state after it and the devices, returns what is noted of it."""


@dataclass(frozen=True)
class Runner:
    """Does runs that are not done yet.

    Attributes:
        folder: of ``runs.jsonl``.
        tell: whether a line is printed for each run.
    """

    folder: Path
    tell: bool

    def line(self, case: str, recipe: Recipe, look: Look) -> dict[str, Any]:
        """Return what is known of a run, which is done if it is not there.

        Args:
            case: what it is called in the file.
            recipe: of the run.
            look: looks at every round; what has no keys is not kept.
        """
        key = trial_digest(recipe)
        known = self._known()
        if key not in known:
            known[key] = {"key": key, "case": case, "seed": recipe.seed} | self._run(
                key, recipe, look
            )
            with (self.folder / "runs.jsonl").open("a") as file:
                file.write(json.dumps(known[key]) + "\n")
            if self.tell:
                line = known[key]
                last = line["notes"][-1] if line["notes"] else {}
                print(f"  {case}; seed {recipe.seed}; {line['ended']}; {last}", flush=True)
        return known[key]

    def _run(self, key: str, recipe: Recipe, look: Look) -> dict[str, Any]:
        """Return what came of a run."""
        begun, folder = time.process_time(), self.folder / "work" / key
        shutil.rmtree(folder, ignore_errors=True)
        notes: list[dict[str, Any]] = []
        moved: list[int] = []
        try:
            devices: list[Observed] = []

            def executors(shards: Sequence[Shard], *_: Any) -> tuple[Observed, str]:
                devices.append(Observed(shards))
                return devices[0], ""

            simulation = Simulation(recipe, folder, SystemClock(), executors=executors)
            (run,) = simulation.store.runs()

            def hear(event: Event, _: int) -> None:
                if event.kind != "scored":
                    return
                moved.append(event.fields["sent"] + event.fields["received"])
                checkpoint = simulation.store.checkpoint(run.run)
                assert checkpoint is not None
                found = look(event.fields["round"], checkpoint.state, devices[0])
                if found:
                    notes.append({"round": event.fields["round"], **found})

            simulation.journal.listen(hear)
            record = simulation.run().record
            ended = record.status if record.status == "finished" else record.reason
        except EdgeFedError as error:
            ended = error.message
        shutil.rmtree(folder, ignore_errors=True)
        seconds = round(time.process_time() - begun, 1)
        rounds = moved[:-1] or moved  # in the last one, devices also test
        traffic = sum(rounds) / max(1, len(rounds))
        return {"ended": ended, "notes": notes, "traffic": traffic, "seconds": seconds}

    def _known(self) -> dict[str, dict[str, Any]]:
        """Return the lines of finished runs; a line that a kill cut off is left out."""
        path = self.folder / "runs.jsonl"
        self.folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            return {}
        whole = path.read_text().rpartition("\n")[0]
        path.write_text(whole + "\n" if whole else "")
        return {line["key"]: line for line in map(json.loads, whole.splitlines())}


def mean_of(line: Mapping[str, Any], mode: str) -> float | None:
    """Return the mean over a run's notes of a mode; None where there is none."""
    found = [note[mode] for note in line["notes"] if note.get(mode) is not None]
    return sum(found) / len(found) if found and line["ended"] == "finished" else None
