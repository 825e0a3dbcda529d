"""Kills of agents, of the coordinator and of its backups, in one fleet of real processes."""

from __future__ import annotations

import hashlib
import random
import shutil
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

from benchmarks.chaos.methods import undisturbed
from benchmarks.chaos.training_record import trainings
from benchmarks.power_loss.kills import Outcome, cut_power, seconds_until
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.backups.archive import extract, read_manifest
from edgefed.coordinator.storage.run_store import Store
from edgefed.simulator.local_fleet import device_names
from tests.agent.models.test_rollouts import (
    current,
    ended,
    inference_program,
    outcomes,
    roll_out,
    status,
)
from tests.faults.fleet_processes import FLEET, FleetProcesses, wait_until
from tests.processes import clean_environment
from tests.programs.forked_programs import ForkedProgram
from tests.programs.recording_agent import VARIABLE as TRAININGS

DEVICES = device_names(3)
COORDINATOR = "coordinator"
ROUNDS = 12
ENDED = ("finished", "failed", "aborted")
HOLDOUT = 0.2
BACKED_UP = 99
"""Number of the run that is restored, which keeps no state on devices: they are ahead of it."""


def recipe(number: int = 0) -> Recipe:
    """Return a run in which every device answers every exchange; others have other weights."""
    return Recipe.model_validate(
        {
            "name": "power-loss",
            "seed": 11,
            "model": {"name": "mlp", "hidden": [200, 200]},
            "data": {"name": "digits", "limit": 480},
            "training": {"batch_size": 8, "learning_rate": 0.01 + 1e-5 * number, "epochs": 30},
            "rounds": {
                "count": ROUNDS,
                "cohort": len(DEVICES),
                "deadline": 900,
                "lost_grace": "deadline",
                "quorum": 1.0,
                "min_devices": len(DEVICES),
                "retries": 100,
            },
            "evaluation": {"every": 0},
            "wire": {"downlink": "bf16", "uplink": "fp32" if number == BACKED_UP else "int8"},
            "simulation": {"devices": len(DEVICES), "holdout": HOLDOUT},
        }
    )


