"""Trackers receive every round once, despite crashes, and never stop a run."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from edgefed.algorithms.composed.installed_plugins import installed_plugins
from edgefed.config.fleet.settings_files import Surroundings
from edgefed.config.fleet.tracker_names import TRACKER_PLUGINS
from edgefed.config.loading.load import load_settings
from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.coordinator.trackers.base import Row, TrackedRun, TrackedTrial, Tracker, numbers
from edgefed.coordinator.trackers.choose import make_trackers
from edgefed.coordinator.trackers.metrics import COLUMNS, MetricFiles
from edgefed.errors import RecipeError, StorageError
from tests.coordinator.conftest import MakeWorld
from tests.plugin_package import importable, write_package
from tests.processes import PATIENCE
from tests.run_fixture import Ticking, World, recipe

TRIAL = TrackedTrial("rates", "rate=0.5 / slow", 7, {"rate": 0.5}, "0123456789abcdef")


class Remembering:
    """A tracker that writes down what it hears, and fails when told to."""

    name = "remembering"

    def __init__(self, failures: int = 0) -> None:
        self.heard: list[Any] = []
        self._failures = failures

    def begin(self, run: TrackedRun) -> None:
        self.heard.append(("begin", [row["round"] for row in run.rounds]))

    def round(self, row: Row) -> None:
        if self._failures:
            self._failures -= 1
            raise RuntimeError("no room <here>")
        self.heard.append(row["round"])

    def end(self, record: RunRecord) -> None:
        self.heard.append(("end", record.status))


def files_of(here: World) -> tuple[list[dict[str, str]], list[dict[str, Any]]]:
    folder = here.store().run_folder(here.run)
    with (folder / "metrics.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return table, [json.loads(line) for line in lines]


def tracked(here: World, tracker: Tracker) -> RunRecord:
    return here.engine(trackers=(tracker,)).run()


def warnings(here: World) -> list[str]:
    return [fields["text"] for fields in here.seen("note", level="warning")]


# -- the files that are always written ------------------------------------------------------------


def test_the_files_say_what_the_store_says(world: MakeWorld) -> None:
    here = world()
    here.engine().run()
    table, lines = files_of(here)
    assert lines == here.rows
    assert [row["round"] for row in lines] == [1, 2, 3]
    assert tuple(table[0])[: len(COLUMNS)] == COLUMNS
    assert [float(row["accuracy"]) for row in table] == [row["accuracy"] for row in here.rows]


def test_an_untested_round_has_empty_cells(world: MakeWorld) -> None:
    here = world(recipe(evaluation={"every": 2}))
    here.engine().run()
    table, lines = files_of(here)
    assert [row["accuracy"] == "" for row in table] == [True, False, False]
    assert [row["accuracy"] is None for row in lines] == [True, False, False]


def test_a_run_that_goes_on_has_each_round_once(world: MakeWorld) -> None:
    here = world()
    stopping = here.engine()
    controls = stopping._controls
    here.events.clear()

    def stop(event: Any) -> None:
        if event.kind == "scored":
            controls.stop_process()

    engine = here.engine(controls=controls, listener=stop)
    engine.run()
    folder = here.store().run_folder(here.run)
    assert [row["round"] for row in files_of(here)[1]] == [1]
    for name in ("metrics.csv", "metrics.jsonl"):  # as a crash may leave them
        text = (folder / name).read_text()
        (folder / name).write_text(text + text.splitlines()[-1][:7])
    here.engine().run()
    table, lines = files_of(here)
    assert lines == here.rows
    assert [row["round"] for row in table] == ["1", "2", "3"]


def test_a_score_that_comes_later_makes_a_column(tmp_path: Path) -> None:
    tracker, row = MetricFiles(), dict.fromkeys(COLUMNS, 1)
    tracker.begin(_run(tmp_path, [row]))
    tracker.round({**row, "round": 2})
    tracker.round({**row, "round": 3, "device_loss": 0.5})
    tracker.round({**row, "round": 4})
    with (tmp_path / "metrics.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [each["round"] for each in table] == ["1", "2", "3", "4"]
    assert [each["device_loss"] for each in table] == ["", "", "0.5", ""]


def test_files_that_cannot_be_written_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").mkdir()
    with pytest.raises(StorageError):
        MetricFiles().begin(_run(tmp_path, []))


def test_a_folder_in_the_way_of_the_files_does_not_stop_the_run(world: MakeWorld) -> None:
    here = world()
    (here.store().run_folder(here.run) / "metrics.csv").mkdir(parents=True)
    assert here.engine().run().status == "finished"
    assert len(warnings(here)) == 1
    assert "tracker metrics" in warnings(here)[0]


# -- other trackers -------------------------------------------------------------------------------


def test_a_tracker_hears_all_rounds_and_the_end(world: MakeWorld) -> None:
    tracker = Remembering()
    tracked(world(), tracker)
    assert tracker.heard == [("begin", []), 1, 2, 3, ("end", "finished")]


def test_a_tracker_that_fails_is_told_of_once_and_given_everything_anew(world: MakeWorld) -> None:
    here, tracker = world(), Remembering(failures=1)
    straight = world().engine().run()
    record = tracked(here, tracker)
    assert tracker.heard == [("begin", []), ("begin", [1, 2]), 3, ("end", "finished")]
    assert warnings(here) == ["tracker remembering: RuntimeError: no room <here>"]
    assert record.weights_digest == straight.weights_digest


def test_a_tracker_that_always_fails_costs_one_warning(world: MakeWorld) -> None:
    here = world()
    assert tracked(here, Remembering(failures=9)).status == "finished"
    assert len(warnings(here)) == 1


@pytest.mark.parametrize("name", ["mlflow"])
def test_a_missing_package_is_one_clear_line(
    name: Any, world: MakeWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("torch.utils.tensorboard", "mlflow", "wandb"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    (tracker,) = make_trackers([name, name], tmp_path, Ticking())
    here = world()
    assert tracked(here, tracker).status == "finished"
    told = f"tracker {name}: The package {name} is not installed. (pip install 'edgefed[{name}]')"
    assert warnings(here) == [told]


def test_only_numbers_are_drawn() -> None:
    row: Mapping[str, Any] = {"round": 3, "accuracy": 0.5, "loss": None, "sent": 7, "best": True}
    assert numbers(row) == {"accuracy": 0.5, "sent": 7.0}


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="tensorboard is not installed")
def test_tensorboard_has_each_round_once(world: MakeWorld, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    here = world()
    for _ in range(2):  # the second finds the run finished, and tells its rounds anew
        (tracker,) = make_trackers(["tensorboard"], tmp_path, Ticking())
        tracked(here, tracker)
    found = EventAccumulator(str(tmp_path / "tensorboard" / here.run))
    found.Reload()
    assert [point.step for point in found.Scalars("accuracy")] == [1, 2, 3]
    assert found.Scalars("sent")[0].value == here.rows[0]["sent"]


@pytest.mark.skipif(find_spec("mlflow") is None, reason="mlflow is not installed")
@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_each_round_once(world: MakeWorld, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    here = world()
    for _ in range(2):
        (tracker,) = make_trackers(["mlflow"], tmp_path, Ticking())
        tracked(here, tracker)
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/mlflow/mlflow.db")
    experiment = client.get_experiment_by_name(here.recipe.name)
    (run,) = client.search_runs([experiment.experiment_id])
    points = client.get_metric_history(run.info.run_id, "accuracy")
    assert [(p.step, p.value) for p in points] == [(r["round"], r["accuracy"]) for r in here.rows]
    assert run.info.status == "FINISHED"
    assert run.data.params["rounds.count"] == "3"


def wait_for_texts(folder: Path, run: str, texts: Sequence[str]) -> None:
    """Wait until the file of a run has texts; a process of the package writes it."""
    (file,) = folder.glob(f"offline-run-*-{run}/*.wandb")
    until = time.monotonic() + PATIENCE
    while missing := [text for text in texts if text.encode() not in file.read_bytes()]:
        assert time.monotonic() < until, missing
        time.sleep(0.05)


@pytest.mark.skipif(find_spec("wandb") is None, reason="wandb is not installed")
@pytest.mark.filterwarnings("ignore")
def test_wandb_writes_an_offline_run_to_the_state_folder(
    world: MakeWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("WANDB_MODE", "WANDB_PROJECT"):
        monkeypatch.delenv(variable, raising=False)
    here = world()
    (tracker,) = make_trackers(["wandb"], tmp_path, Ticking())
    tracked(here, tracker)
    assert warnings(here) == []
    texts = (here.run, here.recipe.name, '"count":3', repr(here.rows[2]["accuracy"]))
    wait_for_texts(tmp_path / "wandb", here.run, texts)


@pytest.mark.skipif(find_spec("wandb") is None, reason="wandb is not installed")
@pytest.mark.filterwarnings("ignore")
def test_wandb_has_the_trials_of_a_sweep_in_a_group(tmp_path: Path) -> None:
    (tracker,) = make_trackers(["wandb"], tmp_path, Ticking())
    run = _run(tmp_path, [{"round": 1, "accuracy": 0.5}], TRIAL)
    tracker.begin(run)
    tracker.round({"round": 2, "accuracy": 0.625})
    tracker.end(replace(run.record, status="finished"))
    wait_for_texts(tmp_path / "wandb", TRIAL.digest, ("rates", TRIAL.title, "0.5", "0.625"))


@pytest.mark.skipif(find_spec("mlflow") is None, reason="mlflow is not installed")
@pytest.mark.filterwarnings("ignore")
def test_mlflow_names_and_tags_the_trials_of_a_sweep(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    run = _run(tmp_path, [{"round": 1, "replies": 2}], TRIAL)
    for again in ("", "-again"):  # a trial that is run again has another name of its run
        (tracker,) = make_trackers(["mlflow"], tmp_path, Ticking())
        tracker.begin(replace(run, record=replace(run.record, run=f"r-1{again}")))
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/mlflow/mlflow.db")
    experiment = client.get_experiment_by_name(run.recipe.name)
    (kept,) = client.search_runs([experiment.experiment_id])
    assert kept.info.run_name == "rate=0.5 / slow seed 7"
    tags = {key: text for key, text in kept.data.tags.items() if key.startswith("edgefed.")}
    assert tags == {
        "edgefed.run": TRIAL.digest,
        "edgefed.sweep": "rates",
        "edgefed.case": "rate=0.5 / slow",
        "edgefed.seed": "7",
    }


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="tensorboard is not installed")
def test_tensorboard_has_a_folder_for_each_trial(tmp_path: Path) -> None:
    (tracker,) = make_trackers(["tensorboard"], tmp_path / "state", Ticking())
    run = _run(tmp_path, [], TRIAL)
    tracker.begin(run)
    tracker.end(run.record)
    place = tmp_path / "state/tensorboard/rates/rate=0.5-slow-seed-7-01234567"
    assert len([*place.iterdir()]) == 1
    assert (tmp_path / "state").stat().st_mode & 0o077 == 0


# -- of other packages ----------------------------------------------------------------------------


class Lines:
    """A tracker as a package offers it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def begin(self, run: TrackedRun) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / run.title).write_text("")

    def round(self, row: Row) -> None:
        (self._folder / "rounds").write_text(str(row["round"]))

    def end(self, record: RunRecord) -> None:
        (self._folder / "end").write_text(record.status)


