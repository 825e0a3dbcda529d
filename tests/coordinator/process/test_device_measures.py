"""Counts by class and the spread over devices: summed exactly, checked, kept, and told."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgefed.coordinator.process.last_run import with_last_run
from edgefed.coordinator.process.run_views import whole_run
from edgefed.data.base.types import Shard
from edgefed.evaluation.classification import averages
from edgefed.evaluation.confusion import Confusion
from edgefed.evaluation.spread import spread
from edgefed.events.base.snapshot import Snapshot
from edgefed.files.samples import Samples
from edgefed.learn.modeling.model_building import build
from edgefed.learn.training.measures import Measures
from edgefed.learn.training.trainer import Trainer
from edgefed.sharing.policy import Policy
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.fleets import TamperedFleet, exact, forged, told, with_blob
from tests.run_fixture import World, recipe, samples, shards

ON_DEVICES = {"on": "devices"}
BOTH = {"on": "both"}
TESTED = (5, 3, 8, 1)
"""Held-out samples of each device: a mean over devices is not one over samples."""


def held() -> tuple[Shard, ...]:
    return tuple(
        Shard(samples(9, 10 + place), samples(count, 50 + place), 3)
        for place, count in enumerate(TESTED)
    )


def silent(parts: tuple[Shard, ...], *places: int) -> tuple[Shard, ...]:
    """Let some devices not share their labels."""
    private = Policy(share_labels=False)
    return tuple(
        replace(part, policy=private) if place in places else part
        for place, part in enumerate(parts)
    )


def by_hand(here: World, tested: list[Samples]) -> list[tuple[Confusion, float, int]]:
    """Return counts, accuracy and top-k hits of the run's model on samples, device by device."""
    deps = here.engine()._deps
    found = []
    checkpoint = deps.store.checkpoint(here.run)
    assert checkpoint is not None
    trainer = Trainer(build(deps.recipe.model, (8,), 3, 0), "cpu")
    for each in tested:
        weights = deps.algorithm.weights(checkpoint.state)
        score = trainer.evaluate(weights, each, measures=Measures(True, 2))
        assert score.confusion is not None
        assert score.accuracy is not None
        assert score.top_k_hits is not None
        found.append((score.confusion, score.accuracy, score.top_k_hits))
    return found


def test_devices_counts_are_summed_over_their_samples(world: MakeWorld) -> None:
    here = world(recipe(evaluation=ON_DEVICES), held())
    assert here.engine().run().status == "finished"
    each = by_hand(here, [part.test for part in held()])
    total = Confusion.total(counts for counts, _, _ in each)
    assert total is not None
    (kept,) = here.stores[0].confusions(here.run)
    assert kept == {
        "place": "devices",
        "round": 3,
        "devices": 4,
        "tested": 4,
        "counts": total.rows(),
    }
    row = here.rows[-1]
    assert averages(total).items() <= row.items()
    assert row["accuracy"] == pytest.approx(np.trace(total.counts) / sum(TESTED), rel=1e-12)
    assert row["top2_accuracy"] == pytest.approx(sum(hits for *_, hits in each) / sum(TESTED))
    assert spread("device_accuracy", [accuracy for _, accuracy, _ in each]).items() <= row.items()
    for name in ("balanced_accuracy", "macro_precision", "macro_f1", "top2_accuracy"):
        assert row[f"device_{name}"] == row[name]


def test_the_coordinators_scores_come_first_and_the_devices_stay(world: MakeWorld) -> None:
    here = world(recipe(evaluation=BOTH), held(), tests=40)
    here.engine().run()
    ((central, accuracy, hits),) = by_hand(here, [here.dataset.test])
    on_coordinator, on_devices = here.stores[0].confusions(here.run)
    assert (on_coordinator["place"], on_coordinator["counts"]) == ("coordinator", central.rows())
    assert (on_coordinator["devices"], on_coordinator["tested"]) == (0, 0)
    row = here.rows[-1]
    assert (row["accuracy"], row["top2_accuracy"]) == (accuracy, hits / 40)
    assert averages(central).items() <= row.items()
    devices = averages(Confusion.from_rows(on_devices["counts"]))
    assert {f"device_{name}": value for name, value in devices.items()}.items() <= row.items()
    assert devices != averages(central)


