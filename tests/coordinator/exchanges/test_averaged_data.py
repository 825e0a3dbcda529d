"""Averaged data in a whole run: how the engine uses it, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.data.base.types import Shard
from edgefed.errors import RecipeError
from edgefed.sharing.policy import Policy
from edgefed.simulator.run import Simulation
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.fleets import Forge, TamperedFleet, exact, forged, told, with_blob
from tests.run_fixture import SHAPE, Ticking, World, recipe, shards

CODED = {"downlink": "int8", "uplink": "int8"}


def silent(parts: tuple[Shard, ...]) -> list[Shard]:
    """Return the same devices, none of which shares."""
    return [replace(part, policy=Policy(share_means=False)) for part in parts]


def digest(here: World) -> str:
    record = here.engine().run()
    assert record.status == "finished", record.reason
    return record.weights_digest


def test_an_exchange_aside_moves_no_draw_of_the_others(world: MakeWorld) -> None:
    """With cohorts, stochastic codes and device tests, of which each draws with a seed."""
    how: dict[str, Any] = {"wire": CODED, "rounds": {"cohort": 2}, "evaluation": {"on": "both"}}
    parts = silent(shards((5, 9, 6, 4), tested=3))
    mixed = world(recipe(algorithm={"name": "fedmix"}, **how), parts)
    plain = world(recipe(algorithm={"name": "fedavg"}, **how), parts)
    assert digest(mixed) == digest(plain)
    assert mixed.record.preparatory_exchanges == 1
    assert mixed.record.exchanges == plain.record.exchanges + 1


def test_averages_are_not_counted_among_a_rounds_answers(world: MakeWorld) -> None:
    here = world(recipe(algorithm={"name": "naivemix"}))
    digest(here)
    assert [row["replies"] for row in here.rows] == [4, 4, 4]
    assert len(here.seen("reply", question="mean", outcome="accepted")) == 4
    refusing = world(recipe(algorithm={"name": "naivemix"}), silent(shards((5, 9, 6, 4))))
    digest(refusing)
    assert [row["late"] for row in refusing.rows] == [0, 0, 0]
    assert len(refusing.seen("reply", question="mean", outcome="refused")) == 4


FALSE: dict[str, tuple[Forge, str]] = {
    "NaN in a metric": (told(metrics={"entries": float("nan"), "group": 5.0}), "metric entries"),
    "infinity in a metric": (told(metrics={"entries": 1.0, "group": float("inf")}), "group"),
    "more than it holds": (told(metrics={"entries": 9.0, "group": 5.0}), "holds 1 entries"),
    "no averages": (told(blobs={}), "it does not contain means"),
    "too large": (
        with_blob(exact({"inputs": np.full((1, *SHAPE), 2e6, np.float32)}), role="means"),
        "means inputs holds 2e+06, more than 1e+06",
    ),
}


@pytest.mark.parametrize("name", FALSE)
def test_false_averages_are_rejected_and_the_run_goes_on_without_them(
    world: MakeWorld, name: str
) -> None:
    forge, reason = FALSE[name]
    here = world(recipe(algorithm={"name": "fedmix"}))

    def tamper(exchange: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        lies = forged("device-01", forge)(exchange, replies)
        return lies if exchange.name == "mean" else replies

    assert here.engine(TamperedFleet(here.devices, tamper)).run().status == "finished"
    (rejected,) = here.seen("reply", outcome="rejected")
    assert (rejected["device"], rejected["question"], rejected["shared"]) == (
        "device-01",
        "mean",
        None,
    )
    assert reason in rejected["reason"]
    assert len(here.seen("reply", question="fit", outcome="accepted")) == 12
    notes = [note["text"] for note in here.seen("note")]
    assert "3 of 4 devices shared averaged data: 3 entries in all" in notes


def test_a_reply_to_training_shares_nothing_whatever_it_says(world: MakeWorld) -> None:
    here = world(recipe())
    lies = forged("device-01", told(metrics={"loss": 1.0, "entries": 3.0, "group": 2.0}))
    here.engine(TamperedFleet(here.devices, lies)).run()
    assert {reply["shared"] for reply in here.seen("reply")} == {None}


def tokens(path: Path) -> Path:
    """Write sequences of tokens and the one that follows each."""
    rng = np.random.default_rng(1)
    arrays = {"x_train": (60, 6), "y_train": (60,), "x_test": (20, 6), "y_test": (20,)}
    made = {name: rng.integers(0, 5, shape) for name, shape in arrays.items()}
    np.savez(path, vocabulary=np.array(5), **made)  # type: ignore[arg-type]
    return path


MIXING = pytest.mark.parametrize("name", ["fedmix", "naivemix", "localmix", "globalmix"])


@MIXING
def test_tokens_are_refused_before_any_device_is_asked(name: str, world: MakeWorld) -> None:
    model = {"name": "lstm", "hidden": 4, "layers": 1}
    here = world(recipe(model=model, algorithm={"name": name}))
    record = here.engine().run()
    assert (record.status, record.error) == ("failed", "algorithm.tokens")
    assert record.reason.startswith(f"{name} mixes inputs, but this model's inputs are tokens")
    assert record.hint
    assert not {"exchange", "reply", "round"} & {event.kind for event in here.events}


@MIXING
def test_a_simulation_refuses_tokens_before_anything_is_written(name: str, tmp_path: Path) -> None:
    plan = Recipe.model_validate(
        {
            "model": {"name": "lstm", "hidden": 4, "layers": 1},
            "algorithm": {"name": name},
            "data": {"name": "npz", "path": str(tokens(tmp_path / "text.npz")), "partition": "iid"},
            "simulation": {"devices": 2, "workers": 1},
        }
    )
    with pytest.raises(RecipeError, match="inputs are tokens") as refused:
        Simulation(plan, tmp_path / "state", Ticking())
    assert refused.value.code == "algorithm.tokens"
    assert not (tmp_path / "state").exists()
