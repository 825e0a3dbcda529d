"""Runs side by side: results, best rounds, and only the settings that differ."""

from __future__ import annotations

from typing import Any

from edgefed.events.base.best_rounds import Best
from edgefed.events.history.known_runs import RunDetails
from edgefed.events.history.run_comparison import Setting, best, compare

RECIPE: dict[str, Any] = {
    "name": "a",
    "seed": 1,
    "algorithm": {"name": "fedavg"},
    "training": {"epochs": 1, "learning_rate": 0.1, "crop": None},
    "model": {"hidden": [8]},
}


def details(run: str = "r-1", recipe: dict[str, Any] | None = None, **fields: Any) -> RunDetails:
    return RunDetails.model_validate({"run": run, "recipe": recipe or RECIPE, **fields})


def row(number: int, **scores: float | None) -> dict[str, Any]:
    return {"round": number, **scores}


def test_only_settings_that_differ_are_listed_the_algorithm_first() -> None:
    other = {
        "name": "b",
        "seed": 1,
        "algorithm": {"name": "fedprox", "mu": 0.01},
        "training": {"epochs": 3, "learning_rate": 0.1},
        "model": {"hidden": [8, 4]},
    }
    found = compare([details(), details("r-2", other)])
    assert found.settings == (
        Setting("algorithm.name", ("fedavg", "fedprox")),
        Setting("algorithm.mu", (None, 0.01)),
        Setting("training.epochs", (1, 3)),
        Setting("model.hidden", ([8], [8, 4])),
    )
    assert found.differences() == [
        ("algorithm.name", "fedavg", "fedprox"),
        ("algorithm.mu", "-", "0.01"),
        ("training.epochs", "1", "3"),
        ("model.hidden", "[8]", "[8, 4]"),
    ]


def test_a_setting_differs_if_one_of_many_runs_has_another() -> None:
    other = {**RECIPE, "seed": 2}
    found = compare([details("r-1"), details("r-2", other), details("r-3")])
    assert found.settings == (Setting("seed", (1, 2, 1)),)
    assert compare([details(), details()]).settings == ()


def test_the_best_round_is_the_first_with_the_highest_accuracy_or_the_lowest_loss() -> None:
    rows = [
        row(1, accuracy=0.3, loss=2.0),
        row(2, accuracy=0.6, loss=1.5),
        row(3, accuracy=None, loss=None),
        row(4, accuracy=0.6, loss=float("nan")),
        row(5, accuracy=0.5, loss=1.7),
    ]
    run = details(history=rows)
    assert best(run, "accuracy") == Best(0.6, 2)
    assert best(run, "loss") == Best(1.5, 2)
    assert best(details(), "accuracy") is None


def test_a_round_that_few_devices_tested_is_not_the_best() -> None:
    judged = [
        row(1, accuracy=0.5, loss=1.5, is_best=True),
        row(2, accuracy=0.6, loss=1.0, is_best=True),
        row(3, accuracy=1.0, loss=0.1, is_best=False, compared=False),
    ]
    run = details(history=judged)
    assert (best(run, "accuracy"), best(run, "loss")) == (Best(0.6, 2), Best(1.0, 2))


def test_results_have_what_a_run_reached_and_what_it_cost() -> None:
    run = details(
        name="night", algorithm="fedavg", status="finished", round=2, rounds=5, accuracy=0.5,
        loss=1.25, epsilon=2.5, bytes_up=2048, bytes_down=1024, seconds=90.0,
        history=[row(1, accuracy=0.75, loss=1.5), row(2, accuracy=0.5, loss=1.25)],
    )  # fmt: skip
    found = {name: cells for name, *cells in compare([run, details("r-2")]).results()}
    assert found == {
        "name": ["night", "-"],
        "algorithm": ["fedavg", "-"],
        "status": ["finished", "-"],
        "rounds": ["2 of 5", "0 of 0"],
        "accuracy": ["0.5", "-"],
        "best accuracy": ["0.75 in round 1", "-"],
        "loss": ["1.25", "-"],
        "bytes up": ["2.0 KiB", "0 B"],
        "bytes down": ["1.0 KiB", "0 B"],
        "time": ["90 s", "0 s"],
        "epsilon": ["2.5", "-"],
    }


def test_without_accuracy_the_best_loss_is_told() -> None:
    run = details(loss=1.5, history=[row(1, loss=1.0), row(2, loss=1.5)])
    assert ("best loss", "1 in round 1") in compare([run]).results()
    assert [name for name, _ in compare([run]).results() if "accuracy" in name] == []


def test_json_has_values_as_they_are() -> None:
    told = compare([details("r-1", history=[row(3, accuracy=0.25)]),
                    details("r-2", {**RECIPE, "seed": 9})]).to_json()  # fmt: skip
    assert told["settings"] == [{"key": "seed", "values": {"r-1": 1, "r-2": 9}}]
    first, second = told["runs"]
    assert (first["best_accuracy"], first["best_accuracy_round"]) == (0.25, 3)
    assert (second["best_accuracy"], second["best_accuracy_round"]) == (None, None)
    assert {"run", "algorithm", "round", "rounds", "bytes_up", "seconds", "epsilon"} <= set(first)
