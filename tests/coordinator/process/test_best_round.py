"""A run stops early, keeps its best round's model and checkpoints, and does so after any kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.process.run_views import whole_run
from edgefed.learn.modeling.model_description import ModelDescription, read_description
from edgefed.wire.tensors import weights_digest
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.exchanges.test_resume import Fuse, PowerCut, cut_in_time, parts
from tests.run_fixture import EXACT, World, recipe

STOPS = {"stop_patience": 2, "stop_min_change": 10.0, "best_metric": "loss"}
"""No loss improves by as much, so the third evaluation is the last."""


UNEVEN = {"learning_rate": 0.6, "batch_size": 4}
"""The third of five rounds has the highest accuracy."""


def folder(here: World) -> Path:
    return here.folder / "runs" / here.run


def description(path: Path) -> ModelDescription:
    with safe_open(path, framework="np") as file:
        return read_description(file.metadata(), path)


def digests(here: World) -> dict[str, str]:
    """Return the digest of the weights in each model file."""
    files = sorted(folder(here).rglob("*.safetensors"))
    kept = [path for path in files if not path.name.startswith("state-")]
    return {str(path.relative_to(folder(here))): weights_digest(load_file(path)) for path in kept}


def stopping(**more: Any) -> Recipe:
    rounds = {"count": 8, "checkpoint_every": 2}
    return recipe(wire=EXACT, rounds=rounds, evaluation={**STOPS, **more})


def test_a_run_without_improvement_stops_early_and_says_why(world: MakeWorld) -> None:
    here = world(stopping(), parts())
    record = here.engine().run()
    assert (record.status, record.round, record.error) == ("finished", 3, "")
    assert record.reason.startswith("stopped early: no better loss in 2 evaluations; the best is")
    ended = here.seen("run")[-1]
    assert (ended["status"], ended["reason"]) == ("finished", record.reason)
    assert len(here.rows) == 3
    without = world(recipe(wire=EXACT, rounds={"count": 3}), parts())
    assert without.engine().run().weights_digest == record.weights_digest, "the same three rounds"


def test_only_evaluations_count(world: MakeWorld) -> None:
    here = world(stopping(every=2), parts())
    assert here.engine().run().round == 6


def test_the_best_rounds_model_is_kept_with_its_round_and_score(world: MakeWorld) -> None:
    here = world(recipe(wire=EXACT, rounds={"count": 5}, training=UNEVEN), parts())
    assert here.engine().run().status == "finished"
    accuracies = [row["accuracy"] for row in here.rows]
    best = accuracies.index(max(accuracies)) + 1
    assert 1 < best < 5, "else the test shows nothing"
    found = description(folder(here) / "best.safetensors")
    assert (found.round, found.metric, found.score) == (best, "accuracy", max(accuracies))
    assert (found.run, found.shape) == (here.run, (8,))
    alone = world(recipe(wire=EXACT, rounds={"count": best}, training=UNEVEN), parts())
    assert alone.engine().run().weights_digest == found.weights_digest
    assert digests(here)["best.safetensors"] == digests(alone)["model.safetensors"]
    last = description(folder(here) / "model.safetensors")
    assert (last.round, last.metric, last.score) == (5, "", None)


def test_a_checkpoint_is_kept_every_so_many_rounds(world: MakeWorld) -> None:
    here = world(recipe(wire=EXACT, rounds={"count": 5, "checkpoint_every": 2}), parts())
    here.engine().run()
    kept = digests(here)
    names = {f"checkpoints/round-{number:04d}.safetensors" for number in (2, 4)}
    assert {name for name in kept if "/" in name} == names
    shorter = world(recipe(wire=EXACT, rounds={"count": 2}), parts())
    shorter.engine().run()
    assert kept["checkpoints/round-0002.safetensors"] == digests(shorter)["model.safetensors"]
    assert description(folder(here) / "checkpoints/round-0004.safetensors").round == 4


def test_a_run_says_which_files_hold_which_model(world: MakeWorld) -> None:
    here = world(stopping(), parts())
    here.engine().run()
    losses = [row["loss"] for row in here.rows]
    best = losses.index(min(losses)) + 1
    assert whole_run(here.stores[0], here.run)["models"] == [
        {"file": "model.safetensors", "round": 3},
        {"file": "best.safetensors", "round": best, "metric": "loss", "score": min(losses)},
        {"file": "checkpoints/round-0002.safetensors", "round": 2},
    ]


def test_cut_at_any_time_it_stops_after_the_same_round_with_the_same_files(
    world: MakeWorld,
) -> None:
    chosen = stopping(on="devices", stop_patience=1)
    straight = world(chosen, parts())
    ended = straight.engine().run()
    assert ended.round == 2
    for passes in range(0, 300, 17):
        here = world(chosen, parts())
        try:
            cut_in_time(here, Fuse(passes))
        except PowerCut:
            resumed = here.engine().run()
        else:
            break
        assert (resumed.status, resumed.round) == ("finished", 2), f"cut at passing {passes}"
        assert resumed.reason == ended.reason, f"cut at passing {passes}"
        assert digests(here) == digests(straight), f"cut at passing {passes}"
    assert passes > 40, "nothing was cut"


@pytest.mark.parametrize("written", ["best.safetensors", "checkpoints/round-0001.safetensors"])
def test_a_file_that_a_kill_prevented_is_written_by_the_next_process(
    world: MakeWorld, written: str
) -> None:
    """The round's row is on disk, and its model file is not yet."""
    first = {"best_metric": "loss", "better": "higher"}
    chosen = recipe(wire=EXACT, rounds={"count": 2, "checkpoint_every": 1}, evaluation=first)
    straight = world(chosen, parts())
    straight.engine().run()
    here = world(chosen, parts())
    store = here.store()
    engine = here.engine()
    saver = engine._models

    def cut(*_: object) -> None:
        raise PowerCut

    with pytest.MonkeyPatch.context() as patch, pytest.raises(PowerCut):
        patch.setattr(type(saver), "_write", cut)
        engine.run()
    assert not (folder(here) / written).exists()
    assert len(store.rounds(here.run)) == 1
    assert here.engine().run().status == "finished"
    assert digests(here) == digests(straight)


def test_a_best_metric_that_no_evaluation_gives_ends_the_run_at_the_first(world: MakeWorld) -> None:
    here = world(stopping(best_metric="recall_of_cats"), parts())
    record = here.engine().run()
    assert (record.status, record.error, record.round) == ("failed", "evaluation.metric", 1)
    assert "recall_of_cats" in record.reason
    assert "accuracy, loss" in record.hint
    assert "system." not in record.hint, "these series do not measure the model"


@pytest.mark.parametrize(
    ("metric", "told"),
    [("device_loss", "devices do not"), ("acuracy", "'accuracy'"), ("macro_fl", "'macro_f1'")],
)
def test_a_best_metric_that_cannot_be_is_refused_before_any_device_is_asked(
    metric: str, told: str, world: MakeWorld
) -> None:
    here = world(stopping(best_metric=metric), parts())
    record = here.engine().run()
    assert (record.status, record.error) == ("failed", "evaluation.metric")
    assert told in record.reason
    assert not here.seen("exchange")
