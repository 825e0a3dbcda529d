"""A killed or interrupted table resumes with the same command and the same result."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.processes import PATIENCE, edgefed, outcome

pytest.importorskip("sklearn", reason="the digits are not installed")

TABLE = "fedma-table1"


def reproduce(out: Path) -> subprocess.Popen[str]:
    words = ("reproduce", TABLE, "--out", str(out), "--json")
    return edgefed("--state", str(out.parent / "state"), *words)


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
def test_the_same_command_goes_on(number: signal.Signals, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = reproduce(out)
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
    code, text, error = outcome(reproduce(out))
    assert code == 0, error
    assert error.count("done before") == before
    code, straight, error = outcome(reproduce(tmp_path / "straight"))
    assert code == 0, error
    assert told(text) == told(straight)
