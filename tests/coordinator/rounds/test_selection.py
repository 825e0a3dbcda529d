"""The choice of devices and their local work in whole runs, on virtual devices."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from edgefed.algorithms.composed.registry import make
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.algorithms.interface.member import Member
from edgefed.algorithms.selection.base import Candidate, Selector, SelectorSettings
from edgefed.algorithms.selection.measurements import Measurements, measured_row
from edgefed.algorithms.selection.registry import SELECTORS
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.exchanges.recorded_order import RecordedOrder
from edgefed.coordinator.reports.logged_tables import logged_tables
from edgefed.coordinator.rounds.reply_stats import ReplyStats
from edgefed.coordinator.storage.run_store import Store
from edgefed.data.sets.given import given_data
from edgefed.errors import EdgeFedError, UnknownNameError
from edgefed.events.base.method_tables import TableView
from edgefed.events.history.early_stopping import MEASURED
from edgefed.learn.base.types import Array
from edgefed.process.clock import SystemClock
from edgefed.simulator.run import Simulation
from edgefed.wire.message_parts import WorkCost

DEVICES, COHORT, ROUNDS = 9, 3, 6
RATE = 0.05
INPUTS = {"a": 1.0, "b": -0.5, "c": 0.25}
TARGETS = {"a": 1.0, "b": -2.0, "c": 3.0}
COUNTS = {"a": 1, "b": 3, "c": 2}


def recipe(selection: dict[str, Any], **tables: dict[str, Any]) -> Recipe:
    base: dict[str, dict[str, Any]] = {
        "selection": selection,
        "model": {"name": "mlp", "hidden": [8]},
        "data": {"limit": 200, "partition": "quantity", "alpha": 2.0, "min_samples": 4},
        "rounds": {"count": ROUNDS, "cohort": COHORT},
        "simulation": {"devices": DEVICES, "workers": 1},
        "evaluation": {"every": 0, "confusion": False},
    }
    names = {*base, *tables}
    return Recipe.model_validate(
        {name: {**base.get(name, {}), **tables.get(name, {})} for name in names}
    )


def rows_of(plan: Recipe, folder: Path) -> list[dict[str, Any]]:
    """Run a recipe, and return its rows with what was measured."""
    ended = Simulation(plan, folder, SystemClock()).run()
    assert ended.record.status == "finished", ended.record.reason
    with closing(Store(folder, durable=False)) as store:
        rows = store.rounds(ended.record.run, details=True)
    check_table(logged_tables(ended.folder), rows)
    return rows


def check_table(tables: Iterable[TableView], rows: list[dict[str, Any]]) -> None:
    """Check that the table of measurements has every round of a run."""
    (table,) = (view.table for view in tables if view.table.name == "measurements")
    counts = Counter(device for row in rows for device in row[MEASURED])
    assert {row.key: row.cells[0] for row in table.rows} == counts


def asked(rows: list[dict[str, Any]]) -> list[set[str]]:
    return [set(row[MEASURED]) for row in rows]


def test_the_highest_losses_of_the_last_answers_are_asked(tmp_path: Path) -> None:
    rows = rows_of(recipe({"name": "power-of-choice", "candidates": 1000.0}), tmp_path)
    known: dict[str, float] = {}
    for row in rows:
        chosen = row[MEASURED]
        assert len(chosen) == COHORT
        losses = sorted(known.values(), reverse=True)
        new = [device for device in chosen if device not in known]
        assert len(new) == min(COHORT, DEVICES - len(known)), "those without a loss come first"
        assert (
            sorted((known[device] for device in chosen if device in known), reverse=True)
            == (losses[: COHORT - len(new)])
        )
        known |= {device: values[0] for device, values in chosen.items()}
    assert len(known) == DEVICES
    assert all(values[1] is None for row in rows for values in row[MEASURED].values()), (
        "without virtual time, seconds are those of this machine"
    )


def test_in_turn_every_device_is_asked_equally_often(tmp_path: Path) -> None:
    sets = asked(rows_of(recipe({"name": "round-robin"}), tmp_path))
    turns = [set.union(*sets[first : first + 3]) for first in range(0, ROUNDS, 3)]
    assert all(len(turn) == DEVICES for turn in turns)


def test_a_device_rests_while_there_are_enough_others(tmp_path: Path) -> None:
    sets = asked(rows_of(recipe({"name": "oort", "rest": 2}), tmp_path))
    for number in range(2, ROUNDS):
        assert not sets[number] & (sets[number - 1] | sets[number - 2])
    longer = asked(rows_of(recipe({"name": "oort", "rest": 5}), tmp_path / "longer"))
    assert all(len(chosen) == COHORT for chosen in longer), "rested or not, a cohort is full"
    for number in range(2, ROUNDS):
        assert not longer[number] & longer[number - 1]


def test_a_random_choice_is_the_one_without_the_table(tmp_path: Path) -> None:
    def digest(plan: Recipe, folder: Path) -> str:
        return Simulation(plan, folder, SystemClock()).run().record.weights_digest

    plain = recipe({})
    assert digest(plain, tmp_path / "a") == digest(recipe({"name": "random"}), tmp_path / "b")
    with closing(Store(tmp_path / "a", durable=False)) as store:
        row = store.rounds(store.runs()[0].run, details=True)[0]
    assert MEASURED not in row


def test_devices_beyond_the_cohort_are_chosen_too(tmp_path: Path) -> None:
    plan = recipe(
        {"name": "power-of-choice"},
        rounds={"count": 3, "over_selection": 0.5},
        speeds={"seconds_per_sample": 0.1, "spread": 1.0},
    )
    rows = rows_of(plan, tmp_path)
    for row in rows:
        assert len(row[MEASURED]) == 5
        assert sum(bool(values) for values in row[MEASURED].values()) == COHORT


def test_slow_devices_are_avoided(tmp_path: Path) -> None:
    file = tmp_path / "speeds.csv"
    slow = {f"device-{number:02d}" for number in range(3)}
    file.write_text(
        "device,seconds_per_sample\n"
        + "".join(f"device-{n:02d},{10.0 if n < 3 else 1.0}\n" for n in range(DEVICES))
    )
    rows = rows_of(
        recipe(
            {"name": "oort"},
            data={"partition": "iid"},
            rounds={"count": 16},
            speeds={"file": str(file)},
        ),
        tmp_path / "run",
    )
    late = [device for chosen in asked(rows)[10:] for device in chosen]
    assert sum(device in slow for device in late) / len(late) < 0.1
    seconds = {device: values[1] for row in rows for device, values in row[MEASURED].items()}
    samples = 200 // DEVICES
    assert seconds["device-00"] == pytest.approx(10 * samples, rel=0.1)


@pytest.mark.parametrize(
    ("tables", "code"),
    [
        ({"rounds": {"cohort": 0}}, "selection.unfit"),
        ({"rounds": {"cohort": 0, "mode": "buffered", "buffer": 2}}, "selection.unfit"),
        ({"privacy": {"clip": 1.0, "epsilon": 8.0, "mechanism": "local"}}, "selection.unfit"),
        (
            {
                "secure_aggregation": {"enabled": True},
                "rounds": {"cohort": 8},
                "wire": {"uplink": "fp32"},
            },
            "selection.unfit",
        ),
        ({"selection": {"candidates": 0.5}}, "recipe.value"),
        ({"selection": {"candidate": 3}}, "recipe.unknown_key"),
        ({"selection": {"name": "power-of-choise"}}, "selection.unknown"),
    ],
)
def test_what_does_not_go_together_is_refused(tables: dict[str, Any], code: str) -> None:
    base = recipe({"name": "power-of-choice"}).model_dump()
    merged = {name: {**base[name], **table} for name, table in tables.items()}
    plan = Recipe.model_validate({**base, **merged})
    with pytest.raises(EdgeFedError) as refused:
        make(plan)
    assert refused.value.code == code
    assert refused.value.hint


def test_a_population_is_refused_with_any_choice() -> None:
    privacy = {"clip": 1.0, "epsilon": 8.0, "mechanism": "central", "population": 9}
    with pytest.raises(EdgeFedError, match=r"selection.rest does not go with privacy.population"):
        make(recipe({"rest": 1}, privacy=privacy))


def test_a_misspelled_selector_is_named() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'round-robin'"):
        make(recipe({"name": "roundrobin"}))


BUFFERED = {"cohort": 0, "mode": "buffered", "buffer": 2, "concurrency": 3}


def test_free_devices_of_buffered_rounds_are_chosen_too(tmp_path: Path) -> None:
    plan = recipe(
        {"name": "round-robin"},
        data={"partition": "iid"},
        rounds={**BUFFERED, "count": 10},
        speeds={"seconds_per_sample": 0.1},
    )
    counts = Counter(device for chosen in asked(rows_of(plan, tmp_path)) for device in chosen)
    assert len(counts) == DEVICES
    with closing(Store(tmp_path, durable=False)) as store:
        rows = store.rounds(store.runs()[0].run, details=True)
    assert all(sum(bool(values) for values in row[MEASURED].values()) == 2 for row in rows)
    assert max(counts.values()) - min(counts.values()) <= 2


def test_a_device_whose_answer_was_too_old_was_asked_too(tmp_path: Path) -> None:
    rounds = {**BUFFERED, "count": 10, "buffer": 1, "max_staleness": 0}
    plan = recipe({"name": "round-robin"}, rounds=rounds, speeds={"seconds_per_sample": 0.1})
    rows = rows_of(plan, tmp_path)
    for row in rows:
        assert set(row[MEASURED]) == {settled[0] for settled in row["settled"]}
    assert any(not values for row in rows for values in row[MEASURED].values())


def test_a_buffered_run_needs_its_own_limit() -> None:
    limited = {**BUFFERED, "concurrency": 3}
    make(recipe({"name": "round-robin"}, rounds=limited))
    with pytest.raises(EdgeFedError, match=r"rounds\.concurrency = 0"):
        make(recipe({"name": "round-robin"}, rounds={**limited, "concurrency": 0}))


def test_exchanges_before_training_are_not_measured(tmp_path: Path) -> None:
    plan = recipe(
        {"name": "round-robin"},
        algorithm={"name": "fedmix"},
        training={"seconds": 5.0},
        speeds={"seconds_per_sample": 0.1},
    )
    rows = rows_of(plan, tmp_path)
    assert {len(row[MEASURED]) for row in rows} == {COHORT}
    with closing(Store(tmp_path, durable=False)) as store:
        run = store.runs()[0].run
        assert all(MEASURED not in row for row in store.rounds(run))


# -- local work -----------------------------------------------------------------------------------


def test_a_time_budget_gives_each_device_the_steps_that_it_can_do(tmp_path: Path) -> None:
    file = tmp_path / "speeds.csv"
    file.write_text(
        "device,seconds_per_sample,uplink\ndevice-00,4.0,1000\ndevice-01,1.0,0\ndevice-02,0.01,0\n"
    )
    plan = recipe(
        {},
        data={"partition": "iid", "limit": 120},
        training={"epochs": 5, "batch_size": 4, "seconds": 60.0},
        rounds={"count": 4, "cohort": 0},
        simulation={"devices": 3},
        speeds={"file": str(file)},
    )
    rows = rows_of(plan, tmp_path / "run")
    samples, batch = 40, 4
    first = {device: values[2] for device, values in rows[0][MEASURED].items()}
    assert set(first.values()) == {samples // batch}, "one epoch before the first measurement"
    last = rows[-1][MEASURED]
    assert last["device-00"][2] < last["device-01"][2] < last["device-02"][2]
    assert last["device-02"][2] == 5 * samples // batch, "at most all epochs"
    step = 4.0 * batch
    for device, steps_within in (("device-00", step), ("device-01", 1.0 * batch)):
        seconds = last[device][1]
        assert 60 - 2 * steps_within < seconds <= 60 + 1e-6


def test_a_budget_counts_the_samples_of_short_batches(tmp_path: Path) -> None:
    """Seven samples in one batch, a second each: two steps are 14 seconds."""
    plan = recipe(
        {},
        data={"partition": "iid", "limit": 14},
        training={"epochs": 10, "batch_size": 16, "seconds": 15.0},
        rounds={"count": 4, "cohort": 0},
        simulation={"devices": 2},
        speeds={"seconds_per_sample": 1.0},
    )
    rows = rows_of(plan, tmp_path)
    measured = [row[MEASURED]["device-00"][1:] for row in rows]
    assert measured == [[7.0, 1], [14.0, 2], [14.0, 2], [14.0, 2]]


@pytest.mark.parametrize(
    ("training", "steps"),
    [
        ({"seconds": 0.5}, [5, 1, 1]),
        ({"seconds": 1e6}, [5, 15, 15]),
        ({"seconds": 1e6, "max_steps": 7}, [5, 7, 7]),
        ({"seconds": 12.0, "max_steps": 7}, [5, 3, 3]),
    ],
)
def test_a_budget_leaves_one_step_and_other_limits_hold(
    training: dict[str, Any], steps: list[int], tmp_path: Path
) -> None:
    plan = recipe(
        {},
        data={"partition": "iid", "limit": 40},
        training={"epochs": 3, "batch_size": 4, **training},
        rounds={"count": 3, "cohort": 0},
        simulation={"devices": 2},
        speeds={"seconds_per_sample": 1.0},
    )
    assert [row[MEASURED]["device-00"][2] for row in rows_of(plan, tmp_path)] == steps


def test_a_device_without_a_limit_of_time_does_all_epochs(tmp_path: Path) -> None:
    file = tmp_path / "speeds.csv"
    file.write_text("device,seconds_per_sample\ndevice-00,0\n")
    plan = recipe(
        {},
        data={"partition": "iid", "limit": 40},
        training={"epochs": 3, "batch_size": 4, "least_epochs": 3, "seconds": 1.0},
        rounds={"count": 2, "cohort": 0},
        simulation={"devices": 1},
        speeds={"file": str(file)},
    )
    rows = rows_of(plan, tmp_path / "run")
    assert [row[MEASURED]["device-00"][2] for row in rows] == [10, 30], "both limits hold"


@pytest.mark.parametrize("steps", [1e30, -1e30, 0.5])
def test_a_device_that_reports_any_steps_does_not_end_the_run(steps: float, tmp_path: Path) -> None:
    known = Measurements()
    stats = ReplyStats()
    metrics = {"loss": 1.0, "steps": steps}
    reply = SimpleNamespace(device="device-00", samples=5, metrics=metrics, cost=WorkCost())
    stats.accept(reply, 2.0)  # type: ignore[arg-type]
    known.add({"round": 1, MEASURED: measured_row(["device-00"], stats.answers)})
    plan = recipe({}, training={"seconds": 5.0, "epochs": 3}, rounds={"count": 5, "cohort": 0})
    algorithm = make(plan)
    roster = known.paced((Member("device-00", 5),))
    weights: dict[str, Array] = {"w": np.zeros(2, np.float32)}
    planned = algorithm.plan(algorithm.start(weights, roster, 1), roster, 1)
    assert isinstance(planned, Exchange)
    params = planned.questions[0].params
    assert all(0 < value < 2**31 for value in params.values())


@pytest.mark.parametrize("name", ["ifca", "fedmoe"])
def test_every_kind_of_training_is_shortened(name: str, tmp_path: Path) -> None:
    training = {"epochs": 6, "batch_size": 4}

    def digest(folder: str, **more: int) -> str:
        plan = recipe(
            {},
            algorithm={"name": name},
            data={"limit": 60, "partition": "iid"},
            training={**training, **more},
            rounds={"count": 1, "cohort": 0},
            simulation={"devices": 2},
        )
        return Simulation(plan, tmp_path / folder, SystemClock()).run().record.weights_digest

    every = digest("all")
    assert digest("same", least_epochs=6) == every
    assert digest("fewer", least_epochs=1) != every


@pytest.mark.parametrize(
    ("tables", "code"),
    [
        ({"training": {"seconds": 5.0}}, "training.seconds"),
        (
            {
                "training": {"seconds": 5.0},
                "speeds": {"seconds_per_sample": 0.1},
                "secure_aggregation": {"enabled": True},
                "wire": {"uplink": "fp32"},
                "rounds": {"cohort": 0},
            },
            "training.seconds",
        ),
        (
            {
                "training": {"seconds": 5.0},
                "speeds": {"seconds_per_sample": 0.1},
                "privacy": {"clip": 1.0, "epsilon": 8.0, "mechanism": "local"},
            },
            "training.seconds",
        ),
    ],
)
def test_a_time_budget_needs_time_and_steps(
    tables: dict[str, Any], code: str, tmp_path: Path
) -> None:
    with pytest.raises(EdgeFedError) as refused:
        Simulation(recipe({}, **tables), tmp_path, SystemClock())
    assert refused.value.code == code


def test_an_exchange_before_training_has_no_limit_of_work() -> None:
    plan = recipe({}, algorithm={"name": "fedmix"}, training={"seconds": 5.0}, rounds={"cohort": 0})
    algorithm = make(plan)
    roster = (Member("device-00", 50, (1, 8, 8), 10), Member("device-01", 50, (1, 8, 8), 10))
    weights: dict[str, Array] = {"w": np.zeros(2, np.float32)}
    planned = algorithm.plan(algorithm.start(weights, roster, 1), roster, 1)
    assert isinstance(planned, Exchange)
    assert planned.preparatory
    assert not any({"work_epochs", "work_steps"} & each.params.keys() for each in planned.questions)


def test_a_row_that_gets_its_scores_later_keeps_its_measurements(tmp_path: Path) -> None:
    plan = recipe(
        {"name": "round-robin"},
        rounds={**BUFFERED, "count": 6},
        evaluation={"on": "devices", "every": 1, "confusion": False},
        simulation={"holdout": 0.2},
        speeds={"seconds_per_sample": 0.1},
    )
    rows = rows_of(plan, tmp_path)
    assert any(row.get("device_accuracy") is not None for row in rows[:-1])
    assert all(row[MEASURED] for row in rows)


def test_a_run_with_a_time_budget_cannot_be_repeated(tmp_path: Path) -> None:
    plan = recipe({}, training={"seconds": 5.0}, speeds={"seconds_per_sample": 0.1})
    with pytest.raises(EdgeFedError) as refused:
        Simulation(plan, tmp_path, SystemClock(), order=RecordedOrder({}, {}))
    assert refused.value.code == "order.seconds"


def test_the_fewest_epochs_are_at_most_the_epochs() -> None:
    with pytest.raises(ValidationError, match="must be at most epochs, which is 2"):
        recipe({}, training={"epochs": 2, "least_epochs": 3})


def local(start: Array, device: str, epochs: int) -> Array:
    """Return (w, b) after so many passes, in float64; the loss is (w x + b - t)²."""
    inputs, weights = np.array([INPUTS[device], 1.0]), start.copy()
    for _ in range(epochs * COUNTS[device]):
        weights -= RATE * 2 * (weights @ inputs - TARGETS[device]) * inputs
    return weights


def regression(algorithm: str, rounds: int, folder: Path) -> tuple[Array, float]:
    """Return the weights after some rounds, and the effective number of steps of the last."""
    plan = Recipe.model_validate(
        {
            "algorithm": {"name": algorithm},
            "model": {"name": "mlp", "hidden": []},
            "training": {
                "loss": "squared_error",
                "epochs": 4,
                "least_epochs": 2,
                "batch_size": 1,
                "learning_rate": RATE,
            },
            "rounds": {"count": rounds},
            "wire": {"downlink": "fp32", "uplink": "fp32"},
            "simulation": {"workers": 1},
            "evaluation": {"on": "coordinator"},
        }
    )
    data = {
        device: (
            np.full((COUNTS[device], 1), INPUTS[device], np.float32),
            np.full((COUNTS[device], 1), TARGETS[device], np.float32),
        )
        for device in INPUTS
    }
    test = (np.ones((2, 1), np.float32), np.ones((2, 1), np.float32))
    record = (
        Simulation(plan, folder, SystemClock(), given=given_data(data, test, plan)).run().record
    )
    assert record.status == "finished", record.reason
    with closing(Store(folder, durable=False)) as store:
        checkpoint = store.checkpoint(record.run)
        row = store.rounds(record.run)[-1]
    assert checkpoint is not None
    weights = checkpoint.state.groups["weights"]
    both = np.append(weights["out.weight"].ravel(), weights["out.bias"]).astype(np.float64)
    return both, row.get("tau_eff", 0.0)


@pytest.mark.parametrize("algorithm", ["fedavg", "fednova"])
def test_drawn_epochs_are_the_works_of_the_devices(algorithm: str, tmp_path: Path) -> None:
    """Exactly one combination of epochs explains each merge, computed in float64."""
    states = [regression(algorithm, rounds, tmp_path / str(rounds)) for rounds in (1, 2, 3)]
    total = sum(COUNTS.values())
    seen = set[int]()
    for (start, _), (after, effective) in itertools.pairwise(states):
        explained = []
        for epochs in itertools.product((1, 2, 3, 4, 5), repeat=3):
            works = dict(zip(INPUTS, epochs, strict=True))
            deltas = {k: local(start, k, works[k]) - start for k in INPUTS}
            steps = {k: works[k] * COUNTS[k] for k in INPUTS}
            mean_steps = sum(COUNTS[k] * steps[k] for k in INPUTS) / total
            if algorithm == "fednova":
                rates = {k: mean_steps * deltas[k] / steps[k] for k in INPUTS}
            else:
                rates = deltas
            expected = start + sum(COUNTS[k] * rates[k] for k in INPUTS) / total
            if np.allclose(after, expected, rtol=0, atol=2e-6):
                explained.append(epochs)
                assert effective in (0.0, pytest.approx(mean_steps))
        assert len(explained) == 1
        seen.update(explained[0])
    assert seen == {2, 3, 4}


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (lambda devices: [devices[0]] * 3, "it did not name 3 of 9 devices"),
        (lambda devices: ["nobody", *devices[:2]], "it did not name 3 of 9 devices"),
        (lambda devices: devices[99], "IndexError: list index out of range"),
    ],
)
def test_a_selector_that_fails_ends_the_run_with_its_name(
    order: Callable[[list[str]], list[str]],
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken(Selector[SelectorSettings]):
        name = "broken"
        summary = "one that fails"

        def order(
            self, candidates: Sequence[Candidate], count: int, number: int, rng: np.random.Generator
        ) -> Sequence[str]:
            return order([candidate.device for candidate in candidates])

    monkeypatch.setitem(SELECTORS, Broken.name, Broken)
    record = Simulation(recipe({"name": "broken"}), tmp_path, SystemClock()).run().record
    assert (record.status, record.error) == ("failed", "selection.plugin")
    assert record.reason == f"The selector 'broken' of EdgeFed failed: {why}."
