"""A small synthetic table, executed completely."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from edgefed.api.recipe_source import checked
from edgefed.errors import DataError, RecipeError, UnknownNameError
from edgefed.reproduce.measure import entries, scored, verdicts
from edgefed.reproduce.outputs import summary, text, write_outputs, write_recipes
from edgefed.reproduce.plan import LEFT_OUT, Study, fetched, make_study
from edgefed.reproduce.table import PaperColumn, PaperRow, PaperScore
from edgefed.simulator.sweep.results import TrialResult
from edgefed.simulator.sweep.trials import TrialOutcome, run_trials
from tests.cli.commands import loaded
from tests.reproduce import tiny
from tests.run_fixture import Ticking

pytest.importorskip("sklearn", reason="the digits are not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reproduced")


@pytest.fixture(scope="module")
def study(folder: Path) -> Study:
    return tiny.study(folder, tiny.PLAIN, tiny.HELD, tiny.ABSENT)


@pytest.fixture(scope="module")
def outcome(study: Study, folder: Path) -> TrialOutcome:
    return run_trials(study.plan(), folder, Ticking())


def test_a_cell_is_the_set_up_what_varies_the_row_and_its_own(study: Study) -> None:
    recipes = {cell.case.name: cell.case.recipe for cell in study.cells}
    assert [*recipes] == [
        "digits, E = 1 / FedAvg",
        "digits, E = 1 / FedProx",
        "digits, E = 3 / FedAvg",
        "digits, E = 3 / FedProx",
    ]
    last = recipes["digits, E = 3 / FedProx"]
    assert last.training.epochs == 3
    assert last.algorithm.settings() == {"mu": 0.1}
    assert recipes["digits, E = 1 / FedProx"].algorithm.settings() == {}
    assert {recipe.training.learning_rate for recipe in recipes.values()} == {0.5}
    assert {recipe.name for recipe in recipes.values()} == {"tiny-table1"}


def test_a_row_that_this_version_cannot_run_is_told(study: Study, outcome: TrialOutcome) -> None:
    assert study.missing == {"Unheard of": "there is no algorithm 'unheard-of'"}
    assert "Unheard of: there is no algorithm 'unheard-of'" in text(study, outcome)
    odd = PaperRow("Odd", {"algorithm.name": "fedavg", "algorithm.spin": 1})
    made = tiny.study(Path(), tiny.PLAIN, odd)
    assert made.missing == {"Odd": "fedavg has no setting 'spin'"}


def test_a_row_that_is_left_out_is_not_run_and_told(folder: Path, outcome: TrialOutcome) -> None:
    made = tiny.study(folder, left_out={"FedProx": "too dear"})
    assert {cell.row.label for cell in made.cells} == {"FedAvg"}
    assert "FedProx: too dear" in text(made, outcome)
    words = {verdict.word for verdict in verdicts(made, outcome) if "FedProx" in verdict.claim}
    assert words == {"unknown"}


def test_the_environment_changes_no_table(
    study: Study, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEFED_TRAINING__LEARNING_RATE", "0.1")
    again = tiny.study(folder, tiny.PLAIN, tiny.HELD, tiny.ABSENT)
    assert again.cells == study.cells


def test_a_wrong_recipe_is_refused_before_any_run(folder: Path) -> None:
    wrong = PaperRow("FedProx", {"algorithm.name": "fedprox", "algorithm.mu": -1})
    with pytest.raises(RecipeError, match=r"algorithm\.mu"):
        tiny.study(folder, wrong)


def test_the_numbers_are_those_of_the_runs(study: Study, outcome: TrialOutcome) -> None:
    trials = list(study.plan().trials())
    for entry in entries(study, outcome):
        own = [t.digest for t in trials if t.case is entry.cell.case]
        found = [outcome.results[digest].accuracy or 0 for digest in own]
        assert entry.accuracy.mean == pytest.approx(sum(found) / 2)
        assert entry.accuracy.count == 2
        assert entry.failed == 0
    few, many = (e for e in entries(study, outcome) if e.cell.row.label == "FedAvg")
    assert few.accuracy.mean != many.accuracy.mean
    assert few.rounds.count > 0
    assert few.rounds.mean == 1, "and they have two"
    runs = [outcome.results[t.digest] for t in trials if t.case is few.cell.case]
    assert (
        few.bytes_to.mean == sum(r.history[0]["sent"] + r.history[0]["received"] for r in runs) / 2
    )
    assert few.bytes.mean == pytest.approx(2 * (few.bytes_to.mean or 0), rel=0.1)
    assert many.bytes_to.count == 0
    assert many.rounds.count == 0, "nobody gets all samples right"
    assert (few.published, many.published) == (None, study.table.published[0])


def test_a_difference_is_told_only_of_the_papers_own_set_up(
    folder: Path, outcome: TrialOutcome
) -> None:
    for exact in (False, True):
        made = tiny.study(folder, exact=exact)
        entry = next(e for e in entries(made, outcome) if e.published is not None)
        assert entry.accuracy.mean is not None
        points = 100 * entry.accuracy.mean - 50.0
        assert entry.difference == (pytest.approx(points) if exact else None)
        shown = text(made, outcome)
        assert ("DIFFERENCE" in shown) is exact
        assert (f"{points:+.1f}" in shown.split("CLAIM")[0]) is exact


def test_a_score_is_the_mean_of_the_last_tests(outcome: TrialOutcome) -> None:
    result: TrialResult = next(iter(outcome.results.values()))
    scores = [0.1, None, 0.8, 0.7, None]
    rows = [{"round": k, "accuracy": each, "device_accuracy": 0.3} for k, each in enumerate(scores)]
    made = result.model_copy(update={"history": tuple(rows)})
    assert scored(made, PaperScore()) == 0.7
    assert scored(made, PaperScore(last=2)) == pytest.approx(0.75)
    assert scored(made, PaperScore(last=4)) is None
    assert scored(made, PaperScore("device_accuracy", 5)) == pytest.approx(0.3)


def test_the_best_test_of_all_rounds_and_the_last_within_the_bytes_of_another_run(
    study: Study, outcome: TrialOutcome
) -> None:
    """By hand: 100 bytes a round; the reference moves 350, which the third round does not pass."""
    result = next(iter(outcome.results.values()))
    tests = (0.2, 0.7, None, 0.5)
    history = tuple(
        {"round": number, "accuracy": accuracy, "sent": 60, "received": 40}
        for number, accuracy in enumerate(tests, 1)
    )
    made = result.model_copy(update={"history": history})
    assert scored(made, PaperScore("best_accuracy")) == 0.7
    equal = PaperScore("equal_bytes_accuracy")
    for limit, accuracy in ((350, 0.7), (400, 0.5), (199, 0.2), (99, None)):
        reference = result.model_copy(update={"bytes_up": limit - 9, "bytes_down": 9})
        assert scored(made, equal, reference) == accuracy
    assert scored(made, equal) is None

    column = replace(study.scaled.columns[0], score=equal)
    cells = tuple(
        replace(cell, column=column)
        for cell in study.cells
        if cell.column is study.scaled.columns[0]
    )
    scaled = replace(study.scaled, columns=(column,))
    first, other = entries(replace(study, scaled=scaled, cells=cells), outcome)
    plain = entries(study, outcome)[0]
    assert first.accuracy == plain.accuracy, "the first row is its own reference"
    assert other.accuracy.count == plain.accuracy.count


def test_the_files_say_the_same(study: Study, outcome: TrialOutcome, folder: Path) -> None:
    place = folder / "table"
    write_outputs(study, outcome, place)
    told = json.loads((place / "table.json").read_text())
    assert told == json.loads(json.dumps(summary(study, outcome, place)))
    with (place / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["column"], row["row"]) for row in rows] == [
        (cell["column"], cell["row"]) for cell in told["cells"]
    ]
    for row, cell in zip(rows, told["cells"], strict=True):
        assert float(row["accuracy_mean"]) == cell["accuracy"]["mean"]
        assert row["published"] == ("" if cell["published"] is None else str(cell["published"]))
    assert len((place / "runs.csv").read_text().splitlines()) == 1 + 8
    pictures = sorted(path.name for path in place.glob("*.svg"))
    names = ("01-digits-e-1", "02-digits-e-3")
    assert pictures == sorted(f"{name}{kind}.svg" for name in names for kind in ("", "-bytes"))
    assert "target" in (place / "01-digits-e-1.svg").read_text()
    drawn = (place / "01-digits-e-1-bytes.svg").read_text()
    assert "accuracy by bytes" in drawn
    assert "KiB</text>" in drawn
    assert "BYTES" in text(study, outcome).splitlines()[2]


def test_a_failed_run_is_counted_and_the_rest_is_told(folder: Path) -> None:
    crowd = {"simulation.devices": 5000}
    columns = (tiny.FEW, PaperColumn("too many", "E = 10", {**tiny.SETUP, **crowd}))
    made = tiny.study(folder, tiny.PLAIN, columns=columns)
    outcome = run_trials(made.plan(), folder, Ticking())
    few, many = entries(made, outcome)
    assert (few.accuracy.count, few.failed) == (2, 0)
    assert (many.accuracy.count, many.failed, many.accuracy.mean) == (0, 2, None)
    assert "0, 2 failed" in text(made, outcome)
    assert [each["seed"] for each in summary(made, outcome, folder)["failures"]] == [1, 2]


def test_tables_share_the_runs_that_are_the_same(study: Study, outcome: TrialOutcome) -> None:
    assert outcome.failures == {}
    other = tiny.study(Path(), tiny.PLAIN, columns=(tiny.MANY,))
    digests = {trial.digest for trial in other.plan().trials()}
    assert digests <= {trial.digest for trial in study.plan().trials()}


def test_what_is_to_be_known_of_the_data_stands_beside_the_table(
    study: Study, outcome: TrialOutcome, folder: Path
) -> None:
    noted = replace(study, notes=("the images were compressed",))
    assert text(noted, outcome).endswith("Notes\n  the images were compressed")
    assert summary(noted, outcome, folder)["notes"] == ["the images were compressed"]
    assert "Notes" not in text(study, outcome)


def test_seeds_in_place_of_the_tables(folder: Path) -> None:
    made = make_study(tiny.table(), "smoke", checked, seeds=(7, 7, 9), scratch=folder)
    assert made.seeds == (7, 9)


def test_a_part_of_a_table_is_told_as_a_part(folder: Path, outcome: TrialOutcome) -> None:
    made = make_study(
        *(tiny.table(), "smoke", checked),
        rows=["fedavg"],
        columns=["E = 10"],
        scratch=folder,
    )
    assert [cell.case.name for cell in made.cells] == ["digits, E = 3 / FedAvg"]
    left = {"Ensemble": "too dear", "FedProx": LEFT_OUT, "digits, E = 1": LEFT_OUT}
    assert made.scaled.left_out == left
    assert f"FedProx, digits, E = 1: {LEFT_OUT}" in text(made, outcome)
    asked = [c for c in made.table.claims if "FedProx" not in {term.row for term in c.terms}]
    assert {verdict.claim for verdict in verdicts(made, outcome)} == {c.text for c in asked}


@pytest.mark.parametrize(("rows", "columns"), [(["FedPrax"], []), ([], ["E = 11"])])
def test_an_unknown_part_names_the_nearest(
    rows: list[str], columns: list[str], folder: Path
) -> None:
    with pytest.raises(UnknownNameError, match="did you mean") as caught:
        make_study(tiny.table(), "smoke", checked, rows=rows, columns=columns, scratch=folder)
    assert caught.value.code == "reproduce.part"


def test_data_of_a_column_that_is_not_asked_for_need_not_be_there(folder: Path) -> None:
    far = PaperColumn("CIFAR-10", "E = 1", {**tiny.SETUP, "data.name": "cifar10"})
    both = tiny.table(tiny.PLAIN, columns=(far, tiny.MANY))
    with pytest.raises(DataError):
        make_study(both, "smoke", checked, data=folder, scratch=folder)
    made = make_study(both, "smoke", checked, columns=["E = 10"], data=folder, scratch=folder)
    assert len(made.cells) == 1


FAR = PaperColumn("CIFAR-10", "E = 1", {**tiny.SETUP, "data.name": "cifar10"}, optional=True)


def test_an_optional_column_without_data_is_left_out_and_told(
    folder: Path, outcome: TrialOutcome
) -> None:
    both = tiny.table(tiny.PLAIN, columns=(FAR, tiny.MANY))
    made = make_study(both, "smoke", checked, data=folder, scratch=folder)
    assert [cell.case.name for cell in made.cells] == ["digits, E = 3 / FedAvg"]
    assert "CIFAR-10: CIFAR-10 is not in" in text(made, outcome)
    with pytest.raises(DataError, match="CIFAR-10 is not in"):
        make_study(both, "smoke", checked, columns=["E = 1"], data=folder, scratch=folder)


def test_an_optional_column_that_cannot_be_downloaded_is_left_out_and_told(
    folder: Path, tmp_path: Path
) -> None:
    blocked = tmp_path / "data"
    blocked.write_text("a file where the data would be kept")
    made = tiny.study(folder, tiny.PLAIN, columns=(FAR, tiny.MANY))
    assert len(made.cells) == 2
    kept = fetched(made, blocked)
    assert [cell.case.name for cell in kept.cells] == ["digits, E = 3 / FedAvg"]
    assert [column.label for column in kept.scaled.columns] == ["digits, E = 3"]
    assert "cannot be downloaded" in kept.scaled.left_out["CIFAR-10"]
    needed = replace(FAR, optional=False)
    for columns in ((FAR,), (needed, tiny.MANY)):
        with pytest.raises(DataError, match="cannot be downloaded"):
            fetched(tiny.study(folder, tiny.PLAIN, columns=columns), blocked)


def test_recipes_as_files_are_the_cells(study: Study, tmp_path: Path) -> None:
    paths = write_recipes(study, tmp_path)
    assert [path.name for path in paths][:2] == [
        "digits-e-1-fedavg.toml",
        "digits-e-1-fedprox.toml",
    ]
    for path, cell in zip(paths, study.cells, strict=True):
        assert loaded(path) == cell.case.recipe.model_copy(update={"seed": 1})