@pytest.mark.parametrize(
    ("member", "reason"),
    [(Lines(Path()), "is no class"), (type("Half", (), {"begin": id}), "has no method round")],
)
def test_what_is_no_tracker_is_refused(member: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason), TRACKER_PLUGINS.added("lines", member):
        pass


def test_a_package_offers_a_tracker(
    world: MakeWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, here = tmp_path / "site", world()
    points = {"lines": f"{__name__}:Lines", "broken": "nowhere:Lines"}
    write_package(site, "lines", points, TRACKER_PLUGINS.group)
    with importable(site, monkeypatch):
        environment = {"EDGEFED_TRACKERS": "lines,broken", "HOME": str(tmp_path)}
        names = load_settings(Surroundings(environment, tmp_path)).value.trackers
        trackers = make_trackers(names, tmp_path, Ticking())
        assert here.engine(trackers=trackers).run().status == "finished"
        listed = [(each.kind, each.name, not each.problem) for each in installed_plugins()]
    assert names == ("lines", "broken")
    assert {file.name for file in (tmp_path / "trackers/lines").iterdir()} == {
        here.run,
        "rounds",
        "end",
    }
    assert (tmp_path / "trackers/lines/end").read_text() == "finished"
    assert [text.partition(":")[0] for text in warnings(here)] == ["tracker broken"]
    assert listed == [("tracker", "broken", False), ("tracker", "lines", True)]


# -- which ones -----------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["tensorboard,mlflow", '["tensorboard", "mlflow"]'])
def test_a_variable_names_trackers(text: str, tmp_path: Path) -> None:
    around = Surroundings({"EDGEFED_TRACKERS": text, "HOME": str(tmp_path)}, tmp_path)
    assert load_settings(around).value.trackers == ("tensorboard", "mlflow")


def test_an_unknown_tracker_is_refused_by_name_and_line(tmp_path: Path) -> None:
    (tmp_path / "edgefed.toml").write_text('fleet = "mine"\ntrackers = ["tensorbord"]\n')
    with pytest.raises(RecipeError, match=r'edgefed.toml:2: trackers.*did you mean "tensorboard"'):
        load_settings(Surroundings({"HOME": str(tmp_path)}, tmp_path))


def _run(folder: Path, rounds: list[Any], trial: TrackedTrial | None = None) -> TrackedRun:
    record = RunRecord("r-1", "mine", "fedavg", "{}", 1, "running", "")
    return TrackedRun(replace(record, rounds=4), recipe(), folder, rounds, trial)
