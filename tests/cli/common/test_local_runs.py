"""Runs of this machine, simulations too: listed and shown with ``--local``, and suggested."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from broker.address import LOOPBACK, free_port
from edgefed.cli.runs.replay import event_file
from edgefed.coordinator.storage.run_store import Store
from edgefed.process.lock import FolderLock
from tests.cli.commands import TINY, Told, edgefed, recipe_file
from tests.processes import clean_environment
from tests.programs.forked_programs import ForkedProgram
from tests.transport.listening import wait_until

NOWHERE = f"mqtt://{LOOPBACK}:{free_port()}"


def simulate(state: Path, *words: str) -> Told:
    path = recipe_file(state, TINY)
    return edgefed("--quiet", "sim", "run", path, "--json", *words, state=state)


def test_simulations_are_listed_and_shown_without_a_coordinator(tmp_path: Path) -> None:
    first = simulate(tmp_path).json
    second = simulate(tmp_path, "--algorithm", "fedprox", "--rounds", "1").json
    runs = edgefed("run", "list", "--local", "--json", state=tmp_path).json
    assert [run["run"] for run in runs] == [second["run"], first["run"]]
    assert (runs[0]["algorithm"], runs[1]["weights_digest"]) == (
        "fedprox",
        first["weights_digest"],
    )
    assert edgefed("run", "list", "--local", state=tmp_path).out.count(" tiny\n") == 2
    newest = edgefed("run", "show", "--local", "--json", state=tmp_path).json
    named = edgefed("run", "show", first["run"][:6], "--local", "--json", state=tmp_path).json
    assert (newest["run"], named["run"]) == (second["run"], first["run"])
    assert [point["round"] for point in named["history"]] == [1, 2, 3]
    assert first["run"] in edgefed("run", "show", first["run"], "--local", state=tmp_path).out


def test_an_ended_run_of_this_machine_is_deleted(tmp_path: Path) -> None:
    first, second = simulate(tmp_path, "--rounds", "1").json, simulate(tmp_path).json
    runs = Path(second["model"]).parent.parent
    words = ("run", "delete", second["run"][:6], "--local")
    refusal = f"Deleting {second['run']} needs"
    edgefed(*words, state=tmp_path).failed(2, "usage.confirm", "--yes", refusal)
    with holding(runs / second["run"] / "work"), as_if_running(runs.parent, second["run"]):
        edgefed(*words, "--yes", state=tmp_path).failed(4, "run.busy", second["run"])
    told = edgefed(*words, "--yes", "--json", state=tmp_path)
    assert (told.code, told.json) == (0, {"run": second["run"]})
    assert sorted(path.name for path in runs.iterdir()) == [".last-deleted", first["run"]]
    rows = edgefed("run", "list", "--local", "--json", state=tmp_path).json
    assert [row["run"] for row in rows] == [first["run"]]
    with closing(sqlite3.connect(runs.parent / "edgefed.db")) as database:
        tables = ("runs", "checkpoints", "rounds", "confusions")
        left = [database.execute(f"select distinct run from {each}").fetchall() for each in tables]
    assert {run for each in left for (run,) in each} == {first["run"]}
    edgefed(*words, "--yes", state=tmp_path).failed(5, "run.unknown", second["run"][:6])
    third = simulate(tmp_path, "--rounds", "1").json["run"]
    assert third.startswith("r-0003-"), "a device may still hold answers to a run of that number"


@contextmanager
def holding(folder: Path) -> Iterator[None]:
    lock = FolderLock(folder, "a simulation")
    try:
        yield
    finally:
        lock.release()


@contextmanager
def as_if_running(place: Path, run: str) -> Iterator[None]:
    with closing(Store(place, durable=False)) as store:
        record = store.run(run)
        store.save_run(replace(record, status="running"))
        yield
        store.save_run(record)


def test_a_run_shows_whether_its_updates_were_summed_unseen(tmp_path: Path) -> None:
    masked = ("--devices", "5", "--set", "secure_aggregation.enabled=true")
    simulate(tmp_path, *masked, "--set", "wire.uplink=fp32", "--rounds", "1")
    shown = edgefed("run", "show", "--local", state=tmp_path).out
    told = "secure: the coordinator sees only sums; 25% of the devices of a round"
    assert re.search(f"^aggregation +{told} may collude with it$", shown, re.MULTILINE)


def test_a_simulation_is_tested_again(tmp_path: Path) -> None:
    run = simulate(tmp_path).json
    found = edgefed("run", "evaluate", "--local", "--json", state=tmp_path).json
    assert (found["run"], found["round"], found["devices"]) == (run["run"], 3, [])
    told = {name: found["scores"][name] for name in ("accuracy", "loss")}
    assert told == {"accuracy": run["accuracy"], "loss": run["loss"]}
    shown = edgefed("run", "show", "--local", "--json", state=tmp_path).json
    assert found["confusions"] == shown["confusions"]
    assert found["scores"].items() <= shown["history"][-1].items()
    text = edgefed("run", "evaluate", run["run"][:6], "--local", state=tmp_path).out
    assert re.search(f"^accuracy +{run['accuracy']:.4f}$", text, re.MULTILINE)
    asked = edgefed("run", "evaluate", "--local", "--on", "devices", state=tmp_path)
    asked.failed(2, "usage.evaluate", "--on")
    edgefed("run", "evaluate", "r-7", "--local", state=tmp_path).failed(5, "run.unknown")


def test_the_best_model_is_shown_and_tested(tmp_path: Path) -> None:
    early = ("--set", "evaluation.stop_patience=1", "--set", "evaluation.stop_min_change=10")
    simulate(tmp_path, *early, "--set", "rounds.checkpoint_every=1")
    shown = edgefed("run", "show", "--local", "--json", state=tmp_path).json
    assert shown["reason"].startswith("stopped early: no better accuracy in 1 evaluation;")
    files = {each["file"]: each for each in shown["models"]}
    best = files["best.safetensors"]
    accuracies = [point["accuracy"] for point in shown["history"]]
    assert (best["metric"], best["score"]) == ("accuracy", max(accuracies))
    text = edgefed("run", "show", "--local", state=tmp_path).out
    assert shown["reason"] in text
    assert "best.safetensors, after round " + str(best["round"]) in text
    assert "2 models, the last is checkpoints/round-0002.safetensors" in text
    found = edgefed("run", "evaluate", "--local", "--best", "--json", state=tmp_path).json
    assert (found["round"], found["scores"]["accuracy"]) == (best["round"], max(accuracies))
    report = tmp_path / "report.html"
    edgefed("run", "report", "--local", "--out", str(report), state=tmp_path)
    page = report.read_text()
    assert f"{best['round']}: accuracy {best['score']:.4f}" in page
    assert shown["reason"] in page


def test_scores_of_ones_own_and_before_fine_tuning_are_shown(tmp_path: Path) -> None:
    own = 'evaluation.metrics=["tests.learn.own_functions:even_recall"]'
    tuned = ("--set", "personal.fine_tune_epochs=1")
    simulate(tmp_path, "--set", own, *tuned)
    last = edgefed("run", "show", "--local", "--json", state=tmp_path).json["history"][-1]
    text = edgefed("run", "show", "--local", state=tmp_path).out
    for name in ("even_recall", "accuracy_before", "loss_before"):
        assert re.search(rf"^{name} +{last[name]:.4f}$", text, re.MULTILINE), name
    found = edgefed("run", "evaluate", "--local", "--json", state=tmp_path).json
    assert "even_recall" in found["scores"]


def test_a_damaged_run_is_named(tmp_path: Path) -> None:
    runs = [simulate(tmp_path, "--rounds", "1").json["run"] for _ in range(2)]
    with closing(sqlite3.connect(tmp_path / "simulations" / "edgefed.db")) as db, db:
        query = "update runs set record = replace(record, 'finished', 'running') where run = ?"
        db.execute(query, (runs[0],))
    told = edgefed("run", "list", "--local", state=tmp_path)
    told.failed(1, "storage.damaged", f"the row '{runs[0]}' of its table runs was changed")
    assert runs[1] not in told.err


def test_without_runs_it_says_so(tmp_path: Path) -> None:
    assert edgefed("run", "list", "--local", "--json", state=tmp_path).json == []
    edgefed("run", "show", "--local", state=tmp_path).failed(5, "run.unknown", str(tmp_path))
    edgefed("run", "show", "r-7", "--local", state=tmp_path).failed(5, "run.unknown", "r-7")


def test_an_ambiguous_id_names_the_runs_that_it_may_mean(one: tuple[Path, str, str]) -> None:
    state, run, folder = one
    (older,) = (each.name for each in Path(folder).parent.glob("r-*") if each.name != run)
    told = edgefed("run", "show", "r-", "--local", state=state)
    told.failed(5, "run.unknown", f"2 runs in {state}", f"{run}, {older}.", "more of the")


def test_without_a_coordinator_local_is_suggested(tmp_path: Path) -> None:
    told = edgefed("--broker", NOWHERE, "run", "report", "r-0001", state=tmp_path)
    told.failed(3, "broker.unreachable", "edgefed run report r-0001 --local")


def test_a_run_that_diverges_hints_at_the_learning_rate(tmp_path: Path) -> None:
    told = simulate(tmp_path, "--set", "training.learning_rate=100")
    assert (told.code, told.out) == (6, "")
    assert "Training diverged" in told.err
    assert "lower training.learning_rate, now 100" in told.err
    shown = edgefed("run", "show", "--local", state=tmp_path).out
    assert "lower training.learning_rate, now 100" in shown
    row = edgefed("run", "list", "--local", "--json", state=tmp_path).json[0]
    assert (row["status"], row["error"]) == ("failed", "round.quorum")
    assert row["hint"].startswith("lower training.learning_rate")


def test_a_run_that_fails_for_another_reason_hints_at_that(tmp_path: Path) -> None:
    words = ("--set", 'model.name="lenet5"', "--set", "model.hidden=[8]")
    assert "learning_rate" not in simulate(tmp_path, *words).err


def test_a_simulation_that_was_killed_is_listed_as_aborted(tmp_path: Path) -> None:
    def status() -> str:
        listed = edgefed("run", "list", "--local", "--json", state=tmp_path).json
        return listed[0]["status"] if listed else ""

    words = ("sim", "run", str(recipe_file(tmp_path, TINY)), "--rounds", "100000")
    environment = {**clean_environment(), "EDGEFED_STATE": str(tmp_path)}
    process = ForkedProgram(["edgefed.cli.main", *words], environment, tmp_path / "log")
    try:
        wait_until(lambda: status() == "running", "a round of the simulation")
    finally:
        process.kill()
        process.wait()
    # Its workers hold the folder until they notice that it is gone.
    wait_until(lambda: status() == "aborted", "the end of its workers")
    shown = edgefed("run", "show", "--local", state=tmp_path).out
    assert re.search("^status +aborted: its process was killed$", shown, re.MULTILINE)
    assert edgefed("run", "show", "--local", "--json", state=tmp_path).json["status"] == "aborted"


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A state folder with two simulations: the id of the newer one, and its folder."""
    state = tmp_path_factory.mktemp("state")
    simulate(state, "--rounds", "1")
    run = simulate(state, "--rounds", "2").json["run"]
    return state, run, str(state / "simulations" / "runs" / run)


