"""A killed or interrupted sweep resumes with the same command and the same result."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.commands import edgefed
from tests.processes import PATIENCE, clean_environment, wait_until_ended
from tests.programs.forked_programs import ForkedProgram
from tests.simulator.sweep.sweeps import GRID, write

pytest.importorskip("sklearn", reason="the digits are not installed")

RUNS = 6


def sweep(folder: Path, *more: str) -> tuple[str, ...]:
    """Return the words of a sweep of six runs with its results in a folder."""
    grid = GRID.replace("[1, 2]", "[1, 2, 3]")
    file = write(folder / "sweep", grid)
    state = ("--state", str(folder / "state"))
    return (*state, "sim", "sweep", str(file), "--out", str(folder / "out"), "--json", *more)


def finished(out: Path) -> list[str]:
    """The results on disk, each of which is whole."""
    paths = sorted((out / "results").glob("*.json"))
    return [json.loads(path.read_text())["digest"] for path in paths]


def wait_for_work(program: ForkedProgram, out: Path, before: int) -> None:
    """Return once one more run has a result and the next is at work."""
    until = time.monotonic() + PATIENCE
    while not (len(finished(out)) > before and any(out.glob("work/*/runs/*/events.jsonl"))):
        assert program.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < until, "no run began"
        time.sleep(0.005)


def scores(text: str) -> list[Any]:
    return [(case["case"], case["accuracy"], case["loss"]) for case in json.loads(text)["cases"]]


@pytest.mark.slow
def test_the_same_command_goes_on(tmp_path: Path) -> None:
    """The same sweep is killed with two jobs, and then interrupted with one."""
    out, before = tmp_path / "out", 0
    stops = ((signal.SIGKILL, "2"), (signal.SIGINT, "1"))
    for place, (number, jobs) in enumerate(stops):
        stamps = {path: path.stat().st_mtime_ns for path in (out / "results").glob("*.json")}
        log, errors = tmp_path / f"log-{place}", tmp_path / f"errors-{place}"
        words = ["edgefed.cli.main", *sweep(tmp_path, "--jobs", jobs)]
        program = ForkedProgram(words, clean_environment(), log, errors)
        wait_for_work(program, out, before)
        at_work = psutil.Process(program.pid).children(recursive=True)
        os.kill(program.pid, number)
        code = program.wait(PATIENCE)
        assert log.read_text() == ""
        wait_until_ended(at_work)
        error = errors.read_text()
        if number == signal.SIGINT:
            assert code == 130
            assert json.loads(error.splitlines()[-1])["error"]["code"] == "interrupted"
        else:
            assert code == -number
        assert error.count("done before") == before
        assert before < len(finished(out)) < RUNS
        before = len(finished(out))
        assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())
    told = edgefed(*sweep(tmp_path))
    assert told.code == 0, told
    assert told.err.count("done before") == before
    assert len(finished(out)) == RUNS
    straight = tmp_path / "straight"
    straight.mkdir()
    assert scores(told.out) == scores(edgefed(*sweep(straight)).out)
