"""Trust scores: what changes them, quarantine, release, and what is kept on disk."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgefed.algorithms.interface.member import Member
from edgefed.config.recipes.checks_section import ChecksSection
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.devices.trust_scores import (
    ORDERED,
    RELEASED,
    Judged,
    Trust,
    TrustScores,
)
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.rounds.run_controls import RunControls
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.errors import EdgeFedError
from edgefed.events.base.snapshot import Snapshot
from edgefed.events.state.fold import SnapshotBuilder
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.fleets import (
    Forge,
    TamperedFleet,
    forged,
    silent,
    told,
    with_bits,
    with_delta,
)
from tests.run_fixture import World, recipe, shards

LIAR = "device-01"
OTHERS = ("device-00", "device-02", "device-03")
SIZES = (5, 9, 6, 4)
NAN = with_bits(0x7F, 0xC0)
NOW = "2024-05-06T07:08:09Z"
ANN = "operator.ann"
CHECKS = ChecksSection()


def judge(
    trust: TrustScores,
    number: int,
    *,
    refused: Mapping[str, str] | None = None,
    accepted: tuple[str, ...] = OTHERS,
    section: ChecksSection = CHECKS,
) -> None:
    trust.judge(Judged(f"r-1-{number}", accepted, refused or {}), section, NOW)


def refuse(trust: TrustScores, *numbers: int, section: ChecksSection = CHECKS) -> None:
    for number in numbers:
        judge(trust, number, refused={LIAR: "NaN"}, section=section)


def accept(trust: TrustScores, *numbers: int) -> None:
    for number in numbers:
        judge(trust, number, accepted=(LIAR, *OTHERS))


def test_refusals_lower_a_score_until_the_device_is_quarantined() -> None:
    trust = TrustScores()
    assert trust.of(LIAR) == Trust(LIAR, 1.0, "trusted")
    refuse(trust, 0)
    assert (trust.of(LIAR).score, trust.of(LIAR).standing) == (0.75, "suspect")
    refuse(trust, 1)
    assert (trust.of(LIAR).score, trust.of(LIAR).standing) == (0.5, "suspect")
    assert not trust.is_quarantined(LIAR)
    refuse(trust, 2)
    assert trust.of(LIAR) == Trust(LIAR, 0.25, "quarantined", "NaN", NOW, "r-1-2")
    assert trust.is_quarantined(LIAR)
    assert not any(map(trust.is_quarantined, OTHERS))


def test_accepted_replies_raise_a_score_slowly_and_no_further_than_one() -> None:
    trust = TrustScores()
    refuse(trust, 0)
    accept(trust, 1, 2)
    assert trust.of(LIAR).score == pytest.approx(0.79)
    assert trust.of(LIAR).standing == "suspect"
    accept(trust, 3)
    assert trust.of(LIAR).score == pytest.approx(0.81)
    assert trust.of(LIAR).standing == "trusted"
    accept(trust, *range(4, 40))
    assert trust.of(LIAR).score == 1.0


def test_no_accepted_reply_ends_a_quarantine() -> None:
    trust = TrustScores()
    refuse(trust, 0, 1, 2)
    accept(trust, *range(3, 60))
    assert trust.of(LIAR).standing == "quarantined"


def test_a_released_device_is_on_probation() -> None:
    trust = TrustScores()
    refuse(trust, 0, 1, 2)
    trust.release(LIAR, NOW)
    assert (trust.of(LIAR).score, trust.of(LIAR).standing) == (RELEASED, "suspect")
    refuse(trust, 3)
    assert trust.of(LIAR).standing == "quarantined"


def test_half_of_the_replies_refused_blames_nobody() -> None:
    trust = TrustScores()
    both = {LIAR: "64.1, more than 64", "device-00": "64.2, more than 64"}
    judge(trust, 0, refused=both, accepted=("device-02", "device-03"))
    assert trust.all() == []
    judge(trust, 1, refused=both, accepted=("device-02", "device-03", "device-04"))
    assert [each.device for each in trust.all()] == ["device-00", LIAR]


def test_an_exchange_counts_once() -> None:
    trust = TrustScores()
    refuse(trust, 0, 0, 0)
    assert trust.of(LIAR).score == 0.75


def test_settings_say_what_a_reply_counts() -> None:
    trust, none = TrustScores(), TrustScores()
    refuse(trust, 0, section=ChecksSection(trust_loss=0.7))
    assert trust.of(LIAR).standing == "quarantined"
    refuse(none, *range(9), section=ChecksSection(quarantine_below=0))
    assert (none.of(LIAR).score, none.of(LIAR).standing) == (0.0, "suspect")


def test_a_threshold_above_the_other_is_refused() -> None:
    with pytest.raises(ValueError, match="at least quarantine_below"):
        ChecksSection(quarantine_below=0.9)


def test_scores_are_kept_on_disk(tmp_path: Path) -> None:
    with closing(TrustScores(tmp_path)) as trust:
        refuse(trust, 0, 1, 2)
        trust.quarantine("device-02", ANN, NOW)
        before = trust.all()
    with closing(TrustScores(tmp_path)) as again:
        assert again.all() == before
        assert again.is_quarantined(LIAR)
        assert again.of("device-02").reason == f"{ORDERED}{ANN}"
        refuse(again, 2)
        assert again.all() == before, "the exchange was counted before"
        again.release(LIAR, NOW)
    with closing(TrustScores(tmp_path)) as last:
        assert last.of(LIAR).score == RELEASED


@pytest.mark.parametrize(
    ("reason", "by"),
    [
        (f"{ORDERED}{ANN}", ANN),
        ("by the operator", "an operator"),  # as an earlier version has stored it
        ("its norm is 9, more than 2 times the median (checks.norm_factor)", "checks.norm_factor"),
        ("its norm is NaN", "checks"),
    ],
)
def test_a_quarantine_names_who_ordered_it_until_the_release(reason: str, by: str) -> None:
    known = Trust(LIAR, 0.2, "quarantined", reason, NOW)
    assert known.fields()["quarantined_by"] == by
    assert known.is_ordered == (by in (ANN, "an operator"))
    assert replace(known, standing="suspect").fields()["quarantined_by"] == ""


def test_a_device_that_a_check_calls_quarantined_can_be_released() -> None:
    trust, strict = TrustScores(), ChecksSection(quarantine_below=0.7, trusted_from=0.8)
    refuse(trust, 0, 1)
    roster = (Member(LIAR, 5),)
    assert trust.exclusions(roster, strict) == {LIAR: "it is quarantined"}
    trust.release(LIAR, NOW)
    assert trust.exclusions(roster, strict) == {}
    assert trust.of(LIAR) == Trust(LIAR, RELEASED, "suspect", "", NOW, trust.of(LIAR).exchange)
    with pytest.raises(EdgeFedError, match="neither quarantined"):
        trust.release(LIAR, NOW)


def test_orders_that_change_nothing_are_refused() -> None:
    trust = TrustScores()
    with pytest.raises(EdgeFedError) as caught:
        trust.release(LIAR, NOW)
    assert caught.value.code == "device.not_quarantined"
    trust.quarantine(LIAR, ANN, NOW)
    with pytest.raises(EdgeFedError) as caught:
        trust.quarantine(LIAR, ANN, NOW)
    assert caught.value.code == "device.quarantined"


# -- in runs ---------------------------------------------------------------------------------------


def plan(**sections: Any) -> Recipe:
    return recipe(**{"rounds": {"count": 5}, **sections})


def asked(fleet: TamperedFleet) -> list[bool]:
    """Return for each round whether the liar was asked."""
    return [any(task.device == LIAR for task in each.tasks) for each in fleet.asked]


def test_a_device_whose_replies_are_refused_is_asked_three_times(world: MakeWorld) -> None:
    here = world(plan(), shards(SIZES))
    fleet, trust = TamperedFleet(here.devices, forged(LIAR, NAN)), TrustScores()
    record = here.engine(fleet, trust=trust).run()
    assert record.status == "finished"
    assert asked(fleet) == [True] * 3 + [False] * 2
    warnings = [each["text"] for each in here.seen("note", level="warning")]
    assert [text.split(":")[0] for text in warnings] == [f"{LIAR} is quarantined"]
    told = [each for each in here.seen("device", device=LIAR) if "standing" in each]
    assert [(each["trust"], each["standing"], "moved" in each) for each in told] == [
        (0.75, "suspect", True),
        (0.5, "suspect", False),
        (0.25, "quarantined", True),
    ]
    there = world(plan(), shards(SIZES))
    silenced = there.engine(TamperedFleet(there.devices, silent(LIAR))).run()
    assert record.weights_digest == silenced.weights_digest


def test_the_next_run_does_not_ask_a_quarantined_device(world: MakeWorld, tmp_path: Path) -> None:
    with closing(TrustScores(tmp_path)) as trust:
        refuse(trust, 0, 1, 2)
    here = world(plan(), shards(SIZES))
    fleet = TamperedFleet(here.devices)
    with closing(TrustScores(tmp_path)) as trust:
        assert here.engine(fleet, trust=trust).run().status == "finished"
    assert asked(fleet) == [False] * 5


@pytest.mark.parametrize(("threshold", "expected"), [(0.3, True), (0.8, False)])
def test_a_run_compares_scores_with_its_own_threshold_before_it_asks(
    world: MakeWorld, threshold: float, expected: bool
) -> None:
    """One refusal leaves 0.75, which only the stricter run quarantines."""
    trust = TrustScores()
    refuse(trust, 0)
    here = world(plan(checks={"quarantine_below": threshold, "trusted_from": 0.9}), shards(SIZES))
    fleet = TamperedFleet(here.devices)
    assert here.engine(fleet, trust=trust).run().status == "finished"
    assert asked(fleet) == [expected] * 5
    assert trust.is_quarantined(LIAR) is not expected


def test_a_run_without_another_device_says_why(world: MakeWorld) -> None:
    here = world(plan(), shards((5,)))
    trust = TrustScores()
    trust.quarantine("device-00", ANN, NOW)
    record = here.engine(trust=trust).run()
    assert record.status == "failed"
    assert "device-00: it is quarantined" in record.reason


def test_what_a_device_cannot_help_costs_no_trust(world: MakeWorld) -> None:
    def misfortunes(exchange: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        for each in replies:
            if each.reply.device == "device-00":
                continue  # it is lost
            if each.reply.device == LIAR:
                yield told(status="refused", reason="its policy", blobs={})(each)
            elif each.reply.device == "device-02":
                yield told(status="failed", reason="out of memory", blobs={})(each)
            else:
                yield each

    here = world(plan(rounds={"count": 5, "quorum": 0.25}), shards((*SIZES, 3, 3)))
    trust = TrustScores()
    assert here.engine(TamperedFleet(here.devices, misfortunes), trust=trust).run().round == 5
    assert trust.all() == []


def test_a_reply_that_comes_after_the_quarantine_is_refused(world: MakeWorld) -> None:
    trust = TrustScores()

    def in_the_middle(_: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        for each in replies:
            if each.reply.device == LIAR and not trust.is_quarantined(LIAR):
                trust.quarantine(LIAR, ANN, NOW)
            yield each

    here = world(plan(), shards(SIZES))
    fleet = TamperedFleet(here.devices, in_the_middle)
    assert here.engine(fleet, trust=trust).run().status == "finished"
    assert asked(fleet) == [True, False, False, False, False]
    refused = [each for each in fleet.verdicts if each[1] == "rejected"]
    assert refused == [(LIAR, "rejected", "its device is quarantined")]
    assert trust.of(LIAR).score == 1.0


def larger(delta_by: float) -> Forge:
    return with_delta(lambda delta: {name: delta_by * array for name, array in delta.items()})


def test_an_exchange_that_is_judged_again_after_a_restart_ends_the_same(
    world: MakeWorld, tmp_path: Path
) -> None:
    """The norms of the refused device belong to the cohort's median both times."""
    made = plan(
        checks={"norm_factor": 2.5, "trust_loss": 1.0},
        merging={"rule": "norm_clipping", "clip_factor": 0.5},
        rounds={"count": 2},
    )
    attack = forged(LIAR, larger(30))
    there = world(made, shards(SIZES))
    undisturbed = there.engine(TamperedFleet(there.devices, attack)).run()
    here = world(made, shards(SIZES))
    with closing(TrustScores(tmp_path)) as trust:
        killed_at_commit(here, TamperedFleet(here.devices, attack), trust)
    with closing(TrustScores(tmp_path)) as trust:
        assert trust.is_quarantined(LIAR)
        record = here.engine(TamperedFleet(here.devices, attack), trust=trust).run()
    assert record.status == "finished"
    assert record.weights_digest == undisturbed.weights_digest


