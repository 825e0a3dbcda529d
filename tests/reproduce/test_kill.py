"""A killed or interrupted table resumes with the same command and the same result."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.forked_programs import run_module
from tests.processes import PATIENCE, edgefed, outcome

pytest.importorskip("sklearn", reason="the digits are not installed")

TABLE = "fedma-table1"


def reproduce(folder: Path) -> tuple[str, ...]:
    """Return the words of a table with its results in a folder."""
    words = ("reproduce", TABLE, "--seeds", "1", "--out", str(folder / "out"), "--json")
    return ("--state", str(folder / "state"), *words)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What a command that nothing interrupts tells."""
    words = reproduce(tmp_path_factory.mktemp("straight"))
    code, text, error = run_module("edgefed.cli.main", *words)
    assert code == 0, error
    return told(text)


def wait_for_work(process: subprocess.Popen[str], out: Path) -> None:
    """Return once one run has a result and the next is at work."""
    until = time.monotonic() + PATIENCE
    while not ([*out.glob("results/*.json")] and any(out.glob("work/runs/*/events.jsonl"))):
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < until, "no run began"
        time.sleep(0.005)


def told(text: str) -> list[Any]:
    """What does not depend on how long it took."""
    found = json.loads(text)
    cells = [(c["row"], c["accuracy"], c["bytes"]) for c in found["cells"]]
    return [cells, found["claims"]]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_the_same_command_goes_on(
    number: signal.Signals, tmp_path: Path, straight: list[Any]
) -> None:
    words, out = reproduce(tmp_path), tmp_path / "out"
    process = edgefed(*words)
    wait_for_work(process, out)
    process.send_signal(number)
    code, text, error = outcome(process)
    assert text == ""
    if number == signal.SIGINT:
        assert code == 130
        assert json.loads(error.splitlines()[-1])["error"]["code"] == "interrupted"
        assert "Traceback" not in error
    else:
        assert code == -signal.SIGKILL
    before = len([*out.glob("results/*.json")])
    assert 1 <= before < 6
    assert not (out / f"{TABLE}-smoke" / "table.json").exists()
    code, text, error = run_module("edgefed.cli.main", *words)
    assert code == 0, error
    assert error.count("done before") == before
    assert told(text) == straight
