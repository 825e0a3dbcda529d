"""The next steps that a demo prints at its end are commands that work as they are.

The demo's coordinator and agents are forked; ``test_ending`` has demos that start programs. Through
Mosquitto it ends in the bits of a simulation, as ``test_same_bits`` shows for the embedded broker.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from edgefed.cli.fleet.demo import FLEET
from edgefed.config.values.address import Address
from edgefed.control.coordinator_client import CoordinatorClient
from edgefed.prediction.load import load_model
from tests.cli.commands import TINY, Told, edgefed, recipe_file
from tests.cli.runs.test_replay import shown
from tests.programs.forked_fleet import demo_here
from tests.transport.listening import wait_until

pytestmark = pytest.mark.mosquitto


def demo(
    folder: Path, rounds: int, devices: int, then: Callable[[Address], None] | None = None
) -> Told:
    recipe = recipe_file(folder, TINY.replace("devices = 2", f"devices = {devices}"))
    return demo_here(folder, "--recipe", str(recipe), "--rounds", str(rounds), then=then)


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
    ended = demo(tmp_path, 2, devices=2)
    assert ended.code == 0, ended
    assert f"model     {tmp_path}/demo/0001/" in ended.out
    check_steps(steps_of(ended.err), tmp_path)
    (model,) = tmp_path.rglob("model.safetensors")
    recipe = model.with_name("recipe.toml")
    virtual = edgefed("sim", "run", recipe, "--json", state=tmp_path / "same").json
    assert load_model(model).description.weights_digest == virtual["weights_digest"]


def at_work(client: CoordinatorClient) -> list[str]:
    """Return the runs that are in their second round, or a later one."""
    return [str(run["run"]) for run in client.ask("run.list") if run["round"] >= 2]


def test_a_demo_that_was_aborted(tmp_path: Path) -> None:
    aborted = []

    def abort(address: Address) -> None:
        with closing(CoordinatorClient(address, FLEET)) as client:
            client.connect()
            wait_until(lambda: bool(at_work(client)), "the second round")
            aborted.extend(at_work(client))
            client.order("run.order", run=aborted[0], action="abort")

    ended = demo(tmp_path, 10_000, devices=1, then=abort)
    assert (ended.code, ended.out) == (1, "")
    err, (run,) = ended.err, aborted
    error, hint = err.splitlines()[-2:]
    assert error.endswith("aborted: by the operator.  [run.aborted]")
    told = edgefed(*shlex.split(hint.strip().removeprefix("try: "))[1:])
    assert told.out.split()[:2] == ["run", run]
    steps = steps_of(err)
    check_steps(steps, tmp_path)
    shard = steps["predict"][-1]
    edgefed("predict", "latest", shard, state=tmp_path).failed(2, "model.unfinished", run)
    assert edgefed("predict", "latest", shard, "--unfinished", state=tmp_path).code == 0
