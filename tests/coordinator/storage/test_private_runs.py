"""Differentially private runs in the engine: restarts, discarded merges, quorums, rows, budgets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.composed.registry import make
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.algorithms.private.private_updates import PRIVACY
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.storage.run_store import Store
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.sharing.random_words import RandomWords, operating_system_words
from edgefed.sharing.update_accounting import Releases, epsilon_of
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.exchanges.test_resume import Fuse, PowerCut
from tests.coordinator.fleets import TamperedFleet
from tests.run_fixture import COARSE, recipe, shards
from tests.support.private_randomness import of_round

NOISE = 2.0


def plan(count: int = 3, mechanism: str = "central", **sections: Any) -> Recipe:
    privacy = {"mechanism": mechanism, "noise_multiplier": NOISE, **sections.pop("privacy", {})}
    more = {"count": count, **sections.pop("rounds", {})}
    return recipe(wire=COARSE, rounds=more, privacy=privacy, **sections)


def seeded(chosen: Recipe) -> CompleteAlgorithm[Any]:
    return make(chosen, randomness=of_round)


def cost(count: int, multiplier: float = NOISE) -> float:
    return epsilon_of([Releases(count, multiplier)], 1e-5)


def test_every_round_and_the_run_tell_epsilon_so_far(world: MakeWorld) -> None:
    here = world(plan())
    assert here.engine().run().status == "finished"
    assert [row["epsilon"] for row in here.rows] == [cost(1), cost(2), cost(3)]
    assert [event["epsilon"] for event in here.seen("scored")] == [cost(1), cost(2), cost(3)]
    assert here.record.epsilon == cost(3)
    assert all(row["train_loss"] is None for row in here.rows)


def test_a_run_without_privacy_tells_none(world: MakeWorld) -> None:
    here = world(recipe())
    here.engine().run()
    assert here.record.epsilon is None
    assert all("epsilon" not in row for row in here.rows)


def test_a_killed_run_goes_on_with_its_epsilon_and_its_bits(world: MakeWorld) -> None:
    chosen = plan(privacy={"adaptive": True})
    whole = world(chosen)
    whole.engine(algorithm=seeded(chosen)).run()
    for passes in range(0, 40, 3):
        here, fuse = world(chosen), Fuse(passes)

        def tamper(
            _: OpenExchange, replies: Iterator[Delivered], fuse: Fuse = fuse
        ) -> Iterator[Delivered]:
            for each in replies:
                fuse()
                yield each

        fleet = TamperedFleet(here.devices, tamper)
        try:
            here.engine(fleet, algorithm=seeded(chosen)).run()
        except PowerCut:
            here.engine(algorithm=seeded(chosen)).run()
        else:
            break
        assert here.record.weights_digest == whole.record.weights_digest
        assert [row["epsilon"] for row in here.rows] == [row["epsilon"] for row in whole.rows]
        assert here.record.epsilon == cost(3)
    assert passes > 8


class Recorded:
    """The operating system's words, and how often a round's noise was drawn."""

    def __init__(self) -> None:
        self.drawn: list[tuple[int, str]] = []

    def __call__(self, number: int, purpose: str) -> RandomWords:
        self.drawn.append((number, purpose))
        return operating_system_words


def test_a_merge_that_was_not_committed_is_never_released(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut between merge and commit: the merge is done again with other noise, and only that counts.

    No weights leave the coordinator between the two, so nobody sees two noises on one sum.
    """
    chosen = plan()
    here, noise = world(chosen), Recorded()
    merged: list[Any] = []
    sent: list[Any] = []
    commit = Store.commit

    def cut(self: Store, record: Any, state: Any, *args: Any, **keys: Any) -> Any:
        if state.round == 2:
            merged.append(state)
            sent.append([event for event in here.events if event.kind == "exchange"][-1])
            raise PowerCut
        return commit(self, record, state, *args, **keys)

    monkeypatch.setattr(Store, "commit", cut)
    with pytest.raises(PowerCut):
        here.engine(algorithm=make(chosen, randomness=noise)).run()
    monkeypatch.setattr(Store, "commit", commit)
    lost = merged[0]
    store = here.store()
    kept = store.checkpoint(here.run)
    assert kept is not None
    assert kept.state.round == 1
    assert kept.state.params[PRIVACY]["epsilon"] == here.record.epsilon == cost(1)
    asked_before = here.record.exchanges
    assert [each.round for each in kept.open] == [2], "nothing was asked after the lost merge"

    seen: list[Any] = []

    def keep(self: Store, record: Any, state: Any, *args: Any, **keys: Any) -> Any:
        seen.append(state)
        return commit(self, record, state, *args, **keys)

    monkeypatch.setattr(Store, "commit", keep)
    assert here.engine(algorithm=make(chosen, randomness=noise)).run().status == "finished"
    again = next(state for state in seen if state.round == 2)
    assert noise.drawn.count((2, "noise")) == 2
    name = next(iter(again.groups["weights"]))
    assert not np.array_equal(again.groups["weights"][name], lost.groups["weights"][name])
    assert here.record.epsilon == cost(3)
    assert here.record.exchanges == asked_before + 1


def silent(first: int) -> Any:
    """Return a fleet's tampering: only one device answers the first so many exchanges."""

    def tamper(opened: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        for place, each in enumerate(replies):
            if opened.index < first and place:
                return
            yield each

    return tamper


@pytest.mark.parametrize(("mechanism", "releases"), [("central", 1), ("local", 3)])
def test_rounds_that_missed_their_quorum_count_where_they_release(
    world: MakeWorld, mechanism: str, releases: int
) -> None:
    """Centrally, a discarded merge releases nothing; a device's own noisy update has left it."""
    here = world(plan(1, mechanism, rounds={"quorum": 1.0, "retries": 2}))
    record = here.engine(TamperedFleet(here.devices, silent(2))).run()
    assert record.status == "finished", record.reason
    assert here.record.epsilon == cost(releases)


def test_a_budget_ends_a_run_whose_devices_released_too_often(world: MakeWorld) -> None:
    chosen = plan(
        3,
        "local",
        rounds={"quorum": 1.0, "retries": 2},
        privacy={"epsilon": cost(3) + 0.01},
    )
    here = world(chosen)
    record = here.engine(TamperedFleet(here.devices, silent(2))).run()
    assert (record.status, record.error) == ("failed", "privacy.budget")
    assert here.record.epsilon == cost(3)
    assert len(here.rows) == 1


def test_tasks_carry_the_noise_that_the_budget_needs(world: MakeWorld) -> None:
    chosen = recipe(privacy={"mechanism": "local", "epsilon": 9.0}, evaluation={"on": "devices"})
    here = world(chosen, shards((5, 9, 6, 4), tested=3))
    told: dict[str, Any] = {}

    def tamper(opened: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        told[opened.name] = opened.tasks[0].privacy
        yield from replies

    assert here.engine(TamperedFleet(here.devices, tamper)).run().status == "finished"
    multiplier = told["fit"]["noise_multiplier"]
    assert cost(3, multiplier) <= 9.0 < cost(3, multiplier * 0.998)
    assert told["evaluate"] == {}
    assert here.record.epsilon == cost(3, multiplier)
