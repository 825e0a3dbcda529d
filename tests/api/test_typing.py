"""A user's program is checked by ``mypy --strict``: right calls pass, and wrong ones do not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

RIGHT = """
import numpy as np

import edgefed


def stop(result: edgefed.RoundResult) -> bool:
    return result.metrics["loss"] > 0.1


def watch(result: edgefed.RoundResult) -> None:
    print(result.number)


arrays = np.zeros((9, 4)), np.arange(9) % 3
result: edgefed.Result = edgefed.simulate(
    {"rounds": {"count": 1}}, data={"a": arrays, "b": arrays}, callbacks=[stop, watch], seed=3
)
edgefed.simulate("recipe.toml", data=arrays, test=arrays, callbacks=stop, folder="runs")
edgefed.simulate(edgefed.Recipe(seed=2))
score: float = result.scores["accuracy"]
path: str = str(result.save("model.safetensors"))
model: edgefed.LoadedModel = edgefed.load_model(path)
model = result.model
"""

WRONG = {
    "result.score": 'has no attribute "score"',
    "edgefed.simulat({})": 'Module has no attribute "simulat"',
    "edgefed.simulate(5)": 'Argument 1 to "simulate"',
    "edgefed.simulate({}, on='moon')": 'Argument "on" to "simulate"',
    "edgefed.simulate({}, callbacks=len)": 'Argument "callbacks" to "simulate"',
    "result.weights_digest = ''": "is read-only",
}


@pytest.mark.slow
def test_a_strict_check_knows_the_types(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(RIGHT + "\n".join(WRONG) + "\n")
    told = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(program)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT)},
    )
    lines = [line for line in told.stdout.splitlines() if line.startswith("program.py:")]
    lines = [line for line in lines if "error:" in line]
    first = len(RIGHT.splitlines()) + 1
    for number, words in enumerate(WRONG.values()):
        here = [line for line in lines if line.startswith(f"program.py:{first + number}:")]
        assert any(words in line for line in here), told.stdout
    assert [line for line in lines if int(line.split(":")[1]) < first] == [], told.stdout