class _KilledError(Exception):
    pass


def killed_at_commit(here: World, fleet: TamperedFleet, trust: TrustScores) -> None:
    """End an engine between the first exchange's scores and its commit."""

    def listener(event: Any) -> None:
        if event.kind == "exchange" and event.fields.get("phase") == "merge":
            raise _KilledError

    with pytest.raises(_KilledError):
        here.engine(fleet, RunControls(), listener=listener, trust=trust).run()


def test_a_dashboard_shows_who_is_quarantined_and_not_that_it_was_seen(world: MakeWorld) -> None:
    here = world(plan(), shards(SIZES))
    fleet = TamperedFleet(here.devices, forged(LIAR, NAN))
    here.engine(fleet, trust=TrustScores()).run()
    builder = SnapshotBuilder(Snapshot(fleet="tests", time=NOW))
    for event in here.events:
        builder.apply(event)
    shown = {each.device: each for each in builder.snapshot().devices}
    assert (shown[LIAR].standing, shown[LIAR].trust) == ("quarantined", 0.25)
    assert "not finite" in shown[LIAR].trust_reason
    assert shown["device-00"].standing == "trusted"
    lines = [line.text for line in builder.snapshot().lines]
    assert any(text.startswith(f"{LIAR}  quarantined, trust 0.25: delta") for text in lines)


