"""Replies that are compared with each other, and merged by a robust rule, in whole runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.composed.merging_check import least_devices
from edgefed.algorithms.composed.registry import built_in, make
from edgefed.algorithms.interface.member import Roster
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.devices.trust_scores import TrustScores
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.errors import UsageError, WireError
from edgefed.learn.base.types import Tensors
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.fleets import (
    Forge,
    Tamper,
    TamperedFleet,
    delta_of,
    forged,
    silent,
    told,
    with_delta,
)
from tests.run_fixture import recipe, shards

LIAR = "device-01"
SIZES = (5, 9, 6, 4, 7)
AVERAGING = (
    "ditto",
    "fedavg",
    "fedlc",
    "fedmix",
    "fedmoe",
    "fedopt",
    "fedprox",
    "fedrs",
    "globalmix",
    "ifca",
    "localmix",
    "moon",
    "naivemix",
)


def plan(**sections: Any) -> Recipe:
    return recipe(**{"rounds": {"count": 2}, **sections})


def digest(world: MakeWorld, made: Recipe, tamper: Tamper | None = None) -> str:
    here = world(made, shards(SIZES))
    record = here.engine(TamperedFleet(here.devices, tamper)).run()
    assert record.status == "finished", record.reason
    return record.weights_digest


def scaled(by: float) -> Forge:
    def change(delta: Tensors) -> Tensors:
        return {name: (by * array).astype(np.float32) for name, array in delta.items()}

    return with_delta(change)


def backwards(_: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
    yield from reversed(list(replies))


@pytest.mark.parametrize("rule", ["median", "norm_clipping"])
def test_no_rule_depends_on_the_order_of_replies(world: MakeWorld, rule: str) -> None:
    made = plan(merging={"rule": rule}, checks={"norm_factor": 3.0})
    assert digest(world, made) == digest(world, made, backwards)
    assert digest(world, made) != digest(world, plan())


def test_held_replies_are_judged_in_the_order_of_devices(world: MakeWorld) -> None:
    here = world(plan(merging={"rule": "geometric_median"}), shards(SIZES))
    fleet = TamperedFleet(here.devices, backwards)
    here.engine(fleet).run()
    judged = [device for device, _, _ in fleet.verdicts]
    assert judged == [each.device for each in here.devices.roster()] * 2


def test_a_median_round_ends_in_the_median_of_the_deltas(world: MakeWorld) -> None:
    deltas: list[Tensors] = []

    def noted(_: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        for each in replies:
            deltas.append(delta_of(each))
            yield each

    here = world(plan(rounds={"count": 1}, merging={"rule": "median"}), shards(SIZES))
    engine = here.engine(TamperedFleet(here.devices, noted))
    engine.run()
    after = here.stores[0].checkpoint(here.run)
    before = start_of(world)
    assert after is not None
    for name, weights in after.state.groups["weights"].items():
        middle = np.median([delta[name] for delta in deltas], axis=0)
        np.testing.assert_allclose(weights, before[name] + middle, atol=1e-7)


def start_of(world: MakeWorld) -> Tensors:
    """Return the weights before the first round: those that nobody's answer changes."""
    nothing = with_delta(lambda delta: {n: np.zeros_like(a) for n, a in delta.items()})
    here = world(plan(rounds={"count": 1}), shards(SIZES))

    def still(_: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        return (nothing(each) for each in replies)

    here.engine(TamperedFleet(here.devices, still)).run()
    found = here.stores[0].checkpoint(here.run)
    assert found is not None
    return dict(found.state.groups["weights"])


def test_updates_are_clipped_to_the_factor_times_the_median_norm(world: MakeWorld) -> None:
    """Both factors clip every update, so that twice the factor moves the weights twice as far."""
    before = start_of(world)

    def moved(factor: float) -> Tensors:
        merging = {"rule": "norm_clipping", "clip_factor": factor}
        here = world(plan(rounds={"count": 1}, merging=merging), shards(SIZES))
        here.engine(here.devices).run()
        after = here.stores[0].checkpoint(here.run)
        assert after is not None
        return {n: each - before[n] for n, each in after.state.groups["weights"].items()}

    once, twice = moved(0.1), moved(0.2)
    for name, step in once.items():
        np.testing.assert_allclose(twice[name], 2 * step, atol=1e-6)
    assert max(np.abs(step).max() for step in once.values()) > 1e-4


def test_clipping_to_a_large_norm_is_the_mean(world: MakeWorld) -> None:
    assert digest(world, plan(merging={"rule": "norm_clipping", "clip_norm": 1e6})) == digest(
        world, plan()
    )


@pytest.mark.parametrize(
    ("checks", "forge", "reason"),
    [
        ({"norm_factor": 5.0}, scaled(30), "more than 5 times the cohort's median"),
        ({"samples_factor": 10.0}, told(samples=900), "it counts 900 samples, more than 10 times"),
        (
            {"announced_factor": 2.0},
            told(samples=19),
            "it counts 19 samples, more than 2 times the 9 that its device announced",
        ),
    ],
    ids=["norm", "samples", "announced"],
)
def test_a_reply_out_of_proportion_is_refused_and_the_others_are_merged(
    world: MakeWorld, checks: dict[str, Any], forge: Forge, reason: str
) -> None:
    made = plan(checks={**checks, "quarantine_below": 0})
    here = world(made, shards(SIZES))
    fleet = TamperedFleet(here.devices, forged(LIAR, forge))
    record = here.engine(fleet).run()
    refused = [(device, why) for device, outcome, why in fleet.verdicts if outcome == "rejected"]
    assert [device for device, _ in refused] == [LIAR] * 2
    (setting,) = checks
    assert all(reason in why and why.endswith(f"(checks.{setting})") for _, why in refused)
    assert [each["reason"] for each in here.seen("reply", outcome="rejected")] == [
        why for _, why in refused
    ]
    assert [(row["replies"], row["late"]) for row in here.rows] == [(4, 1)] * 2
    assert record.weights_digest == digest(world, plan(), silent(LIAR))


def test_a_lost_blob_blames_no_device(world: MakeWorld) -> None:
    def lost(each: Delivered) -> Delivered:
        def read(name: str) -> bytes:
            raise WireError(f"Blob {name[:12]} is no longer in the cache.", code="wire.blob")

        return replace(each, read=read)

    here, trust = world(plan(), shards(SIZES)), TrustScores()
    fleet = TamperedFleet(here.devices, forged(LIAR, lost))
    assert here.engine(fleet, trust=trust).run().status == "finished"
    assert [device for device, outcome, _ in fleet.verdicts if outcome == "rejected"] == [LIAR] * 2
    assert trust.all() == []


def test_checks_that_refuse_nothing_change_nothing(world: MakeWorld) -> None:
    checks = {"norm_factor": 1e5, "samples_factor": 1e5, "announced_factor": 1.0}
    assert digest(world, plan(checks=checks)) == digest(world, plan())


def test_krum_waits_for_as_many_answers_as_it_needs(world: MakeWorld) -> None:
    made = plan(merging={"rule": "krum", "malicious": 2}, rounds={"count": 1, "retries": 0})
    here = world(made.model_copy(update={"rounds": plan().rounds}), shards((*SIZES, 3, 8)))
    assert here.engine().run().status == "finished"
    few = world(with_join_timeout(made), shards(SIZES))
    record = few.engine().run()
    assert (record.status, record.error) == ("failed", "run.devices")
    because = 'merging.rule = "krum" with merging.malicious = 2 needs 2f + 3 = 7 answers a round.'
    assert record.reason.startswith("Only 5 of 7 devices are there with data")
    assert record.reason.endswith(because)
    (warning,) = few.seen("note", level="warning")
    assert warning["text"] == f"{because} 5 of 7 devices are there."


def with_join_timeout(made: Recipe) -> Recipe:
    return made.model_copy(update={"rounds": made.rounds.model_copy(update={"join_timeout": 0.5})})


class Shrinking(TamperedFleet):
    """All but a few devices leave after the first exchange."""

    left = 4

    def roster(self) -> Roster:
        return super().roster()[: self.left] if self.asked else super().roster()

    def wait_for(self, devices: int, timeout: float, stop: Callable[[], bool]) -> Roster:
        return self.roster()


SECURE: dict[str, Any] = {"enabled": True}


@pytest.mark.parametrize(
    ("sections", "left", "cause"),
    [
        (
            {"merging": {"rule": "krum"}},
            4,
            'merging.rule = "krum" with merging.malicious = 1 needs 2f + 3 = 5 answers a round',
        ),
        ({"secure_aggregation": SECURE}, 1, "secure aggregation needs 2 devices a round"),
    ],
)
def test_a_round_that_too_few_are_there_for_says_which_setting_asks_for_more(
    world: MakeWorld, sections: dict[str, Any], left: int, cause: str
) -> None:
    made = plan(rounds={"count": 2, "retries": 1}, **sections)
    here = world(made, shards(SIZES))
    fleet = Shrinking(here.devices)
    fleet.left = left
    record = here.engine(fleet).run()
    assert (record.status, record.error) == ("failed", "round.quorum")
    there = "1 device" if left == 1 else f"{left} devices"
    number = record.round + 1
    told = f"nly {there} could be asked in round {number}, the quorum is {left + 1}; {cause}"
    assert record.reason == f"O{told}."
    warnings = [each["text"] for each in here.seen("note", level="warning")]
    assert any(text.endswith(f"; {cause}; asking again") for text in warnings)
    assert not any("; ;" in text for text in warnings)


@pytest.mark.parametrize(
    ("sections", "least", "because"),
    [
        ({}, 1, ""),
        ({"rounds": {"min_devices": 9}, "merging": {"rule": "krum"}}, 9, ""),
        ({"merging": {"rule": "multi_krum", "malicious": 2}}, 7, "needs 2f + 3 = 7 answers"),
        ({"secure_aggregation": SECURE}, 2, "Secure aggregation needs 2 devices a round."),
        ({"secure_aggregation": {**SECURE, "threshold": 7}}, 7, "needs 7 devices a round."),
        ({"secure_aggregation": {**SECURE, "threshold": 7}, "rounds": {"min_devices": 7}}, 7, ""),
    ],
)
def test_the_devices_that_a_run_begins_with_follow_from_its_merge(
    sections: dict[str, Any], least: int, because: str
) -> None:
    needed = least_devices(Recipe.model_validate(sections))
    assert needed.count == least
    assert because in needed.because
    assert bool(needed.because) == bool(because)
    assert needed.shortage(least) == ""
    assert bool(needed.shortage(least - 1)) == bool(because)


def test_the_algorithms_that_average_are_known() -> None:
    assert tuple(name for name, kind in built_in().items() if kind.averages_updates) == AVERAGING


@pytest.mark.parametrize("name", ["ditto", "fedmix", "fedmoe", "fedopt", "ifca"])
def test_every_algorithm_that_averages_takes_a_rule(world: MakeWorld, name: str) -> None:
    made = plan(algorithm={"name": name}, merging={"rule": "median"})
    mean = made.model_copy(update={"merging": plan().merging})
    here = world(made, shards(SIZES, tested=2))
    assert here.engine().run().status == "finished"
    there = world(mean, shards(SIZES, tested=2))
    assert there.engine().run().weights_digest != here.record.weights_digest


def test_devices_that_chose_other_models_are_not_averaged_together(world: MakeWorld) -> None:
    """What a device of the second cluster sends changes nothing of the first."""
    settings = {"name": "ifca", "clusters": 2}
    made = plan(algorithm=settings, merging={"rule": "median"}, rounds={"count": 1})
    states, choices = [], dict[str, int]()
    for tamper in (None, "other"):
        here = world(made, shards(SIZES))
        among = [device for device, chosen in sorted(choices.items()) if chosen == 1]
        attack = _all(among, scaled(20)) if tamper else None
        here.engine(TamperedFleet(here.devices, attack)).run()
        found = here.stores[0].checkpoint(here.run)
        assert found is not None
        choices = dict(found.state.params["clusters"])
        assert set(choices.values()) == {0, 1}, "the test needs both"
        states.append(found.state.groups)
    for name, weights in states[0]["cluster-0"].items():
        assert np.array_equal(weights, states[1]["cluster-0"][name])
    assert any(
        not np.array_equal(weights, states[1]["cluster-1"][name])
        for name, weights in states[0]["cluster-1"].items()
    )


def _all(devices: list[str], forge: Forge) -> Tamper:
    def tamper(_: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        for each in replies:
            attacks = each.reply.device in devices and "delta" in each.reply.blobs
            yield forge(each) if attacks else each

    return tamper


REFUSED: dict[str, tuple[Callable[[], Recipe], str]] = {
    "fedma": (
        lambda: plan(algorithm={"name": "fedma"}, merging={"rule": "median"}),
        "merging.algorithm",
    ),
    "pfnm": (
        lambda: plan(algorithm={"name": "pfnm"}, merging={"rule": "krum"}),
        "merging.algorithm",
    ),
    "ensemble": (
        lambda: plan(algorithm={"name": "ensemble"}, merging={"rule": "norm_clipping"}),
        "merging.algorithm",
    ),
    "divergence": (
        lambda: plan(algorithm={"name": "fedavg", "divergence": True}, merging={"rule": "median"}),
        "merging.divergence",
    ),
    "cohort": (
        lambda: plan(merging={"rule": "krum", "malicious": 2}, rounds={"cohort": 6}),
        "merging.cohort",
    ),
    "central privacy": (
        lambda: plan(
            merging={"rule": "median"},
            privacy={"mechanism": "central", "noise_multiplier": 1.0, "population": 9},
        ),
        "merging.privacy",
    ),
    "central privacy and checks": (
        lambda: plan(
            checks={"norm_factor": 3.0},
            merging={"rule": "norm_clipping"},
            privacy={"mechanism": "central", "noise_multiplier": 1.0, "population": 9},
        ),
        "merging.privacy",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_makes_no_sense_is_refused_before_the_run(what: str) -> None:
    made, code = REFUSED[what]
    with pytest.raises(UsageError) as caught:
        make(made())
    assert caught.value.code == code
    mean = made().model_copy(update={"merging": plan().merging, "checks": plan().checks})
    make(mean)
