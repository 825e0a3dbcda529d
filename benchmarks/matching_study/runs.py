"""Run simulations; what came of a finished one is a file, and the run is not repeated."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefed.algorithms.registry import make
from edgefed.clock import SystemClock
from edgefed.config.recipe import Recipe
from edgefed.errors import EdgeFedError
from edgefed.events.matching_table import matching_json
from edgefed.events.method_tables import TableView
from edgefed.events.model import Event
from edgefed.simulator.run import Simulation


@dataclass(frozen=True)
class Runner:
    """Does runs that are not done yet.

    Attributes:
        folder: of the files.
        tell: whether a line is printed for each run.
        lacking: whether runs that are not done are left out rather than done.
    """

    folder: Path
    tell: bool
    lacking: bool = False

    def run(self, words: str, keys: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return what came of a run: its rounds, how it ended, and seconds of CPU time.

        Args:
            words: what it is called in its file.
            keys: of the recipe. Their digest names the file, so other defaults of the product do
                not make a run a new one: remove its file.
        """
        recipe, key = Recipe.model_validate(keys), digest(keys)
        path = self.folder / "runs" / f"{key}.json"
        if not path.exists():
            if self.lacking:
                return None
            found = {"case": words, "seed": recipe.seed, **self._done(key, recipe)}
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            part.write_text(json.dumps(found))
            part.replace(path)
            if self.tell:
                last = found["rounds"][-1] if found["rounds"] else {}
                print(
                    f"  {words}; seed {recipe.seed}; {found['ended']};"
                    f" {last.get('accuracy')}; {found['seconds']} s",
                    flush=True,
                )
        known: dict[str, Any] = json.loads(path.read_text())
        return known

    def _done(self, key: str, recipe: Recipe) -> dict[str, Any]:
        begun, folder = time.process_time(), self.folder / "work" / key
        shutil.rmtree(folder, ignore_errors=True)
        rounds: list[dict[str, Any]] = []
        algorithm = make(recipe)
        try:
            simulation = Simulation(recipe, folder, SystemClock())
            (run,) = simulation.store.runs()

            def hear(event: Event, _: int) -> None:
                if event.kind != "scored":
                    return
                row = {key: event.fields[key] for key in ("round", "accuracy", "sent", "received")}
                checkpoint = simulation.store.checkpoint(run.run)
                assert checkpoint is not None
                for table in algorithm.view(checkpoint.state):
                    row["report"] = matching_json(
                        TableView(table=table, round=table.round or 0), {}
                    )
                rounds.append(row)

            simulation.journal.listen(hear)
            record = simulation.run().record
            ended = record.status if record.status == "finished" else record.reason
        except EdgeFedError as error:
            ended = error.message
        shutil.rmtree(folder, ignore_errors=True)
        return {
            "rounds": rounds,
            "ended": ended,
            "seconds": round(time.process_time() - begun, 1),
        }


def digest(keys: Mapping[str, Any]) -> str:
    """Return the digest of a recipe's keys, in which the data file counts without its folder."""
    data = {**keys["data"], "path": Path(keys["data"]["path"]).name}
    text = json.dumps({**keys, "data": data}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]
