"""Several trials at once have the results of one after another; a process that dies costs one."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psutil
import pytest

from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.coordinator.trackers.base import Row, TrackedRun
from edgefed.errors import StorageError, UsageError
from edgefed.process.lock import is_locked
from edgefed.simulator.backend import place
from edgefed.simulator.forked_autograd import forks_can_train
from edgefed.simulator.sweep import trials
from edgefed.simulator.sweep.results import Results, error_file
from edgefed.simulator.sweep.trials import TrialStep, run_trials
from tests.processes import PATIENCE, wait_until_ended
from tests.run_fixture import Ticking
from tests.simulator.sweep.sweeps import GRID, RECIPE, Swept, planned, write

pytestmark = pytest.mark.forks

pytest.importorskip("sklearn", reason="the digits are not installed")

SLOW, FAST = "learning_rate=0.05", "learning_rate=0.5"


class Writing:
    """A tracker that appends what it hears, and the process that it is in, to a file of the run.

    A run whose case is held waits in its first round.
    """

    name = "writing"

    def __init__(self, folder: Path, hold: str = "") -> None:
        self._folder = folder
        self._hold = hold
        self._file = folder

    def begin(self, run: TrackedRun) -> None:
        assert run.trial is not None
        self._folder.mkdir(exist_ok=True)
        self._file = self._folder / run.id
        trial = run.trial
        names = [trial.sweep, trial.case, trial.seed, dict(trial.settings), trial.digest]
        self._write([os.getpid(), run.title, *names])

    def round(self, row: Row) -> None:
        self._write([row["round"]])
        held = json.loads(self._file.read_text().splitlines()[0])[3] == self._hold
        while held:
            time.sleep(0.01)

    def end(self, record: RunRecord) -> None:
        self._write([record.status])

    def _write(self, words: list[Any]) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps(words) + "\n")


def heard(folder: Path) -> dict[str, list[Any]]:
    files = folder.iterdir() if folder.exists() else ()
    return {
        file.name: [json.loads(line) for line in file.read_text().splitlines()] for file in files
    }


@pytest.fixture(autouse=True)
def _forks() -> None:
    if not forks_can_train():  # other tests of this process may have started autograd's threads
        pytest.skip("autograd has threads in this process")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "sweep", GRID)


def test_several_at_once_have_the_results_of_one_after_another(file: Path, tmp_path: Path) -> None:
    plan = planned(file)
    alone, two = Swept(tmp_path / "alone-results"), Swept(tmp_path / "two-results")
    first = alone.run(plan, trackers=[Writing(tmp_path / "first")])
    second = two.run(plan, jobs=2, trackers=[Writing(tmp_path / "second")])
    assert two.told("begun") == alone.told("begun") == [(SLOW, 1), (FAST, 1), (SLOW, 2), (FAST, 2)]
    assert sorted(two.told("done")) == sorted(alone.told("done"))
    assert second.failures == {}
    digests = {digest: result.weights_digest for digest, result in second.results.items()}
    assert digests == {digest: result.weights_digest for digest, result in first.results.items()}
    rounds = [step.round for step in two.steps if (step.number, step.state) == (1, "round")]
    assert rounds == [1, 2]
    assert {path.name for path in two.folder.iterdir()} == {"lock", "results", "runs"}
    in_one, in_two = heard(tmp_path / "first"), heard(tmp_path / "second")
    assert in_one.keys() == in_two.keys() == digests.keys()
    assert {lines[0][0] for lines in in_one.values()} == {os.getpid()}
    assert len({lines[0][0] for lines in in_two.values()} | {os.getpid()}) == 5
    for trial in plan.trials():
        (_, title, *names), *rest = in_two[trial.digest]
        assert title == f"{trial.case.name} seed {trial.seed}"
        settings = dict(trial.case.settings)
        assert names == ["two", trial.case.name, trial.seed, settings, trial.digest]
        assert rest == [[1], [2], ["finished"]]


def test_equal_cases_are_run_once(tmp_path: Path) -> None:
    cases = '[[cases]]\nname = "one"\n[[cases]]\nname = "other"\ntraining.learning_rate = 0.05\n'
    text = f'recipe = "recipe.toml"\nseeds = [1]\n{cases}'
    swept = Swept(tmp_path / "out")
    recipe = f"{RECIPE}[training]\nlearning_rate = 0.05\n"
    outcome = swept.run(planned(write(tmp_path / "sweep", text, recipe)), jobs=2)
    assert (swept.told("done"), swept.told("known")) == ([("one", 1)], [("other", 1)])
    assert len(outcome.results) == 1


def acting(
    swept: Swept, folder: Path, digest: str, act: Callable[[int], None]
) -> Callable[[TrialStep], None]:
    """Return a listener that acts on the process of a held trial once the other one is done."""

    def tell(step: TrialStep) -> None:
        swept.steps.append(step)
        if step.state == "done":
            until = time.monotonic() + PATIENCE
            while len(heard(folder).get(digest, ())) < 2:
                assert time.monotonic() < until, "the other trial did not begin"
                time.sleep(0.01)
            act(heard(folder)[digest][0][0])

    return tell


def test_a_killed_process_costs_its_trial_alone(file: Path, tmp_path: Path) -> None:
    plan, swept, folder = planned(file, seeds=(1,)), Swept(tmp_path / "out"), tmp_path / "heard"
    digest = next(plan.trials()).digest
    tell = acting(swept, folder, digest, lambda pid: os.kill(pid, signal.SIGKILL))
    tracker = Writing(folder, hold=SLOW)
    outcome = run_trials(plan, swept.folder, Ticking(), tell=tell, jobs=2, trackers=[tracker])
    reason = "its process was killed, as the system does when memory runs out"
    assert outcome.failures == {digest: reason}
    assert (swept.folder / error_file(digest)).read_text() == f"{reason}\n"
    assert (swept.told("done"), swept.told("failed")) == ([(FAST, 1)], [(SLOW, 1)])
    assert swept.steps[-1].reason == reason
    assert not Results(swept.folder).work.exists()
    again = swept.run(plan, jobs=2)
    assert (swept.told("known"), swept.told("done")) == ([(FAST, 1)], [(SLOW, 1)])
    assert len(again.results) == 2


def test_an_interrupted_sweep_leaves_no_run_at_work(file: Path, tmp_path: Path) -> None:
    plan, swept, folder = planned(file, seeds=(1,)), Swept(tmp_path / "out"), tmp_path / "heard"

    def interrupt(pid: int) -> None:
        assert psutil.pid_exists(pid)
        raise KeyboardInterrupt

    digest = next(plan.trials()).digest
    tell, tracker = acting(swept, folder, digest, interrupt), Writing(folder, hold=SLOW)
    with pytest.raises(KeyboardInterrupt):
        run_trials(plan, swept.folder, Ticking(), tell=tell, jobs=2, trackers=[tracker])
    assert not psutil.pid_exists(heard(folder)[digest][0][0])
    assert not is_locked(swept.folder)
    swept.run(plan)
    assert (swept.told("known"), swept.told("done")) == ([(FAST, 1)], [(SLOW, 1)])


def test_a_killed_sweep_leaves_no_run_at_work(file: Path, tmp_path: Path) -> None:
    plan, swept, folder = planned(file, seeds=(1,)), Swept(tmp_path / "out"), tmp_path / "heard"
    held, other = (trial.digest for trial in plan.trials())
    more = {"jobs": 2, "trackers": [Writing(folder, hold=SLOW)]}
    sweep = get_context("fork").Process(target=swept.run, args=(plan,), kwargs=more)
    sweep.start()
    until = time.monotonic() + PATIENCE
    while (
        len(heard(folder).get(held, ())) < 2
        or not (swept.folder / f"results/{other}.json").exists()
    ):
        assert time.monotonic() < until, "no run began"
        time.sleep(0.01)
    at_work = psutil.Process(heard(folder)[held][0][0])
    sweep.kill()
    sweep.join()
    wait_until_ended([at_work])
    swept.run(plan, jobs=2)
    assert (swept.told("known"), swept.told("done")) == ([(FAST, 1)], [(SLOW, 1)])


def test_a_trial_that_fails_has_the_same_reason_in_a_process(tmp_path: Path) -> None:
    cases = '[[cases]]\nname = "good"\n[[cases]]\nname = "bad"\nsimulation.devices = 1000\n'
    plan = planned(write(tmp_path / "sweep", f'recipe = "recipe.toml"\nseeds = [1]\n{cases}'))
    alone, two = Swept(tmp_path / "alone"), Swept(tmp_path / "two")
    outcome = two.run(plan, jobs=2)
    assert (two.told("done"), two.told("failed")) == ([("good", 1)], [("bad", 1)])
    assert outcome.failures == alone.run(plan).failures


FORWARD = """
from torch import nn
from pathlib import Path


