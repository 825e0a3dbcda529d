"""A backup in the middle of a run, SIGKILL, a restore elsewhere: real agents, the same bits.

Buffered rounds are in ``tests/coordinator/backups``, which cuts both kinds of runs at many moments.
Meanwhile agents have answered, and hold answers that the restored coordinator does not know.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.process.duplicate_coordinator import retained_state
from edgefed.wire.topics import Topics
from tests.faults.fleet_processes import FLEET, FleetProcesses, fleet, wait_until
from tests.faults.test_kills import recipe, simulated
from tests.forked_programs import ForkedProgram, run_module
from tests.processes import clean_environment

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

RECIPE = recipe("averaging")
PLAN: Recipe = RECIPE.model_copy(
    update={
        "model": RECIPE.model.model_copy(update={"hidden": [500, 500]}),
        "rounds": RECIPE.rounds.model_copy(update={"count": 8}),
        # What devices keep for later rounds, such as the error of an uplink, is ahead of a backup.
        "wire": RECIPE.wire.model_copy(update={"uplink": "fp32"}),
    }
)


def edgefed(state: Path, *words: str) -> tuple[int, str, str]:
    common = ("--no-config", "--fleet", FLEET, "--state", str(state))
    return run_module("edgefed.cli.main", *common, *words)


def start_elsewhere(home: FleetProcesses, state: Path) -> None:
    """Start the coordinator with another state folder."""
    common = ["--no-config", "--fleet", FLEET, "--state", str(state)]
    words = ["edgefed.cli.main", *common, "--broker", str(home.address), "coordinator"]
    log = home.folder / "elsewhere.log"
    home.processes["coordinator"] = ForkedProgram(words, clean_environment(), log)


def held_replies(home: FleetProcesses) -> int:
    """Return how many replies the agents keep."""
    files = (home.folder / "state" / "agents" / FLEET).glob("*/agent.db")
    counts = []
    for file in files:
        with closing(sqlite3.connect(file)) as database:
            counts += database.execute("select count(*) from replies").fetchone()
    return sum(counts)


def test_a_run_goes_on_from_a_backup_on_another_machine(tmp_path: Path) -> None:
    backup, here, elsewhere = (
        tmp_path / "b.tar",
        tmp_path / "home" / "state",
        tmp_path / "elsewhere",
    )
    with fleet(tmp_path / "home", PLAN) as home:
        broker = ("--broker", str(home.address))
        run = home.begin()
        wait_until(lambda: home.record(run)["round"] >= 2, "the second round", home.logs)
        code, _, told = edgefed(here, "backup", str(backup))
        assert code == 0, told
        for state, error in ((elsewhere, "[restore.running]"), (here, "[state.locked]")):
            code, _, told = edgefed(state, *broker, "restore", str(backup), "--yes")
            assert (code, error in told) == (4, True), told
        at = home.record(run)["round"]
        wait_until(lambda: home.record(run)["round"] > at, "devices that are ahead", home.logs)
        wait_until(lambda: held_replies(home) > 0, "an answer that is not merged", home.logs)
        home.kill("coordinator")
        asked = ids(here, run)
        wait_until(lambda: not is_online(home), "the coordinator's will")
        code, out, told = edgefed(elsewhere, *broker, "restore", str(backup), "--yes")
        assert code == 0, told
        assert run in out
        known = ids(elsewhere, run)
        start_elsewhere(home, elsewhere)
        record = home.finish(run)
        again = ids(elsewhere, run) - known
        wait_until(lambda: held_replies(home) == 0, "the end of all replies", home.logs)
        notes = log_of(elsewhere, run).read_text().count("restored from the backup")
    assert record["status"] == "finished", record["reason"]
    assert record["weights_digest"] == simulated(PLAN, tmp_path / "sim")
    assert record["restored"]
    assert notes == 1
    assert len(asked) > len(known) >= 1
    assert again
    assert not again & asked


def log_of(state: Path, run: str) -> Path:
    return state / "coordinator" / FLEET / "runs" / run / "events.jsonl"


def ids(state: Path, run: str) -> set[str]:
    """Return the ids of the exchanges that were answered, as the run's log has them."""
    events = map(json.loads, log_of(state, run).read_text().splitlines())
    return {each["exchange"] for each in events if each["kind"] == "reply"}


def is_online(home: FleetProcesses) -> bool:
    state = retained_state(home.address, Topics(FLEET))
    return state is not None and state.status == "online"