def test_each_device_weighs_the_same_where_the_recipe_says_so(world: MakeWorld) -> None:
    plan = recipe(evaluation={**ON_DEVICES, "weighting": "devices"})
    here = world(plan, held())
    here.engine().run()
    each = by_hand(here, [part.test for part in held()])
    row = here.rows[-1]
    shares = [hits / count for (_, _, hits), count in zip(each, TESTED, strict=True)]
    assert row["accuracy"] == pytest.approx(np.mean([accuracy for _, accuracy, _ in each]))
    assert row["top2_accuracy"] == pytest.approx(np.mean(shares))
    total = Confusion.total(counts for counts, _, _ in each)
    assert total is not None
    assert row["balanced_accuracy"] == averages(total)["balanced_accuracy"], "samples count once"


def test_a_device_that_does_not_share_its_labels_is_tested_and_not_counted(
    world: MakeWorld,
) -> None:
    here = world(recipe(evaluation=ON_DEVICES), silent(held(), 0, 2))
    open_handed = world(recipe(evaluation=ON_DEVICES), held())
    for each in (here, open_handed):
        assert each.engine().run().status == "finished"
    (kept,) = here.stores[0].confusions(here.run)
    assert (kept["devices"], kept["tested"]) == (2, 4)
    assert sum(map(sum, kept["counts"])) == TESTED[1] + TESTED[3]
    for name in ("accuracy", "top2_accuracy", "device_accuracy_worst"):
        assert here.rows[-1][name] == open_handed.rows[-1][name]
    assert here.record.weights_digest == open_handed.record.weights_digest
    nobody = world(recipe(evaluation=ON_DEVICES), silent(held(), 0, 1, 2, 3))
    nobody.engine().run()
    assert nobody.stores[0].confusions(nobody.run) == []
    assert "macro_f1" not in nobody.rows[-1]
    assert nobody.rows[-1]["accuracy"] == open_handed.rows[-1]["accuracy"]


def test_it_can_be_switched_off_and_changes_no_weights(world: MakeWorld) -> None:
    off = {**BOTH, "confusion": False, "top_k": 0}
    digests = []
    for section in (BOTH, off):
        here = world(recipe(evaluation=section), held())
        digests.append(here.engine().run().weights_digest)
        counted = bool(here.stores[0].confusions(here.run))
        assert counted == ("macro_f1" in here.rows[-1]) == ("top2_accuracy" in here.rows[-1])
        assert counted == (section is BOTH)
        assert "device_accuracy_worst" in here.rows[-1], "the spread needs no counts"
    assert digests[0] == digests[1]


def test_squared_error_has_no_classes(world: MakeWorld) -> None:
    def numbers(count: int, seed: int) -> Samples:
        inputs = samples(count, seed).inputs
        return Samples(inputs, np.abs(inputs[:, :3]).astype(np.float32))

    parts = tuple(Shard(numbers(9, k), numbers(4, 20 + k), 3) for k in range(2))
    plan = recipe(evaluation=ON_DEVICES, training={"loss": "squared_error", "batch_size": 4})
    here = world(plan, parts, tests=0)
    record = here.engine().run()
    assert record.status == "finished", record.reason
    assert here.rows[-1]["loss"] is not None
    assert not {"macro_f1", "device_accuracy_worst", "top2_accuracy"} & set(here.rows[-1])
    assert here.stores[0].confusions(here.run) == []