class Net(nn.Linear):
    def forward(self, inputs):
        if self.training and Path("broken").exists():
            raise ValueError("no step")
        return super().forward(inputs.flatten(1))


def net(shape, classes):
    return Net(64, classes)
"""


def test_the_traceback_of_a_device_is_kept_until_the_run_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing_net.py").write_text(FORWARD)
    (tmp_path / "broken").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    recipe = RECIPE.replace('name = "mlp"\nhidden = [16]', 'name = "failing_net:net"')
    recipe = recipe.replace("workers = 1", "workers = 2")
    text = 'recipe = "recipe.toml"\nseeds = [1, 2]\n'
    plan, swept = planned(write(tmp_path / "sweep", text, recipe)), Swept(tmp_path / "out")
    outcome = swept.run(plan, jobs=2)
    for digest, reason in outcome.failures.items():
        text = (swept.folder / error_file(digest)).read_text()
        assert text.startswith(f"{reason}\n\nTraceback ")
        assert 'raise ValueError("no step")\nValueError: no step\n' in text
    (tmp_path / "broken").unlink()
    assert len(outcome.failures) == len(swept.run(plan, jobs=2).results) == 2
    for digest in outcome.failures:
        files = {path.name for path in (swept.folder / error_file(digest)).parent.iterdir()}
        assert "error.txt" not in files
        assert "metrics.csv" in files


def test_a_disk_that_takes_no_results_ends_the_sweep(file: Path, tmp_path: Path) -> None:
    swept = Swept(tmp_path / "out")
    swept.folder.mkdir()
    (swept.folder / "results").write_text("in the way")
    with pytest.raises(StorageError, match="results"):
        swept.run(planned(file), jobs=2)
    assert swept.told("begun") == [(SLOW, 1), (FAST, 1)]


def test_trials_share_the_cores_unless_the_recipe_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "core_count", lambda: 5)
    cases = '[[cases]]\nname = "shared"\n[[cases]]\nname = "own"\nsimulation.workers = 3\n'
    recipe = RECIPE.replace("devices = 2\nworkers = 1", "devices = 4")
    file = write(tmp_path / "sweep", f'recipe = "recipe.toml"\nseeds = [1]\n{cases}', recipe)
    plan = planned(file)
    # The number of workers is not part of the digest, so each case has a folder of its own.
    for case, workers in zip(plan.cases, (2, 3), strict=True):
        pair = replace(plan, cases=(case,), seeds=(1, 2))
        swept = Swept(tmp_path / case.name)
        outcome = swept.run(pair, jobs=9)
        assert len(outcome.results) == 2
        for result in outcome.results.values():
            events = (swept.folder / result.folder / "events.jsonl").read_text()
            assert f"trains in {workers} worker processes" in events


def test_a_cluster_has_one_job() -> None:
    with pytest.raises(UsageError, match="one run at a time"), place("ray", "", [], 2):
        pass