class Kills:
    """The activities of one fleet, one after another.

    Args:
        folder: of the fleet; it exists.
        rng: draws the moments.
    """

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self._rng = rng
        self._records = {device: folder / f"{device}.trainings" for device in DEVICES}
        self._home = FleetProcesses(
            folder,
            recipe(),
            settings={each: {"models": "auto", "model_tolerance": "1.0"} for each in DEVICES},
            variables={device: {TRAININGS: str(path)} for device, path in self._records.items()},
            agent="tests.programs.recording_agent",
            holdout=HOLDOUT,
        )
        self._state = folder / "state"
        self._own = self._state / COORDINATOR / FLEET
        self._archive = folder / "backup.tar"
        self._runs: list[str] = []
        self._digest = cache(
            lambda number: undisturbed(recipe(number), folder / f"run-{number}").weights_digest
        )

    def close(self) -> None:
        """End the fleet."""
        self._home.close()

    # -- runs ---------------------------------------------------------------------------------

    def agents(self, points: int, outcome: Outcome) -> None:
        """Kill agents that train."""

        def training(device: str, _: str) -> bool:
            lines = self._records[device].read_text().splitlines()
            return not lines[-1].startswith("kept")

        self._in_runs(points, outcome, lambda: self._rng.choice(DEVICES), training)
        for device, path in self._records.items():
            found = trainings(path.read_text().splitlines())
            outcome.check(not found.twice, f"{device} trained twice: {found.twice}")
            outcome.check(not found.given_up, f"{device} gave a training up")

    def coordinator(self, points: int, outcome: Outcome) -> None:
        """Kill a coordinator that commits rounds."""

        def committing(_: str, run: str) -> bool:
            with closing(Store(self._own)) as store:
                return store.run(run).status not in ENDED

        self._in_runs(points, outcome, lambda: COORDINATOR, committing)

    def _in_runs(
        self,
        points: int,
        outcome: Outcome,
        part: Callable[[], str],
        is_at_work: Callable[[str, str], bool],
    ) -> None:
        """Kill a part in each round, at any moment that a round without kills has."""
        span = self._timed_run(outcome) / ROUNDS
        number = 0
        while outcome.points < points and not outcome.losses:
            number += 1
            run, before = self._begin(number), -1
            while outcome.points < points and (before := self._next(run, before)) >= 0:
                killed = part()
                with suppress(AssertionError):  # the run has ended
                    seconds_until(partial(is_at_work, killed, run), 3.0)
                time.sleep(self._rng.uniform(0, span))
                self._home.kill(killed)
                outcome.add(is_at_work(killed, run))
                self._home.start(killed)
            self._check_run(run, number, outcome)

    def _timed_run(self, outcome: Outcome) -> float:
        run, began = self._begin(0), time.monotonic()
        self._home.finish(run)
        seconds = time.monotonic() - began
        self._check_run(run, 0, outcome)
        return seconds

    def _begin(self, number: int) -> str:
        self._home.wait_for_devices(len(DEVICES))
        return self._home.begin(recipe(number))

    def _next(self, run: str, before: int) -> int:
        """Wait for another exchange, and return its number; -1 once the run has ended."""
        row: dict[str, Any] = {}

        def there() -> bool:
            row.update(self._home.record(run))
            return row["status"] in ENDED or row["exchanges"] > before

        wait_until(there, f"an exchange of {run}", self._home.logs)
        return -1 if row["status"] in ENDED else int(row["exchanges"])

    def _check_run(self, run: str, number: int, outcome: Outcome) -> None:
        """Check that a run ends with each answer in it once, in the weights without kills."""
        row = self._home.finish(run)
        self._runs.append(run)
        outcome.check(row["status"] == "finished", f"{run} {row['status']}: {row['reason']}")
        replies = [each["replies"] for each in row["history"]]
        outcome.check(replies == [len(DEVICES)] * ROUNDS, f"{run} counted {replies}")
        same = row["weights_digest"] == self._digest(number)
        outcome.check(same, f"{run} ended in other weights")

    # -- models -------------------------------------------------------------------------------

    def models(self, points: int, outcome: Outcome) -> None:
        """Kill an agent that takes a model, while a program reads its current one."""
        home, device = self._home, DEVICES[0]
        while len(self._runs) < 2:
            self._check_run(self._begin(len(self._runs)), len(self._runs), outcome)
        home.wait_for_devices(len(DEVICES))
        with inference_program(home, device) as seen:
            roll_out(home, self._runs[0], 1.0)
            began = time.monotonic()
            outcomes(home, len(DEVICES))
            span = time.monotonic() - began
            for number in range(points):
                rollout = roll_out(home, self._runs[(number + 1) % 2], 1.0)
                time.sleep(self._rng.uniform(0, span))
                home.kill(device)
                outcome.add(device not in status(home)["answers"])
                home.start(device)
                ended(home)
                answers = outcomes(home, len(DEVICES))
                outcome.check(set(answers.values()) == {"installed"}, f"answers {answers}")
                found = [current(home, each) for each in DEVICES]
                same = {each["rollout"] for each in found} == {rollout}
                outcome.check(same, f"another model than of {rollout} is current")
                outcome.check(len({each["digest"] for each in found}) == 1, "models differ")
        outcome.check(len(dict.fromkeys(seen)) > points // 2, "the reader saw too few models")

    # -- backups ------------------------------------------------------------------------------

    def backups(self, points: int, outcome: Outcome) -> None:
        """Kill backups together with the coordinator, then restores."""
        run = self._begin(BACKED_UP)
        self._next(run, 1)
        span = self._timed("backup", outcome, kill_at=None)
        for _ in range(points - points // 2):
            self._timed("backup", outcome, kill_at=self._rng.uniform(0, span))
            extract(self._archive, self._home.folder / "whole")
            shutil.rmtree(self._home.folder / "whole")
            self._home.start(COORDINATOR)
            self._next(run, -1)
            self._timed("backup", outcome, kill_at=None)
        self._home.kill(COORDINATOR)
        span = self._timed("restore", outcome, kill_at=None)
        for number in range(points // 2):
            mark = self._own / f"mark-{number}"
            mark.touch()
            self._timed("restore", outcome, kill_at=self._rng.uniform(0, span))
            kept = [*self._state.glob(f"replaced/*/{COORDINATOR}/{FLEET}/{mark.name}"), mark]
            outcome.check(any(map(Path.exists, kept)), "the state before the restore is gone")
            self._timed("restore", outcome, kill_at=None)
            kept = [*self._state.glob(f"replaced/*/{COORDINATOR}/{FLEET}/{mark.name}")]
            outcome.check(len(kept) == 1, "the state before the restore was not kept")
            self._check_restored(outcome)
            shutil.rmtree(self._state / "replaced")
        self._home.start(COORDINATOR)
        self._check_run(run, BACKED_UP, outcome)

    def _timed(self, command: str, outcome: Outcome, *, kill_at: float | None) -> float:
        """Run a command; return the seconds in which its folder for unfinished files exists.

        Args:
            command: ``backup`` or ``restore``.
            outcome: of the activity.
            kill_at: so many seconds of that time, power is lost; None for never.
        """
        staging = self._own / "backup" if command == "backup" else self._state / ".restore"
        nobody = ["--broker", "mqtt://127.0.0.1:1"]  # nobody asks a running coordinator there
        common = ["--no-config", "--fleet", FLEET, "--state", str(self._state), *nobody]
        words = ["edgefed.cli.main", *common, command, str(self._archive)]
        words += ["--yes"] if command == "restore" else []
        log = self._home.folder / f"{command}.log"
        program = ForkedProgram(words, clean_environment(), log)
        left = staging / ("files" if command == "backup" else "archive")
        seconds_until(lambda: left.exists() or program.poll() is not None)
        if kill_at is not None:
            time.sleep(kill_at)
            hit = cut_power(program)
            if command == "backup":
                self._home.kill(COORDINATOR)
            outcome.add(hit and staging.exists())
            return kill_at
        spent = seconds_until(lambda: program.poll() is not None)
        outcome.check(program.wait() == 0, f"{command} failed: {log.read_text()[-500:]}")
        outcome.check(not staging.exists(), f"{command} left {staging}")
        return spent

    def _check_restored(self, outcome: Outcome) -> None:
        """Check that each file of the backup is in its place, but for renumbered databases."""
        listed = read_manifest(self._archive).files
        for name, file in listed.items():
            path = self._own / Path(name).relative_to(COORDINATOR)
            if path.suffix != ".db":
                found = hashlib.sha256(path.read_bytes()).hexdigest()
                outcome.check(found == file.sha256, f"{name} is not that of the backup")
        with closing(Store(self._own)) as store:
            for record in store.runs():
                outcome.check(store.check_checkpoint(record.run), f"{record.run} is damaged")