def test_an_order_while_replies_are_judged_is_kept(tmp_path: Path) -> None:
    orders: list[threading.Thread] = []

    class Slow(dict[str, str]):
        """Why a device is refused; while it is looked up, an operator quarantines the device."""

        def __getitem__(self, device: str) -> str:
            orders.append(threading.Thread(target=trust.quarantine, args=(device, ANN, NOW)))
            orders[0].start()
            orders[0].join(1.0)  # it ends only where nothing makes it wait
            return "NaN"

    with closing(TrustScores(tmp_path)) as trust:
        judge(trust, 1, refused=Slow({LIAR: "NaN"}))
        orders[0].join()
        assert (trust.of(LIAR).standing, trust.of(LIAR).reason) == (
            "quarantined",
            f"{ORDERED}{ANN}",
        )


STRICT = {"quarantine_below": 0.6, "trusted_from": 0.8}


def test_a_run_quarantines_whom_its_threshold_does_not_admit(world: MakeWorld) -> None:
    """Its score fell in a run with a lower threshold."""
    trust = TrustScores()
    refuse(trust, 0, 1)
    assert (trust.of(LIAR).score, trust.of(LIAR).standing) == (0.5, "suspect")
    here = world(recipe(checks=STRICT), shards(SIZES))
    fleet = TamperedFleet(here.devices)
    assert here.engine(fleet, trust=trust).run().status == "finished"
    assert [len(each.tasks) for each in fleet.asked] == [3, 3, 3]
    assert trust.of(LIAR).standing == "quarantined"
    (told,) = here.seen("device", device=LIAR, moved=True)
    assert told["standing"] == "quarantined"
    trust.release(LIAR, NOW)
    again = world(recipe(checks={**STRICT, "quarantine_below": 0.7}), shards(SIZES))
    fleet = TamperedFleet(again.devices)
    again.engine(fleet, trust=trust).run()
    assert [len(each.tasks) for each in fleet.asked] == [4, 4, 4], "released, at 0.6 below 0.7"


def test_a_score_at_the_threshold_is_admitted() -> None:
    trust = TrustScores()
    refuse(trust, 0, 1)
    nobody = set[str]()
    for below, out in ((0.5, nobody), (0.0, nobody), (0.51, {LIAR}), (0.0, {LIAR})):
        section = ChecksSection(quarantine_below=below)
        assert trust.not_admitted({LIAR, "other"}, section, lambda: NOW) == out, "until a release"
        assert trust.not_admitted({"other"}, section, lambda: NOW) == nobody