def test_events_tell_the_counts_and_each_devices_accuracy(world: MakeWorld) -> None:
    here = world(recipe(evaluation=BOTH), held())
    engine = here.engine()
    engine.run()
    told_of = here.seen("confusion", run=here.run)
    assert [(each["place"], each["round"]) for each in told_of] == [
        (place, number) for number in (1, 2, 3) for place in ("coordinator", "devices")
    ]
    kept = {each["place"]: each for each in here.stores[0].confusions(here.run)}
    for each in told_of[-2:]:
        assert {name: each[name] for name in kept[each["place"]]} == kept[each["place"]]
    snapshot = engine._deps.journal.snapshot
    assert [view.model_dump(mode="json") for view in snapshot.confusions] == [
        kept["coordinator"],
        kept["devices"],
    ]
    tests = here.seen("reply", question="evaluate", round=3)
    worst = min(each["accuracy"] for each in tests)
    assert len(tests) == 4
    assert here.rows[-1]["device_accuracy_worst"] == worst
    assert all("accuracy" not in each for each in here.seen("reply", question="fit"))


def test_only_a_test_tells_an_accuracy(world: MakeWorld) -> None:
    here = world(recipe(evaluation=ON_DEVICES, rounds={"count": 1}), held())

    def forge(each: Any) -> Any:
        metrics = {"loss": 0.5, "accuracy": 0.9}
        return told(metrics=metrics)(each) if "delta" in each.reply.blobs else each

    fleet = TamperedFleet(here.devices, forged("device-00", forge))
    here.engine(fleet).run()
    assert len(here.seen("reply", question="fit", outcome="accepted")) == 4
    assert all("accuracy" not in each for each in here.seen("reply", question="fit"))


def test_a_restart_shows_the_last_counts(world: MakeWorld) -> None:
    here = world(recipe(evaluation=BOTH), held())
    here.engine().run()
    store = here.store()
    views = with_last_run(Snapshot(), store).confusions
    assert [view.place for view in views] == ["coordinator", "devices"]
    assert all(view.round == 3 for view in views)
    shown = whole_run(store, here.run)["confusions"]
    assert [each["matrix"] for each in shown] == [
        [list(row) for row in view.counts] for view in views
    ]
    json.dumps(shown, allow_nan=False)


def test_the_metric_files_have_the_scores_as_columns(world: MakeWorld) -> None:
    here = world(recipe(evaluation=BOTH), held())
    here.engine().run()
    folder = here.stores[0].run_folder(here.run)
    rows = list(csv.DictReader(io.StringIO((folder / "metrics.csv").read_text())))
    assert len(rows) == 3
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for name in (
        "balanced_accuracy",
        "macro_precision",
        "macro_f1",
        "top2_accuracy",
        "device_macro_f1",
        "device_accuracy_worst",
        "device_accuracy_p10",
        "device_accuracy_median",
    ):
        assert float(rows[-1][name]) == lines[-1][name] == here.rows[-1][name]


GOOD = {"loss": 0.5, "accuracy": 0.4, "top_k_hits": 4.0}
"""Of the first device, which tests five samples."""


def counts(change: Mapping[tuple[int, int], int]) -> bytes:
    """Return counts of five samples, two of them right, with changes."""
    matrix = np.array([[1, 1, 0], [1, 1, 0], [0, 1, 0]], np.int64)
    for cell, add in change.items():
        matrix[cell] += add
    return exact({"counts": matrix})