READERS = (("run", "show"), ("run", "report"), ("expert", "show"), ("label", "bounties"))


@pytest.mark.parametrize("command", READERS, ids=" ".join)
def test_commands_that_read_a_run_take_an_id_latest_or_a_folder(
    command: tuple[str, str], one: tuple[Path, str, str], tmp_path: Path
) -> None:
    state, run, folder = one
    words = ("--out", str(tmp_path / "report.html")) if command[1] == "report" else ()
    told = [
        edgefed(*command, name, *words, *how, "--json", state=state)
        for name, how in (
            (run, ("--local",)),
            ("latest", ("--local",)),
            (folder, ()),
            (folder, ("--local",)),
        )
    ]
    assert {each.out for each in told} == {told[0].out}, "all four name the newer run"
    assert {each.code for each in told} == {told[0].code}
    if command == ("run", "show"):
        assert (told[0].code, told[0].json["run"]) == (0, run)


def test_runs_are_compared_by_id_latest_or_folder(one: tuple[Path, str, str]) -> None:
    state, run, folder = one
    expected = edgefed("run", "compare", run, run, "--local", "--json", state=state)
    assert expected.code == 0
    for words in (("latest", folder, "--local"), (folder, folder)):
        assert edgefed("run", "compare", *words, "--json", state=state).out == expected.out
    for name in (run, "latest", folder, f"{folder}/events.jsonl"):
        assert event_file(state, name) == Path(folder, "events.jsonl")


def test_a_folder_without_its_database_is_refused_with_what_reads_it(
    one: tuple[Path, str, str], tmp_path: Path
) -> None:
    copied = tmp_path / "runs" / "copied"
    shutil.copytree(one[2], copied)
    for words in (("run", "show", copied), ("run", "compare", copied, copied)):
        edgefed(*words, state=one[0]).failed(5, "run.unknown", "edgefed run report")
    assert edgefed("run", "report", copied, "--out", tmp_path / "r.html", state=one[0]).code == 0
