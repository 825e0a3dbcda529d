"""A simulation with a folder of its own goes on after a kill, with the same bits."""

from __future__ import annotations

import functools
import json
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

import edgefed
from edgefed.algorithms.interface.member import Member
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.errors import EdgeFedError
from edgefed.learn.base.types import Tensors
from edgefed.process.clock import SystemClock
from edgefed.process.lock import FolderLock
from edgefed.simulator.device_states import SharedTask, VirtualDevice
from edgefed.simulator.run import Simulation
from edgefed.wire.messages import BlobRef
from edgefed.worker.outcomes import Outcome, make_reply
from tests.cli import commands
from tests.processes import clean_environment
from tests.programs.forked_programs import ForkedProgram, ended
from tests.simulator.killed_simulation import SMALL, outcome, recipe
from tests.simulator.work import task

PROGRAM = "tests.simulator.killed_simulation"
SAID_FIRST = "trains one device"


def run(method: str, folder: Path, kill_at: int = 0, seed: int = 1) -> tuple[list[str], Any]:
    """Run the program; return the notes and, if it was not killed, the outcome."""
    words = [PROGRAM, method, str(seed), str(folder), str(kill_at)]
    done = ended(words, clean_environment())
    lines = done.stdout.splitlines()
    assert done.returncode == (-9 if kill_at else 0), done.stderr
    return (lines, None) if kill_at else (lines[:-1], json.loads(lines[-1]))


@functools.cache
def straight(method: str) -> dict[str, Any]:
    """Return the outcome of a run that nothing kills."""
    with TemporaryDirectory() as folder:
        return outcome(method, 1, Path(folder))