@pytest.mark.parametrize(
    ("metrics", "blob", "reason"),
    [
        ({}, counts({}), ""),
        ({}, counts({(0, 0): -2, (0, 1): 2}), "it counts fewer than no samples"),
        ({}, counts({(2, 2): 1}), "it counts 6 true labels of 5 samples"),
        ({}, counts({(0, 0): -1, (0, 1): 1}), "it counts 1 right predictions, its accuracy 2"),
        ({}, exact({"counts": np.zeros((4, 4), np.int64)}), "confusion: .*int64.4, 4. instead"),
        ({}, exact({"counts": np.ones((3, 3), np.float32)}), "confusion: .*float32"),
        ({}, exact({"other": np.ones((3, 3), np.int64)}), "confusion: .*'other' is not expected"),
        ({"accuracy": 1.2}, counts({}), "its accuracy is 1.2"),
        ({"accuracy": -0.2}, counts({}), "its accuracy is -0.2"),
        ({"top_k_hits": 1.0}, counts({}), "1.0 top-k hits of 5 samples, 2 of them right"),
        ({"top_k_hits": 6.0}, counts({}), "6.0 top-k hits of 5 samples"),
        ({"top_k_hits": 2.5}, counts({}), "2.5 top-k hits of 5 samples"),
    ],
)
def test_a_test_whose_numbers_do_not_fit_together_is_rejected(
    world: MakeWorld, metrics: dict[str, float], blob: bytes, reason: str
) -> None:
    here = world(recipe(evaluation=ON_DEVICES, rounds={"count": 1}), held())

    def forge(each: Any) -> Any:
        if "delta" in each.reply.blobs:
            return each
        changed = with_blob(blob, "confusion")(each)
        return told(metrics={**GOOD, **metrics})(changed)

    fleet = TamperedFleet(here.devices, forged("device-00", forge))
    assert here.engine(fleet).run().status == "finished"
    verdicts = [(outcome, why) for device, outcome, why in fleet.verdicts if device == "device-00"]
    (kept,) = here.stores[0].confusions(here.run)
    if not reason:
        assert verdicts[-1] == ("accepted", "")
        assert kept["devices"] == 4
        return
    outcome, why = verdicts[-1]
    assert outcome == "rejected"
    assert re.search(reason, why), why
    assert (kept["devices"], kept["tested"]) == (3, 3)


def test_a_test_of_no_samples_or_without_its_top_k_hits_is_rejected(world: MakeWorld) -> None:
    for changes in ({"samples": 0}, {"metrics": {"loss": 0.5, "accuracy": 0.4}}):
        here = world(recipe(evaluation=ON_DEVICES, rounds={"count": 1}), held())

        def forge(each: Any, changes: dict[str, Any] = changes) -> Any:
            return each if "delta" in each.reply.blobs else told(**changes)(each)

        fleet = TamperedFleet(here.devices, forged("device-00", forge))
        here.engine(fleet).run()
        assert [each for each in fleet.verdicts if each[1] == "rejected"], changes


def test_counts_that_were_not_asked_for_are_rejected(world: MakeWorld) -> None:
    off = {**ON_DEVICES, "confusion": False}
    here = world(recipe(evaluation=off, rounds={"count": 1}), held())

    def forge(each: Any) -> Any:
        return each if "delta" in each.reply.blobs else with_blob(counts({}), "confusion")(each)

    fleet = TamperedFleet(here.devices, forged("device-00", forge))
    here.engine(fleet).run()
    assert ("device-00", "rejected", "it contains confusion, which was not requested") in (
        fleet.verdicts
    )


@pytest.mark.parametrize("name", ["fedavg", "fedmoe", "ifca", "fedmix", "fedma", "ensemble"])
def test_every_way_of_testing_counts(world: MakeWorld, name: str) -> None:
    settings = {"fedmoe": {"experts": 2}, "ifca": {"clusters": 2}}.get(name, {})
    plan = recipe(algorithm={"name": name, **settings}, evaluation=ON_DEVICES, rounds={"count": 1})
    here = world(plan, held())
    record = here.engine().run()
    assert record.status == "finished", record.reason
    (kept,) = here.stores[0].confusions(here.run)
    assert (kept["devices"], sum(map(sum, kept["counts"]))) == (4, sum(TESTED))
    right = sum(row[label] for label, row in enumerate(kept["counts"]))
    weighed = here.rows[-1]["device_accuracy_worst"]
    assert 0 <= weighed <= 1
    if here.engine()._deps.algorithm.evaluation_weighting == "samples":
        assert record.accuracy == pytest.approx(right / sum(TESTED))


def test_personal_weights_are_counted_too(world: MakeWorld) -> None:
    personal = {"preset": "fedper", "fine_tune_epochs": 1}
    plan = recipe(personal=personal, evaluation=ON_DEVICES, rounds={"count": 2})
    here = world(plan, shards((9, 6), tested=4))
    record = here.engine().run()
    assert record.status == "finished", record.reason
    (kept,) = here.stores[0].confusions(here.run)
    assert sum(map(sum, kept["counts"])) == 8
