"""A sweep runs the trials without a result once, and writes tables and a plot."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from edgefed.errors import NotAllowedError, StorageError
from edgefed.process.lock import FolderLock
from edgefed.report.run_data import run_data_of_folder
from edgefed.simulator.sweep.outputs import TABLES, file_names, summary, write_outputs
from edgefed.simulator.sweep.plot import metric_chart
from edgefed.simulator.sweep.report import ReportMetric, accuracy_metric, default_report
from edgefed.simulator.sweep.results import Results, TrialResult
from edgefed.simulator.sweep.run_values import bytes_by_round, rounds_to
from edgefed.simulator.sweep.statistics import spread
from edgefed.simulator.sweep.table import make_table, value_column
from edgefed.simulator.sweep.table_text import runs_csv, text_rows
from edgefed.simulator.sweep.trials import TrialOutcome, TrialStep, run_trials
from tests.run_fixture import Ticking
from tests.simulator.sweep.sweeps import GRID, RECIPE, Swept, planned, write

pytest.importorskip("sklearn", reason="the digits are not installed")

SLOW, FAST = "learning_rate=0.05", "learning_rate=0.5"
ALL = [(SLOW, 1), (FAST, 1), (SLOW, 2), (FAST, 2)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "sweep", GRID)


@pytest.fixture
def swept(tmp_path: Path) -> Swept:
    return Swept(tmp_path / "out")


def test_every_case_is_run_with_every_seed_once(file: Path, swept: Swept) -> None:
    plan = planned(file)
    first = swept.run(plan)
    assert swept.told("begun") == swept.told("done") == ALL
    assert [(step.number, step.total) for step in swept.steps if step.state == "done"] == [
        (1, 4),
        (2, 4),
        (3, 4),
        (4, 4),
    ]
    second = swept.run(plan)
    assert swept.told("known") == ALL
    assert second == first
    assert len({result.weights_digest for result in first.results.values()}) == 4


def test_runs_with_one_seed_share_natural_noise(tmp_path: Path) -> None:
    recipe = RECIPE.replace('"iid"', '"classes"\nclasses_per_device = 5')
    labels = '[labels]\ncount = 3\nmix_share = 0.0\nnoise = "spectrum"\n'
    grid = 'recipe = "recipe.toml"\nseeds = [1]\n[grid]\nlabels.count = [3, 2]\n'
    swept = Swept(tmp_path / "out")
    outcome = swept.run(planned(write(tmp_path / "sweep", grid, recipe + labels)))
    assert outcome.failures == {}
    noise = Results(swept.folder).noise
    assert len([*noise.iterdir()]) == 2 * 5, "one of each device and label, for both cases"


def test_a_run_leaves_its_files_and_nothing_else(file: Path, swept: Swept) -> None:
    outcome = swept.run(planned(file))
    assert {path.name for path in swept.folder.iterdir()} == {"lock", "results", "runs"}
    for result in outcome.results.values():
        files = {path.name for path in (swept.folder / result.folder).iterdir()}
        assert files == {
            "best.safetensors",
            "events.jsonl",
            "metrics.csv",
            "metrics.jsonl",
            "model.safetensors",
            "recipe.toml",
        }
        rows = (swept.folder / result.folder / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(row) for row in rows] == list(result.history)
        params = run_data_of_folder(swept.folder / result.folder)
        assert list(params.rounds) == list(result.history)
        assert [sum(device.labels) for device in params.summary.devices] == [50, 50]


def test_a_round_that_is_tested_later_is_one_row_of_the_history(tmp_path: Path) -> None:
    recipe = RECIPE.replace("count = 2", 'count = 12\nmode = "buffered"\nbuffer = 1')
    recipe += "[speeds]\nseconds_per_sample = 0.01\n"
    recipe += '[evaluation]\non = "devices"\n'
    text = 'recipe = "recipe.toml"\nseeds = [1]\n'
    swept = Swept(tmp_path / "out")
    outcome = swept.run(planned(write(tmp_path / "sweep", text, recipe)))
    (result,) = outcome.results.values()
    events = (swept.folder / result.folder / "events.jsonl").read_text().splitlines()
    scored = [event for line in events if (event := json.loads(line))["kind"] == "scored"]
    assert len(scored) > 12, "some were tested later"
    assert [row["round"] for row in result.history] == [*range(1, 13)]
    rows = (swept.folder / result.folder / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row) for row in rows] == list(result.history)
    assert bytes_by_round(result)[12] <= result.bytes_up + result.bytes_down


def test_a_changed_setting_is_run_anew_and_the_rest_is_not(file: Path, swept: Swept) -> None:
    swept.run(planned(file))
    file.write_text(GRID.replace("0.5]", "0.25]").replace("[1, 2]", "[1, 3]"))
    swept.run(planned(file))
    assert swept.told("known") == [(SLOW, 1)]
    assert swept.told("done") == [("learning_rate=0.25", 1), (SLOW, 3), ("learning_rate=0.25", 3)]


def test_a_result_that_cannot_be_read_is_made_again(file: Path, swept: Swept) -> None:
    plan = planned(file, seeds=(1,))
    before = swept.run(plan)
    paths = sorted((swept.folder / "results").iterdir())
    paths[0].write_text(paths[0].read_text()[:40])
    paths[1].write_text("{}")
    after = swept.run(plan)
    assert len(swept.told("done")) == 2
    assert {digest: result.weights_digest for digest, result in after.results.items()} == {
        digest: result.weights_digest for digest, result in before.results.items()
    }


def test_a_run_that_is_killed_while_it_is_computed_again_has_no_result_without_files(
    file: Path, swept: Swept, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(file, seeds=(1,))
    first = next(iter(plan.trials()))
    swept.run(plan)
    results = Results(swept.folder)
    monkeypatch.setattr(TrialResult, "is_of_this_release", False)

    def killed(*paths: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("edgefed.simulator.sweep.results.shutil.move", killed)
    with pytest.raises(KeyboardInterrupt):
        swept.run(plan, recompute=True)
    assert results.find(first) is None


def test_what_a_killed_run_left_is_thrown_away(file: Path, swept: Swept) -> None:
    plan = planned(file, seeds=(1,))

    def kill(step: TrialStep) -> None:
        if step.state == "round" and step.number == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_trials(plan, swept.folder, Ticking(), tell=kill)
    assert Results(swept.folder).work.exists()
    half = swept.folder / "runs" / next(reversed(list(plan.trials()))).digest
    half.mkdir()  # its files were moved, and its result was not written
    outcome = swept.run(plan)
    assert (swept.told("known"), swept.told("done")) == ([(SLOW, 1)], [(FAST, 1)])
    assert not Results(swept.folder).work.exists()
    assert len(outcome.results) == 2
    assert (half / "metrics.csv").exists()


def test_the_tables_are_written_after_each_seed(file: Path, swept: Swept) -> None:
    plan = planned(file)

    def kill(step: TrialStep) -> None:
        if step.state == "round" and step.number == 4:
            raise KeyboardInterrupt

    def run(tell: Callable[[TrialStep], None] = lambda step: None) -> list[int]:
        written: list[int] = []

        def write_tables(outcome: TrialOutcome) -> None:
            write_outputs(plan, outcome, swept.folder)
            written.append(len(outcome.results))

        with suppress(KeyboardInterrupt):
            run_trials(plan, swept.folder, Ticking(), tell=tell, after_seed=write_tables)
        return written

    assert run(kill) == [2], "the second seed was not done with all cases"
    assert {path.name for path in swept.folder.iterdir()} >= {*TABLES}
    cases = json.loads((swept.folder / "table.json").read_text())["cases"]
    assert [(case["runs"], case["accuracy"]["count"]) for case in cases] == [(1, 1), (1, 1)]
    assert run() == [], "what is known is in the tables already"


def test_a_run_that_fails_does_not_stop_the_others(tmp_path: Path, swept: Swept) -> None:
    cases = '[[cases]]\nname = "good"\n[[cases]]\nname = "bad"\nsimulation.devices = 1000\n'
    cases += '[[cases]]\nname = "misfit"\nmodel = { name = "lenet5", hidden = 3 }\n'
    text = f'recipe = "recipe.toml"\nseeds = [1]\n{cases}'.replace(", hidden = 3", "")
    recipe = 'name = "tiny"\n[data]\nlimit = 100\n[rounds]\ncount = 1\n[simulation]\nworkers = 1\n'
    plan = planned(write(tmp_path / "sweep", text, f'{recipe}devices = 2\n[model]\nname = "mlp"'))
    outcome = swept.run(plan)
    assert swept.told("done") == [("good", 1)]
    assert swept.told("failed") == [("bad", 1), ("misfit", 1)]
    assert any("1000 devices" in reason for reason in outcome.failures.values())
    table = make_table(plan, outcome)
    good, bad, _ = table.rows
    assert (good.runs, good.failed, bad.runs, bad.failed) == (1, 0, 0, 1)
    head, row, failed, _ = text_rows(table)
    assert "0, 1 failed" in failed
    assert head[-2:] == ("BYTES", "SECONDS")
    assert row[-1].endswith((" ms", " s"))
    assert [each["case"] for each in summary(plan, table, swept.folder)["failures"]] == [
        "bad",
        "misfit",
    ]
    swept.run(plan)
    assert swept.told("failed") == [("bad", 1), ("misfit", 1)], "failures are tried again"


def test_two_sweeps_do_not_share_a_folder(file: Path, swept: Swept) -> None:
    lock = FolderLock(swept.folder, "a sweep")
    with pytest.raises(NotAllowedError) as caught:
        swept.run(planned(file))
    assert caught.value.hint.endswith("choose another folder with --out, or out= in Python")
    lock.release()


def test_a_folder_that_cannot_be_written_ends_the_sweep(file: Path, swept: Swept) -> None:
    swept.folder.mkdir()
    (swept.folder / "results").write_text("in the way")
    with pytest.raises(StorageError):
        swept.run(planned(file))
    assert len(swept.told("begun")) == 1


# -- the table ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "mean", "deviation"),
    [([], None, None), ([0.5], 0.5, None), ([1.0, 3.0], 2.0, math.sqrt(2.0)), ([4, 4, 4], 4, 0)],
)
def test_mean_and_sample_deviation(
    values: list[float], mean: float | None, deviation: float | None
) -> None:
    found = spread(values)
    assert (found.mean, found.deviation, found.count) == (mean, deviation, len(values))


def test_the_tables_say_what_the_runs_reached(file: Path, swept: Swept) -> None:
    plan = replace(planned(file), report=default_report(0.15))
    outcome = swept.run(plan)
    table = write_outputs(plan, outcome, swept.folder)
    trials = list(plan.trials())
    own = [outcome.results[trial.digest] for trial in trials if trial.case.name == FAST]
    told = json.loads((swept.folder / "table.json").read_text())
    assert told == summary(plan, table, swept.folder)
    fast = told["cases"][1]
    assert fast["settings"] == {"training.learning_rate": 0.5}
    assert fast["accuracy"]["mean"] == pytest.approx(sum(r.accuracy or 0 for r in own) / 2)
    assert fast["bytes"]["mean"] == sum(r.bytes_up + r.bytes_down for r in own) / 2
    reached = [rounds_to(result, accuracy_metric(0.15)) for result in own]
    assert fast["rounds_to_target"]["count"] == sum(number is not None for number in reached)
    with (swept.folder / "table.csv").open(newline="") as file_of_cases:
        rows = list(csv.DictReader(file_of_cases))
    assert [row["case"] for row in rows] == [SLOW, FAST]
    assert float(rows[1]["accuracy_mean"]) == fast["accuracy"]["mean"]
    runs = list(csv.DictReader(io.StringIO(runs_csv(plan, outcome))))
    assert [(row["case"], int(row["seed"])) for row in runs] == ALL
    assert (swept.folder / runs[0]["folder"] / "recipe.toml").exists()


def test_the_target_is_the_first_round_that_has_it(file: Path, swept: Swept) -> None:
    result = next(iter(swept.run(planned(file, seeds=(1,))).results.values()))
    scores = [0.1, None, 0.8, 0.7, 0.9]
    history = tuple({"round": k, "accuracy": score} for k, score in enumerate(scores, 1))
    result = result.model_copy(update={"history": history})
    assert rounds_to(result, accuracy_metric(0.75)) == 3
    assert rounds_to(result, accuracy_metric(0.8)) == 3
    assert rounds_to(result, accuracy_metric(0.95)) is None
    assert rounds_to(result, accuracy_metric()) is None


def test_the_picture_has_a_line_and_a_band_a_case(file: Path, swept: Swept) -> None:
    plan = planned(file)
    write_outputs(plan, swept.run(plan), swept.folder)
    root = ElementTree.fromstring((swept.folder / "accuracy.svg").read_text())
    kinds = [each.tag.rpartition("}")[2] for each in root.iter()]
    assert kinds.count("polyline") == kinds.count("polygon") == 2
    told = {each.text for each in root.iter() if each.tag.endswith("text")}
    assert {SLOW, FAST, "round", "accuracy"} <= told


def test_any_number_of_the_rounds_has_a_picture(file: Path, swept: Swept) -> None:
    report = (accuracy_metric(0.5), *map(ReportMetric, ("train_loss", "bytes", "sent", "zzz")))
    plan = replace(planned(file), report=report)
    outcome = swept.run(plan)
    for end in ("svg", "pdf"):
        (swept.folder / f"zzz.{end}").write_text("of earlier code")
    write_outputs(plan, outcome, swept.folder)
    pictures = {path.name for path in swept.folder.iterdir() if path.suffix in (".svg", ".pdf")}
    assert pictures == {"train_loss.svg", "accuracy.svg", "sent.svg"}
    assert pictures < {*file_names(plan, outcome)}
    assert "zzz.svg" not in file_names(plan, outcome)
    chart = metric_chart(plan, outcome, value_column(ReportMetric("train_loss")))
    own = [outcome.results[trial.digest] for trial in plan.trials() if trial.case.name == FAST]
    left, right = (result.history[1]["train_loss"] for result in own)
    number, mean = chart.series[1].points[1]
    assert (number, mean) == (2, (left + right) / 2)
    # Of two values, the sample deviation is half of their distance times the root of two.
    half = abs(left - right) / math.sqrt(2)
    assert mean is not None
    _, low, high = chart.series[1].band[1]
    assert (low, high) == pytest.approx((mean - half, mean + half))
    assert (chart.up, chart.bounds, chart.level) == ("train_loss", (), None)
    assert metric_chart(plan, outcome, value_column(accuracy_metric())).level == 0.5
    sent = metric_chart(plan, outcome, value_column(ReportMetric("sent"), "devices"))
    assert sent.up == "sent (devices) (bytes)"


def test_pictures_for_a_paper_are_beside_the_others(file: Path, swept: Swept) -> None:
    pytest.importorskip("matplotlib")
    plan = planned(file)
    write_outputs(plan, swept.run(plan), swept.folder, ("pdf", "png"))
    heads = {path.name: path.read_bytes()[:4] for path in swept.folder.glob("accuracy.*")}
    assert heads["accuracy.pdf"] == b"%PDF"
    assert heads["accuracy.png"] == b"\x89PNG"
    assert len(heads) == 3
