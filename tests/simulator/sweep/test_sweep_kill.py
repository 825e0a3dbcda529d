"""A killed or interrupted sweep resumes with the same command and the same result."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.forked_programs import run_module
from tests.processes import PATIENCE, edgefed, outcome, wait_until_ended
from tests.simulator.sweep.sweeps import GRID, write

pytest.importorskip("sklearn", reason="the digits are not installed")


def sweep(folder: Path, *more: str) -> tuple[str, ...]:
    """Return the words of a sweep of six runs with its results in a folder."""
    file = write(folder / "sweep", GRID.replace("0.5]", "0.2, 0.5]"))
    state = ("--state", str(folder / "state"))
    return (*state, "sim", "sweep", str(file), "--out", str(folder / "out"), "--json", *more)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The scores of a sweep that nothing interrupts."""
    words = sweep(tmp_path_factory.mktemp("straight"))
    code, text, error = run_module("edgefed.cli.main", *words)
    assert code == 0, error
    return scores(text)


def finished(out: Path) -> list[str]:
    """The results on disk, each of which is whole."""
    paths = sorted((out / "results").glob("*.json"))
    return [json.loads(path.read_text())["digest"] for path in paths]


def wait_for_work(process: subprocess.Popen[str], out: Path) -> None:
    """Return once one run has a result and the next is at work."""
    until = time.monotonic() + PATIENCE
    while not (finished(out) and any(out.glob("work/*/runs/*/events.jsonl"))):
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < until, "no run began"
        time.sleep(0.005)


def scores(text: str) -> list[Any]:
    return [(case["case"], case["accuracy"], case["loss"]) for case in json.loads(text)["cases"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "jobs"),
    [
        (signal.SIGKILL, "1"),
        (signal.SIGKILL, "2"),
        (signal.SIGTERM, "2"),
        (signal.SIGINT, "1"),
        (signal.SIGINT, "2"),
    ],
    ids=["killed", "killed-two", "ended-two", "interrupted", "interrupted-two"],
)
def test_the_same_command_goes_on(
    number: signal.Signals, jobs: str, tmp_path: Path, straight: list[Any]
) -> None:
    words, out = sweep(tmp_path, "--jobs", jobs), tmp_path / "out"
    process = edgefed(*words)
    wait_for_work(process, out)
    at_work = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    code, told, error = outcome(process)
    assert told == ""
    wait_until_ended(at_work)
    if number == signal.SIGINT:
        assert code == 130
        assert json.loads(error.splitlines()[-1])["error"]["code"] == "interrupted"
    else:
        assert code == -number
    before = finished(out)
    assert 1 <= len(before) < 6
    stamps = {path: path.stat().st_mtime_ns for path in (out / "results").glob("*.json")}
    code, told, error = run_module("edgefed.cli.main", *words)
    assert code == 0, error
    assert error.count("done before") == len(before)
    assert len(finished(out)) == 6
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())
    assert scores(told) == straight