@pytest.fixture(scope="module")
def killed_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a killed run, for all tests that go on with a copy."""
    folder = tmp_path_factory.mktemp("killed")
    run("feedback", folder, kill_at=60)
    return folder


@pytest.fixture
def killed(killed_once: Path, tmp_path: Path) -> Path:
    return shutil.copytree(killed_once, tmp_path / "killed")


def run_folder(folder: Path) -> Path:
    (made,) = (folder / "runs").glob("r-*")
    return made


def test_a_run_that_was_killed_twice_ends_in_the_same_bits(killed: Path) -> None:
    again, _ = run("feedback", killed, kill_at=75)
    last, found = run("feedback", killed)
    rounds = [int(line.split()[3]) for line in (*again, *last) if line.startswith("resumed at")]
    assert len(rounds) == 2
    assert 1 < rounds[0] < rounds[1]
    assert found == straight("feedback")
    assert not (run_folder(killed) / "work").exists()
    lines = (run_folder(killed) / "events.jsonl").read_text().splitlines()
    scored = [event["round"] for event in map(json.loads, lines) if event["kind"] == "round"]
    assert scored == list(range(1, len(found["rows"]) + 1))


@pytest.mark.slow
def test_a_run_that_is_killed_at_any_moments_ends_in_the_same_bits(tmp_path: Path) -> None:
    """They are within writes too, not only between two events."""
    folder, begun = tmp_path / "killed", time.monotonic()
    whole = outcome("buffered", 1, tmp_path / "straight")
    took = time.monotonic() - begun
    draws, notes = random.Random(7), list[str]()
    for number in range(2):
        log = tmp_path / f"log-{number}"
        words = [PROGRAM, "buffered", "1", str(folder), "0"]
        program = ForkedProgram(words, clean_environment(), log)
        while program.poll() is None and not (log.exists() and SAID_FIRST in log.read_text()):
            time.sleep(0.002)
        time.sleep(draws.uniform(0.15, 0.4) * took)
        program.kill()
        program.wait()
        notes += log.read_text().splitlines()
    last, found = run("buffered", folder)
    assert found == whole
    assert sum(note.startswith("resumed at") for note in (*notes, *last)) > 0


def test_only_the_devices_that_were_asked_are_written(tmp_path: Path) -> None:
    run("scaffold", tmp_path, kill_at=24)  # in round 2, of two devices each
    with sqlite3.connect(run_folder(tmp_path) / "work" / "checkpoint.db") as database:
        assert database.execute("select count(*) from devices").fetchone() == (2,)


def test_devices_and_tasks_come_back_as_they_were() -> None:
    arrays: Tensors = {"a": np.arange(3.0)}
    ref = BlobRef(digest="0" * 64, size=1)
    device = VirtualDevice(3, Member("device-03", 10, (6,), 3))
    device.keep("r-1-0", Outcome("ok", private={"f": arrays}, device_state={"s": arrays}))
    device.held, device.free_at = {ref.digest}, 2.5
    again = VirtualDevice(3, device.member)
    again.restore(device.to_bytes())
    assert again.to_bytes() == device.to_bytes()
    assert (again.held, again.free_at) == (device.held, device.free_at)
    assert again.kept.private["f"]["a"].tolist() == [0.0, 1.0, 2.0]
    reply, beside = make_reply(
        task(3, ref), Outcome("ok", blobs={"delta": bytes(100_000)}), "0" * 8
    )
    delivered = Delivered(reply, beside.__getitem__, 1.5, 7, 0.5, 0.25)
    shared = SharedTask(task(3, ref), 1.0, 61.0, True, (4.0, delivered), read=True)
    other = SharedTask(shared.task, 9.0, 99.0).restored(shared.times(), shared.reply_bytes())
    assert other.times() == shared.times()
    assert other.waits
    assert other.arrival is not None
    _, found = other.arrival
    assert replace(found, read=delivered.read) == delivered
    assert [found.read(digest) for digest in beside] == [bytes(100_000)]


def failure(folder: Path, chosen: Recipe, **how: Any) -> EdgeFedError:
    with pytest.raises(EdgeFedError) as caught:
        Simulation(chosen, folder, SystemClock(), goes_on=True, **how)
    assert caught.value.hint
    return caught.value


def test_the_folder_of_another_run_is_refused_and_kept(
    killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = killed
    same = recipe("feedback", 1)
    tables = {"seed": 2, "training": {**same.training.model_dump(), "learning_rate": 0.5}}
    error = failure(folder, Recipe.model_validate({**same.model_dump(), **tables}))
    assert error.code == "out.recipe"
    assert "differs in seed, training.learning_rate" in error.message
    with monkeypatch.context() as patch:
        patch.setattr("edgefed.algorithms.composed.recipe_versions.VERSION", "99.0")
        error = failure(folder, same)
    assert error.code == "out.code"
    assert "code changed since" in error.message
    digest = run_folder(folder) / "data.sha256"
    before = digest.read_text()
    digest.write_text("0" * 64)
    assert failure(folder, same).code == "out.data"
    digest.write_text(before)
    lock = FolderLock(folder, "a simulation", "--out")
    error = failure(folder, same)
    lock.release()
    assert error.code == "state.locked"
    assert "--out" in error.hint
    assert run("feedback", folder)[1] == straight("feedback")


@pytest.mark.parametrize(
    ("pattern", "damage", "code"),
    [
        ("runs/r-*/*/checkpoint.db", "update parts set value = x'90'", "storage.damaged"),
        ("runs/r-*/*/checkpoint.db", "delete from devices", "storage.damaged"),
        ("edgefed.db", "update runs set record = replace(record, 'r', 's')", "storage.damaged"),
        ("runs/r-*/state-*.safetensors", "", "run.checkpoint"),
        ("runs/r-*/*/blobs/*", "", "storage.damaged"),
    ],
)
def test_a_damaged_checkpoint_is_refused_and_kept(
    pattern: str, damage: str, code: str, killed: Path
) -> None:
    folder = killed
    for path in folder.glob(pattern):
        if damage:
            with sqlite3.connect(path) as database:
                database.execute(damage)
        else:
            path.write_bytes(path.read_bytes()[:-1] + b"?")
    error = failure(folder, recipe("feedback", 1))
    assert error.code == code
    assert (run_folder(folder) / "work" / "checkpoint.db").exists()


@pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no unshare here")
def test_a_run_that_is_killed_while_its_disk_is_full_goes_on(tmp_path: Path) -> None:
    alone = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=8m tmpfs {disk}"
    if subprocess.run([*alone, mount], capture_output=True, check=False).returncode:
        pytest.skip("a process may not mount a disk of its own here")
    program = f"{sys.executable} -m {PROGRAM} feedback 1 {disk}/out"
    script = f"{mount}; {program} -1; cp -r {disk}/out {tmp_path}/out"
    done = subprocess.run(
        [*alone, script], capture_output=True, text=True, check=False, env=clean_environment()
    )
    assert "disk is full" in done.stdout, done
    notes, found = run("feedback", tmp_path / "out")
    assert any(note.startswith("resumed at") for note in notes)
    assert found == straight("feedback")


def stopped(number: int) -> Callable[[edgefed.RoundResult], None]:
    """Return a callback that interrupts the run after a round, as Ctrl-C does."""

    def callback(result: edgefed.RoundResult) -> None:
        if result.number == number:
            raise KeyboardInterrupt

    return callback


def test_a_call_goes_on_after_ctrl_c_and_returns_a_finished_run_again(tmp_path: Path) -> None:
    straight = edgefed.simulate(SMALL)
    with pytest.raises(KeyboardInterrupt):
        edgefed.simulate(SMALL, out=tmp_path, callbacks=stopped(3))
    ended_run = edgefed.simulate(SMALL, out=tmp_path)
    rows = [row["accuracy"] for row in ended_run.rounds]
    assert rows == [row["accuracy"] for row in straight.rounds]
    assert ended_run.weights_digest == straight.weights_digest
    with pytest.raises(EdgeFedError, match="out is the folder of one run"):
        edgefed.simulate(SMALL, out=tmp_path, folder=tmp_path)
    again = edgefed.simulate(SMALL, out=tmp_path, callbacks=stopped(1))
    assert again.to_json() == ended_run.to_json()
    assert again.rounds == ended_run.rounds


def test_the_command_takes_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text("[model]\nname = 'mlp'\nhidden = [6]\n[data]\nlimit = 100\n")
    words = ("sim", "run", path, "--rounds", "1", "--devices", "2", "--out", tmp_path / "out")
    made = commands.edgefed("--quiet", *words, "--json", state=tmp_path)
    assert made.code == 0, made
    again = commands.edgefed(*words, "--json", state=tmp_path)
    assert again.json == made.json
    assert "has finished before" in again.err
