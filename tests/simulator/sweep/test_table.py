"""The tables of a sweep, for handwritten results."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgefed.charts.lines import line_chart
from edgefed.simulator.sweep.choice import ChooseSection
from edgefed.simulator.sweep.file import short_keys
from edgefed.simulator.sweep.plan import Plan
from edgefed.simulator.sweep.plot import metric_chart
from edgefed.simulator.sweep.report import ReportMetric, default_report
from edgefed.simulator.sweep.results import TrialResult
from edgefed.simulator.sweep.table import Table, curve_columns, make_table
from edgefed.simulator.sweep.table_latex import latex, latex_cell
from edgefed.simulator.sweep.table_text import (
    cases_csv,
    choice_lines,
    difference_text,
    markdown,
    markdown_cell,
    runs_csv,
    text_rows,
)
from edgefed.simulator.sweep.trials import TrialOutcome
from tests.simulator.sweep.sweeps import planned, write

Row = Mapping[str, Any]

CASES = """
recipe = "recipe.toml"
seeds = [1, 2, 3]
[[cases]]
name = "plain"
training.learning_rate = 0.1
[[cases]]
name = "fast_50% & more"
training.learning_rate = 0.5
[[cases]]
name = "nova"
algorithm.name = "fednova"
"""
PLAIN, FAST, NOVA = "plain", "fast_50% & more", "nova"


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return planned(write(tmp_path, CASES))


def coordinator(accuracy: float | None, **more: Any) -> Row:
    """Return the row of a round that was tested at the coordinator."""
    return {"accuracy": accuracy, "loss": None if accuracy is None else 1 - accuracy, **more}


def devices(accuracy: float, **more: Any) -> Row:
    """Return the row of a round that was tested on devices alone."""
    row = coordinator(accuracy)
    return {**row, "device_accuracy": accuracy, "device_loss": row["loss"], **more}


def outcome_of(
    plan: Plan, runs: Mapping[str, Mapping[int, Sequence[Row]]], failed: Sequence[str] = ()
) -> TrialOutcome:
    """Return an outcome with the rows of rounds by case and seed; others failed or did not run."""
    results, failures = {}, {}
    for trial in plan.trials():
        rows = runs.get(trial.case.name, {}).get(trial.seed)
        if rows is None:
            if trial.case.name in failed:
                failures[trial.digest] = "diverged"
            continue
        history = [
            {"round": number, "seconds": 2.0, "sent": 10, "received": 5, **row}
            for number, row in enumerate(rows, 1)
        ]
        results[trial.digest] = TrialResult(
            digest=trial.digest,
            case=trial.case.name,
            seed=trial.seed,
            settings={},
            recipe={},
            run="r-1",
            folder=f"runs/{trial.digest}",
            accuracy=rows[-1]["accuracy"],
            loss=rows[-1]["loss"],
            rounds=len(rows),
            bytes_up=5 * len(rows),
            bytes_down=10 * len(rows),
            seconds=2.0 * len(rows),
            weights_digest="00",
            history=tuple(history),
        )
    return TrialOutcome(results, failures)


def one_round(plan: Plan, **values: Sequence[Row]) -> TrialOutcome:
    """Return the outcome of runs of one round; names are plain, fast and nova."""
    names = {"plain": PLAIN, "fast": FAST, "nova": NOVA}
    runs = {names[key]: {s: [row] for s, row in enumerate(rows, 1)} for key, rows in values.items()}
    return outcome_of(plan, runs)


def results_of(outcome: TrialOutcome) -> list[TrialResult]:
    return list(outcome.results.values())


def reporting(plan: Plan, *metrics: ReportMetric) -> Plan:
    return replace(plan, report=metrics)


def csv_rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def means(table: Table, key: str) -> dict[str, float | None]:
    return {row.case: row.values[key].mean for row in table.rows}


# -- values ---------------------------------------------------------------------------------------


def test_without_a_report_the_files_begin_with_the_usual_columns(plan: Plan) -> None:
    table = make_table(plan, one_round(plan, plain=[coordinator(0.5)]))
    usual = ["accuracy", "loss", "bytes", "seconds", "rounds_to_target", "seconds_to_target"]
    head = cases_csv(table).splitlines()[0].split(",")
    settings = ["training.learning_rate", "algorithm.name"]
    statistics = [f"{name}_{kind}" for kind in ("mean", "std") for name in usual]
    old = ["case", *settings, "runs", "failed", *statistics, "reached_target"]
    assert head[: len(old)] == old
    assert set(usual) <= set(table.rows[0].to_json())
    assert text_rows(table)[0] == ("CASE", "RUNS", "ACCURACY", "LOSS", "BYTES", "SECONDS")
    old = ["case", *settings, "seed", "status", *usual, "weights_digest", "folder"]
    head = runs_csv(plan, one_round(plan)).splitlines()[0].split(",")
    assert head[: len(old)] == old


def test_a_metric_is_that_of_the_last_round_that_measured_it(plan: Plan) -> None:
    rows = [
        coordinator(0.5, tau_eff=4.0, mae=3.0, is_best=True, slowest="device-00"),
        coordinator(0.7, tau_eff=6.0, mae=2.0),
        {"accuracy": None, "loss": None, "tau_eff": 5.0, "mae": None},
    ]
    names = ("tau_eff", "bytes", "bytes_up", "bytes_down", "seconds", "rounds", "sent")
    report = [ReportMetric(name) for name in (*names, "mae", "is_best", "slowest")]
    plan = reporting(plan, *report)
    table = make_table(plan, outcome_of(plan, {PLAIN: {1: rows}}))
    values = {name: value.mean for name, value in table.rows[0].values.items()}
    expected = {"tau_eff": 5.0, "bytes": 45, "bytes_up": 15, "bytes_down": 30}
    expected |= {"seconds": 6.0, "rounds": 3, "sent": 10}
    # A value that was not finite is none, not that of the round before; words are no numbers.
    assert values == {**expected, "mae": None, "is_best": None, "slowest": None}
    assert {*table.missing} == {"is_best", "slowest"}


def test_a_metric_that_no_run_has_is_told_with_the_nearest(plan: Plan) -> None:
    plan = reporting(
        plan, ReportMetric("accuracy", "higher"), ReportMetric("taueff"), ReportMetric("zzz")
    )
    assert make_table(plan, one_round(plan)).missing == {}, "no run has finished"
    table = make_table(plan, one_round(plan, nova=[coordinator(0.5, tau_eff=3.0)]))
    assert table.missing["taueff"].endswith(
        """no finished run has 'taueff'; did you mean "tau_eff"?"""
    )
    assert "the runs have: accuracy, bytes," in table.missing["zzz"]
    assert means(table, "zzz") == dict.fromkeys((PLAIN, FAST, NOVA))
    assert "no finished run has 'zzz'" in markdown(table)
    plan = reporting(plan, ReportMetric("mae"), ReportMetric("sent"))
    table = make_table(plan, one_round(plan, nova=[coordinator(0.5, mae=None)]))
    assert table.missing == {"mae": "no finished run has a finite value of 'mae'"}


def test_targets_are_reached_in_the_direction_of_their_metric(plan: Plan) -> None:
    rows = [coordinator(0.2, mae=3.0), coordinator(0.6, mae=2.0), coordinator(0.7, mae=1.0)]
    plan = reporting(
        plan, ReportMetric("accuracy", "higher", 0.6), ReportMetric("mae", "lower", 1.5)
    )
    outcome = outcome_of(plan, {PLAIN: {1: rows, 2: rows[:1]}})
    table = make_table(plan, outcome)
    row = table.rows[0]
    assert (row.values["rounds_to_target"].mean, row.values["rounds_to_target"].count) == (2, 1)
    assert row.values["seconds_to_target"].mean == 4.0
    assert row.values["mae_rounds_to_target"].mean == 3
    assert csv_rows(cases_csv(table))[0]["mae_reached_target"] == "1"
    head, first, *_ = text_rows(table)
    shown = ("ROUNDS TO 0.6", "SECONDS TO 0.6", "ROUNDS TO MAE 1.5", "SECONDS TO MAE 1.5")
    assert head[-4:] == shown
    assert first[-2] == "3.0  (1 of 2)"
    assert not {key for key in table.rows[1].differences if key.endswith("target")}


# -- where scores were measured -------------------------------------------------------------------


def test_scores_of_devices_alone_are_marked(plan: Plan) -> None:
    table = make_table(plan, one_round(plan, plain=[devices(0.5)], fast=[devices(0.75)]))
    assert text_rows(table)[0][2:4] == ("ACCURACY (DEVICES)", "LOSS (DEVICES)")
    assert means(table, "accuracy") == {PLAIN: 0.5, FAST: 0.75, NOVA: None}
    assert [row.measured_on for row in table.rows] == ["devices", "devices", ""]
    assert r"accuracy (devices) (\%) $\uparrow$" in latex(table)


def test_scores_of_coordinator_and_devices_never_share_a_column(plan: Plan) -> None:
    both = {"device_accuracy": 0.4, "device_loss": 0.1}
    outcome = one_round(
        plan,
        plain=[coordinator(0.5), coordinator(0.7)],
        fast=[devices(0.75), devices(0.25)],
        nova=[coordinator(0.9, **both), coordinator(0.9, **both)],
    )
    table = make_table(replace(plan, report=default_report(0.6)), outcome)
    assert means(table, "accuracy") == {PLAIN: 0.6, FAST: None, NOVA: 0.9}
    assert means(table, "device_accuracy") == {PLAIN: None, FAST: 0.5, NOVA: 0.4}
    assert [row.measured_on for row in table.rows] == ["coordinator", "devices", "both"]
    head = text_rows(table)[0]
    assert head[2:4] == ("ACCURACY (COORDINATOR)", "DEVICE_ACCURACY")
    assert {"ROUNDS TO ACCURACY (COORDINATOR) 0.6", "ROUNDS TO DEVICE_ACCURACY 0.6"} <= {*head}
    curves = {column.key: column for column in curve_columns(default_report(), results_of(outcome))}
    assert [*curves] == ["accuracy", "device_accuracy", "loss", "device_loss"]
    chart = metric_chart(plan, outcome, curves["accuracy"])
    assert (chart.up, [len(series.points) for series in chart.series]) == (
        "accuracy (coordinator)", [1, 0, 1],
    )  # fmt: skip
    drawn = line_chart(chart)
    assert f">{PLAIN}</text>" in drawn
    assert ">fast" not in drawn.replace("<title>fast", "")
    assert f">{NOVA}</text>" in drawn
    assert means(table, "rounds_to_target") == {PLAIN: 1, FAST: None, NOVA: 1}
    assert means(table, "device_accuracy_rounds_to_target") == {PLAIN: None, FAST: 1, NOVA: None}
    assert table.rows[1].differences["accuracy"].verdict == "unknown", "of other samples"
    runs = csv_rows(runs_csv(plan, outcome))
    assert [run["measured_on"] for run in runs][:3] == ["coordinator", "devices", "both"]
    assert (runs[1]["accuracy"], runs[1]["device_accuracy"]) == ("", "0.75")


def test_a_score_of_devices_that_is_reported_itself_is_not_split_off_again(plan: Plan) -> None:
    plan = reporting(
        plan, ReportMetric("accuracy", "higher"), ReportMetric("device_accuracy", "higher")
    )
    table = make_table(plan, one_round(plan, plain=[coordinator(0.5)], fast=[devices(0.75)]))
    assert [column.key for column in table.columns] == ["accuracy", "device_accuracy"]


def test_a_score_has_its_own_name_wherever_all_runs_are_tested(plan: Plan) -> None:
    names = ("accuracy", "device_accuracy", "device_accuracy_worst")
    plan = reporting(plan, *(ReportMetric(name, "higher") for name in names))
    outcome = one_round(plan, plain=[devices(0.5, device_accuracy_worst=0.25)])
    labels = [column.label for column in make_table(plan, outcome).columns]
    assert labels == ["accuracy (devices)", "device_accuracy", "device_accuracy_worst"]
    for label in labels[1:]:
        assert markdown_cell(label) in markdown(make_table(plan, outcome))
    up = [
        metric_chart(plan, outcome, one).up
        for one in curve_columns(plan.report, results_of(outcome))
    ]
    assert up == labels


# -- comparisons ----------------------------------------------------------------------------------


def test_cases_are_compared_with_the_baseline_on_common_seeds(plan: Plan) -> None:
    runs = {
        PLAIN: {1: [coordinator(0.5)], 2: [coordinator(0.7)]},
        FAST: {1: [coordinator(0.6)], 2: [coordinator(0.8)], 3: [coordinator(0.1)]},
        NOVA: {3: [coordinator(0.9)]},
    }
    table = make_table(plan, outcome_of(plan, runs, failed=[NOVA]))
    assert table.baseline == PLAIN
    plain, fast, nova = table.rows
    assert plain.differences == {}
    better = fast.differences["accuracy"]
    assert better.difference.count == 2
    assert better.difference.mean == pytest.approx(0.1)
    assert better.verdict == "better"
    assert nova.differences["accuracy"].verdict == "unknown"
    told = fast.to_json()["differences"]
    assert told["accuracy"] == {**told["accuracy"], "count": 2, "verdict": "better"}
    fields = csv_rows(cases_csv(table))[1]
    assert (fields["accuracy_pairs"], fields["accuracy_verdict"]) == ("2", "better")
    head, *rows = difference_text(table)
    assert head[:2] == ("CASE", "ACCURACY")
    assert rows[0][1] == "+0.1000 ± 0.0000 better (n=2)"
    assert rows[1][1] == ""
    other = make_table(replace(plan, baseline=FAST), outcome_of(plan, runs))
    assert other.rows[0].differences["accuracy"].verdict == "worse"
    assert other.rows[0].differences["loss"].verdict == "worse"
    assert difference_text(make_table(plan, one_round(plan, plain=[coordinator(0.5)]))) == []


def test_the_best_mean_is_bold_in_its_direction(plan: Plan) -> None:
    names = [
        ReportMetric("accuracy", "higher", 0.1),
        ReportMetric("loss", "lower"),
        ReportMetric("tau_eff"),
    ]
    outcome = one_round(
        plan,
        plain=[coordinator(0.5, tau_eff=1.0), coordinator(0.6, tau_eff=1.0)],
        fast=[coordinator(0.8, tau_eff=2.0), coordinator(0.9, tau_eff=2.0)],
        nova=[coordinator(0.8, tau_eff=3.0), coordinator(0.9, tau_eff=3.0)],
    )
    table = make_table(reporting(plan, *names), outcome)
    assert {column.key for column in table.columns} > {"tau_eff", "rounds_to_target"}
    assert table.best() == {(case, key) for case in (FAST, NOVA) for key in ("accuracy", "loss")}
    # The margin of two values is 12.706 times half their difference.
    assert "| **0.8500 ± 0.0707 \\[0.2147 to 1.4853\\]** |" in markdown(table)
    assert "| 0.5500 ± 0.0707 \\[−0.0853 to 1.1853\\] |" in markdown(table)
    assert r"\textbf{85.00 $\pm$ 7.07}$^{+}$" in latex(table)


# -- files ----------------------------------------------------------------------------------------


def test_the_tables_are_as_wide_as_their_heads(plan: Plan) -> None:
    outcome = one_round(plan, plain=[coordinator(0.5)] * 2, fast=[coordinator(0.75)] * 2)
    table = make_table(plan, outcome)
    text = latex(table)
    head, *rows = re.findall(r"(?m)^(.*) \\\\$", text)
    assert len(rows) == 3
    cells = re.compile(r"(?<!\\) & ")
    assert {len(cells.split(row)) for row in rows} == {len(cells.split(head))}
    assert re.search(r"begin\{tabular\}\{(\w+)\}", text)[1] == "lrrrrr"  # type: ignore[index]
    assert r"fast\_50\% \& more & 2 & " in text
    lines = [line for line in markdown(table).splitlines() if line.startswith("|")]
    widths = [len(re.split(r"(?<!\\)\|", line)) for line in lines]
    assert len(set(widths[:5])) == len(set(widths[5:])) == 1
    assert "0.5000 ± 0.0000 \\[0.5000 to 0.5000\\]" in markdown(table)


def test_marks_of_markdown_and_latex_are_escaped() -> None:
    text = "a|b\n*c* \\ {x}_1^2 ~ #1 $5 & 50 %"
    assert markdown_cell(text) == r"a\|b \*c\* \\ {x}\_1^2 ~ #1 $5 & 50 %"
    assert latex_cell("[2pt]") == "{[}2pt{]}", "an argument of the end of the row before"
    assert latex_cell(text) == (
        r"a|b *c* \textbackslash{} \{x\}\_1\textasciicircum{}2 \textasciitilde{} \#1 \$5 \& 50 \%"
    )


def test_every_run_has_its_status_and_reason(plan: Plan) -> None:
    outcome = outcome_of(plan, {PLAIN: {1: [coordinator(0.5)]}}, failed=[FAST])
    runs = csv_rows(runs_csv(plan, outcome))
    assert [run["status"] for run in runs[:3]] == ["finished", "failed", "pending"]
    assert [run["reason"] for run in runs[:3]] == ["", "diverged", ""]
    assert f"{markdown_cell(FAST)}, seed 2 failed: diverged" in markdown(make_table(plan, outcome))


GRID = """
recipe = "recipe.toml"
seeds = [1, 2]
[grid]
algorithm.name = ["fedavg", "fednova"]
model.hidden = [[16], [8, 8]]
labels.count = [0]
rounds.count = [1, 2]
"""


def test_a_grid_has_a_column_for_each_key(tmp_path: Path) -> None:
    plan = planned(write(tmp_path, GRID))
    first, *_, last = (case.name for case in plan.cases)
    rows = {case: {1: [coordinator(0.5)], 2: [coordinator(0.6)]} for case in (first, last)}
    table = make_table(plan, outcome_of(plan, rows))
    keys = ("algorithm", "hidden", "labels.count", "rounds.count")
    head, _, *lines = markdown(table).splitlines()
    assert head.split(" | ")[:5] == [f"| {keys[0]}", *map(markdown_cell, keys[1:]), "runs"]
    assert lines[0].startswith("| fedavg | \\[16\\] | 0 | 1 | 2 | ")
    assert lines[7].startswith("| fednova | \\[8, 8\\] | 0 | 2 | 2 | ")
    assert f"| {' | '.join(map(markdown_cell, keys))} | accuracy | " in markdown(table)
    text = latex(table)
    assert text.index(" & ".join(map(latex_cell, keys))) < text.index(r"fednova & {[}8, 8{]} & 0 &")
    assert r"\begin{tabular}{llllrrrrr}" in text
    assert text_rows(table)[0][0] == "CASE"
    own = [replace(case, name=f"case {number}") for number, case in enumerate(plan.cases)]
    other = replace(plan, cases=tuple(own), baseline="")
    named = markdown(make_table(other, TrialOutcome({}, {})))
    assert named.startswith("| case | runs | ")
    assert "| case 7 | 0 | " in named


def test_a_short_key_that_is_a_name_of_the_table_is_written_out() -> None:
    assert short_keys(["a.name", "b.rate", "c.seconds"], ("runs", "seconds")) == {
        "a.name": "a", "b.rate": "rate", "c.seconds": "c.seconds",
    }  # fmt: skip


def test_a_column_of_latex_has_one_unit_in_its_head(plan: Plan) -> None:
    names = ("accuracy", "bytes_up", "sent", "seconds", "work_seconds", "macro_f1", "tau_eff")
    more = {"macro_f1": 0.25, "tau_eff": 12345.6}
    outcome = one_round(
        plan,
        plain=[coordinator(0.5, sent=3 * 2**20, work_seconds=0.5, **more)],
        fast=[coordinator(0.75, sent=512 * 2**10, work_seconds=7200, **more)],
        nova=[],
    )
    text = latex(make_table(reporting(plan, *map(ReportMetric, names)), outcome))
    head, plain, fast, nova = (line.split(" & ") for line in re.findall(r"(?m)^(.*) \\\\$", text))
    assert head[2:] == [
        r"accuracy (\%)", r"bytes\_up (B)", r"sent (MiB)", "seconds (s)", r"work\_seconds (s)",
        r"macro\_f1 (\%)", r"tau\_eff",
    ]  # fmt: skip
    assert plain[2:] == ["50.00", "5", "3.00", "2.00", "0.50", "25.00", "1.235e+04"]
    assert fast[2:] == ["75.00", "5", "0.50", "2.00", "7200.00", "25.00", "1.235e+04"]
    assert nova == ["nova", "0", *[""] * 7]
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    plain_text = re.sub(r"\\[&%$#_{}]", "", body)
    assert plain_text.count("{") == plain_text.count("}")
    assert plain_text.count("$") % 2 == 0
    assert not re.search("[%#_~^±↑↓−]", plain_text)
    assert len({len(row) for row in (head, plain, fast, nova)}) == 1


# -- choices --------------------------------------------------------------------------------------


def test_the_case_with_the_best_validation_is_chosen_whatever_its_test(plan: Plan) -> None:
    outcome = one_round(
        plan,
        plain=[
            coordinator(0.9, validation_accuracy=0.5),
            coordinator(0.9, validation_accuracy=0.6),
        ],
        fast=[coordinator(0.8, validation_accuracy=0.6), coordinator(0.8, validation_accuracy=0.7)],
        nova=[coordinator(0.5, validation_accuracy=0.1), coordinator(0.5, validation_accuracy=0.1)],
    )
    by_algorithm = replace(plan, choose=ChooseSection(within=("algorithm.name",)))
    table = make_table(by_algorithm, outcome)
    assert [choice.case for choice in table.choices] == [FAST, NOVA]
    first = table.choices[0].to_json()
    assert (first["within"], first["seeds"]) == ({"algorithm.name": "fedavg"}, (1, 2))
    assert first["score"]["mean"] == pytest.approx(0.65)
    assert [row.chosen for row in table.rows] == [False, True, True]
    assert (FAST, "accuracy") in table.best(), "of the chosen cases"
    assert (PLAIN, "accuracy") not in table.best()
    assert choice_lines(table)[0] == (
        f"chosen of algorithm.name=fedavg: {FAST} (validation_accuracy 0.65 over seeds 1, 2)"
    )
    assert [row["chosen"] for row in csv_rows(cases_csv(table))] == ["False", "True", "True"]
    (choice,) = make_table(replace(plan, choose=ChooseSection()), outcome).choices
    assert choice.case == FAST
    lower = ChooseSection(by="validation_accuracy", better="lower")
    assert make_table(replace(plan, choose=lower), outcome).choices[0].case == NOVA


def test_cases_are_chosen_over_seeds_that_all_of_them_finished(plan: Plan) -> None:
    def score(value: float) -> list[Row]:
        return [coordinator(0.5, validation_loss=value)]

    runs = {
        PLAIN: {1: score(0.5), 2: score(0.1)},
        FAST: {1: score(0.4), 3: score(0.9)},
        NOVA: {1: score(0.6)},
    }
    plan = replace(plan, choose=ChooseSection(by="validation_loss"))
    (choice,) = make_table(plan, outcome_of(plan, runs)).choices
    assert (choice.case, choice.seeds) == (FAST, (1,))
    del runs[FAST], runs[NOVA]
    (choice,) = make_table(plan, outcome_of(plan, runs)).choices
    assert (choice.case, choice.seeds) == (PLAIN, (1, 2)), "others have not finished any"
    apart = {PLAIN: {1: score(0.5)}, FAST: {2: score(0.5)}}
    (choice,) = make_table(plan, outcome_of(plan, apart)).choices
    assert (choice.case, choice.seeds) == ("", ())
    assert choice_lines(make_table(plan, outcome_of(plan, {})))[0].startswith("chosen: none")


WITHIN = """
recipe = "recipe.toml"
seeds = [1, 2, 3]
baseline.algorithm.name = "fedavg"
[grid]
algorithm.name = ["fedavg", "fednova"]
training.epochs = [1, 2]
"""


def test_each_case_is_compared_with_the_one_that_differs_in_the_baselines_keys_alone(
    tmp_path: Path,
) -> None:
    plan = planned(write(tmp_path, WITHIN))
    scores = {
        "algorithm=fedavg epochs=1": (0.10, 0.20, 0.30),
        "algorithm=fedavg epochs=2": (0.60, 0.70, 0.80),
        "algorithm=fednova epochs=1": (0.15, 0.26, 0.34),
        "algorithm=fednova epochs=2": (0.59, 0.68, 0.77),
    }
    runs = {
        case: {seed: [coordinator(score)] for seed, score in enumerate(row, 1)}
        for case, row in scores.items()
    }
    table = make_table(plan, outcome_of(plan, runs))
    rows = {row.case: row for row in table.rows}
    assert [row.baseline for row in table.rows] == [
        "", "", "algorithm=fedavg epochs=1", "algorithm=fedavg epochs=2",
    ]  # fmt: skip
    few, many = (rows[f"algorithm=fednova epochs={count}"].differences for count in (1, 2))
    assert few["accuracy"].difference.mean == pytest.approx((0.05 + 0.06 + 0.04) / 3)
    assert many["accuracy"].difference.mean == pytest.approx(-0.02)
    assert rows["algorithm=fedavg epochs=2"].differences == {}, "epochs are not compared"
    best = {case for case, key in table.best() if key == "accuracy"}
    assert best == {"algorithm=fednova epochs=1", "algorithm=fedavg epochs=2"}
    assert table.baseline == "algorithm=fedavg"
    assert rows["algorithm=fednova epochs=2"].to_json()["baseline"] == "algorithm=fedavg epochs=2"
