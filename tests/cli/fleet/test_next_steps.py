"""The next steps that a demo prints at its end are commands that work as they are.

Through Mosquitto it ends in the bits of a simulation, as ``test_same_bits`` shows for the embedded
broker.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from edgefed.prediction.load import load_model
from tests.cli.commands import TINY, edgefed, recipe_file
from tests.cli.runs.test_replay import shown
from tests.cli.test_ending import read_until
from tests.processes import edgefed as start_edgefed
from tests.processes import outcome

pytestmark = pytest.mark.mosquitto


def start_demo(folder: Path, rounds: int, devices: int = 2) -> subprocess.Popen[str]:
    recipe = recipe_file(folder, TINY.replace("devices = 2", f"devices = {devices}"))
    own = ("--recipe", str(recipe), "--headless", "--rounds", str(rounds))
    return start_edgefed("--state", str(folder), "demo", *own)


def steps_of(err: str) -> dict[str, list[str]]:
    """Return the words of each command by its purpose; the program itself is left out."""
    lines = err.partition("Next steps:\n")[2].partition("\n\n")[0].splitlines()
    pairs = (line.strip().split("  ", 1) for line in lines)
    return {purpose: shlex.split(command.strip())[1:] for purpose, command in pairs}


def check_steps(steps: dict[str, list[str]], state: Path) -> None:
    """Run each of the commands, the demo without starting it."""
    assert list(steps) == ["predict", "replay", "start another"]
    told = edgefed(*steps["predict"])
    assert told.code == 0, told
    assert told.out.splitlines()[-1].startswith("accuracy ")
    with shown(state, *steps["replay"]) as terminal:
        terminal.wait_for("REPLAY")
        assert terminal.close() == 0
    assert edgefed(*steps["start another"], "--dry-run").code == 0


def test_a_demo_that_has_finished(tmp_path: Path) -> None:
    code, out, err = outcome(start_demo(tmp_path, 2))
    assert code == 0, err
    assert f"model     {tmp_path}/demo/0001/" in out
    check_steps(steps_of(err), tmp_path)
    (model,) = tmp_path.rglob("model.safetensors")
    recipe = model.with_name("recipe.toml")
    virtual = edgefed("sim", "run", recipe, "--json", state=tmp_path / "same").json
    assert load_model(model).description.weights_digest == virtual["weights_digest"]


def test_a_demo_that_was_aborted(tmp_path: Path) -> None:
    process = start_demo(tmp_path, 100_000, devices=1)
    (began, *_) = read_until(process, "round 2/")
    url = re.findall(r"mqtt://\S+\d", began)[0]
    run = edgefed("--broker", url, "--fleet", "demo", "status", "--json").json["run"]["run"]
    assert edgefed("--broker", url, "--fleet", "demo", "run", "abort", "--yes").code == 0
    code, out, err = outcome(process)
    assert (code, out) == (1, "")
    error, hint = err.splitlines()[-2:]
    assert error.endswith("aborted: by the operator.  [run.aborted]")
    told = edgefed(*shlex.split(hint.strip().removeprefix("try: "))[1:])
    assert told.out.split()[:2] == ["run", run]
    steps = steps_of(err)
    check_steps(steps, tmp_path)
    shard = steps["predict"][-1]
    edgefed("predict", "latest", shard, state=tmp_path).failed(2, "model.unfinished", run)
    assert edgefed("predict", "latest", shard, "--unfinished", state=tmp_path).code == 0
