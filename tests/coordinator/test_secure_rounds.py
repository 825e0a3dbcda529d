"""Rounds of secure aggregation on the engine: losses, retries, restarts, and who tells what."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.worker.outcomes import Outcome
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.exchanges.test_resume import Fuse, PowerCut, cut_in_replies, cut_in_time
from tests.coordinator.fleets import Tamper, TamperedFleet, delta_of, exact, with_blob
from tests.run_fixture import EXACT, World, recipe, shards

TEN = (5, 9, 6, 4, 7, 8, 5, 3, 6, 4)
LOST = ("device-02", "device-07")
PHASES = ("secure_keys", "secure_shares", "fit", "secure_unmask")


def plan(secure: bool = True, **sections: Any) -> Recipe:
    table = {"enabled": secure, **sections.pop("secure_aggregation", {})}
    rounds = {"count": 2, **sections.pop("rounds", {})}
    return recipe(secure_aggregation=table, wire=EXACT, rounds=rounds, **sections)


def lost_from(name: str, *devices: str, attempts: int = 100) -> Tamper:
    """Lose devices' replies from an exchange of a round on, in its first attempts."""

    def tamper(asked: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        late = asked.name in PHASES and PHASES.index(asked.name) >= PHASES.index(name)
        gone = devices if late and asked.attempt < attempts else ()
        return (each for each in replies if each.reply.device not in gone)

    return tamper


def plain_digest(world: MakeWorld, *devices: str, **sections: Any) -> str:
    here = world(plan(secure=False, **sections), shards(TEN))
    record = here.engine(TamperedFleet(here.devices, lost_from("fit", *devices))).run()
    assert record.status == "finished"
    return record.weights_digest


@pytest.mark.parametrize("moment", ["secure_shares", "fit"])
def test_with_devices_lost_in_any_phase_the_result_is_the_plain_one(
    world: MakeWorld, moment: str
) -> None:
    here = world(plan(), shards(TEN))
    fleet = TamperedFleet(here.devices, lost_from(moment, *LOST))
    record = here.engine(fleet).run()
    assert record.status == "finished", record.reason
    assert record.weights_digest == plain_digest(world, *LOST)
    assert [row["replies"] for row in here.rows] == [8, 8]
    assert [each.name for each in fleet.asked] == list(PHASES) * 2
    assert {each.attempt for each in fleet.asked} == {0}
    (told, *_) = here.seen("note", level="info")
    assert told["text"] == (
        "secure aggregation: summed the updates of 8 of 10 devices, the threshold is 7"
    )


def test_a_cohort_that_is_drawn_is_the_plain_one(world: MakeWorld) -> None:
    rounds = {"cohort": 6, "over_selection": 0.3}
    here = world(plan(rounds=rounds), shards(TEN))
    assert here.engine().run().status == "finished"
    assert here.record.weights_digest == plain_digest(world, rounds=rounds)


def test_the_rows_tell_the_loss_of_all_and_events_that_of_nobody(world: MakeWorld) -> None:
    here, there = world(plan(), shards(TEN)), world(plan(secure=False), shards(TEN))
    here.engine().run()
    there.engine().run()
    for row, wanted in zip(here.rows, there.rows, strict=True):
        assert row["train_loss"] == pytest.approx(wanted["train_loss"], abs=2**-15)
        assert (row["accuracy"], row["replies"]) == (wanted["accuracy"], wanted["replies"])
    told = here.seen("reply", outcome="accepted")
    assert len(told) == 2 * 4 * 10
    assert {(each["samples"], each["loss"]) for each in told} == {(1, None)}
    details = [e["detail"] for e in here.seen("exchange", question="secure_shares", round=2)]
    assert set(details) == {"secure aggregation, 2 of 4"}


@pytest.mark.parametrize("moment", PHASES[1::2])
def test_a_phase_below_the_threshold_begins_the_round_anew(world: MakeWorld, moment: str) -> None:
    four = ("device-00", "device-03", "device-04", "device-09")
    here = world(plan(rounds={"count": 1}), shards(TEN))
    fleet = TamperedFleet(here.devices, lost_from(moment, *four, attempts=1))
    record = here.engine(fleet).run()
    assert record.status == "finished", record.reason
    failed = PHASES.index(moment) + 1
    assert [(each.name, each.attempt) for each in fleet.asked] == [
        *((name, 0) for name in PHASES[:failed]),
        *((name, 1) for name in PHASES),
    ]
    keys = [each.tasks[0].params["number"] for each in fleet.asked if each.name == "secure_keys"]
    assert keys == [1, 2]
    (warning,) = here.seen("note", level="warning")
    assert "only 6 of 10 devices answered round 1, the quorum is 7" in warning["text"]
    if moment in PHASES[:2]:  # else training took place twice, from other seeds
        assert record.weights_digest == plain_digest(world, rounds={"count": 1})
    assert here.rows[0]["replies"] == 10


def test_a_run_below_the_threshold_fails_and_never_sums_in_plain(world: MakeWorld) -> None:
    moment = "fit"
    four = ("device-00", "device-03", "device-04", "device-09")
    here = world(plan(rounds={"count": 1, "retries": 1}), shards(TEN))
    fleet = TamperedFleet(here.devices, lost_from(moment, *four))
    record = here.engine(fleet).run()
    assert (record.status, record.error, record.round) == ("failed", "round.quorum", 0)
    assert [each.attempt for each in fleet.asked if each.name == moment] == [0, 1]
    groups = {role for each in fleet.asked for role in each.reply_roles}
    assert "delta" not in groups
    resumed = here.engine().run()
    assert resumed.status == "finished", resumed.reason


def test_a_sum_that_is_none_is_not_merged(world: MakeWorld) -> None:
    """One device changes its weight: the sum does not fit, and the round is repeated."""
    here = world(plan(rounds={"count": 1}), shards(TEN))

    def forge(asked: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        for each in replies:
            if (asked.name, asked.attempt, each.reply.device) == ("fit", 0, "device-03"):
                wire = delta_of(each, "masked")["masked"].copy()
                wire[5] ^= 1  # of the weight, which becomes 2^40 more or less
                yield with_blob(exact({"masked": wire}), "masked")(each)
            else:
                yield each

    fleet = TamperedFleet(here.devices, forge)
    record = here.engine(fleet).run()
    assert record.status == "finished", record.reason
    assert [each.attempt for each in fleet.asked] == [0, 0, 0, 0, 1, 1, 1, 1]
    (warning,) = here.seen("note", level="warning")
    assert warning["text"] == (
        "the answers of round 1 were not merged: the sum of the updates is not one of these"
        " devices: a device masked it for others; asking again"
    )
    assert here.rows[0]["replies"] == 10


def undisturbed(world: MakeWorld, chosen: Recipe) -> str:
    here = world(chosen, shards((5, 9, 6, 4)))
    assert here.engine().run().status == "finished"
    return here.record.weights_digest


@pytest.mark.parametrize("cut", [cut_in_replies, cut_in_time])
def test_cut_anywhere_the_run_ends_in_the_same_bits(world: MakeWorld, cut: Any) -> None:
    chosen = plan(rounds={"count": 1, "quorum": 1.0})
    digest = undisturbed(world, chosen)
    for passes in range(0, 400, 5 if cut is cut_in_replies else 41):
        here: World = world(chosen, shards((5, 9, 6, 4)))
        try:
            cut(here, Fuse(passes))
        except PowerCut:
            resumed = here.engine().run()
        else:
            break
        assert resumed.status == "finished", (passes, resumed.reason)
        assert resumed.weights_digest == digest, f"cut at passing {passes}"
    assert passes > 15, "nothing was cut"


def old_private(moment: str) -> dict[str, dict[str, Any]]:
    """Return a device's private state of protocol version 3, in the second session."""
    phase = dict(zip(PHASES, ("advertised", "shared", "masked", "uncovered"), strict=True))[moment]
    secrets = {"mask": "11" * 32, "channel": "22" * 32, "seed": "33" * 32}
    sets: dict[str, Any] = {"devices": [], "shares": {}, "cohort": [], "listed": []}
    record = {"number": 2, "phase": phase, "threshold": 3, **secrets, **sets}
    text = np.frombuffer(json.dumps(record).encode(), np.uint8)
    return {"secure_aggregation": {"secure_aggregation": text}}


@pytest.mark.parametrize("moment", PHASES[1::2])
def test_a_round_that_was_open_at_the_upgrade_begins_anew(
    world: MakeWorld, tmp_path: Path, moment: str
) -> None:
    """The state folders are of protocol version 3, whose coordinator was cut in round 2.

    ``tests/coordinator/secure_rounds_of_protocol_3.tar.xz`` has one for each open exchange.
    """
    with tarfile.open(Path(__file__).with_name("secure_rounds_of_protocol_3.tar.xz")) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # from 3.11.4 on
        archive.extractall(tmp_path / "before")
    chosen = plan()
    here = world(chosen, shards(TEN[:4]))
    with closing(World(tmp_path / "before" / moment, chosen, shards(TEN[:4]))) as after:
        after.run = "r-0001-0000"
        fleet = TamperedFleet(after.devices, lost_from("secure_keys"))
        for device in after.devices._devices.values():  # all have answered the open exchange
            device.keep("", Outcome(status="ok", private=old_private(moment)))
        record = after.engine(fleet).run()
        assert record.status == "finished", record.reason
        assert [each.name for each in fleet.asked] == list(PHASES)
        assert fleet.asked[0].tasks[0].params["number"] == 3
        assert [row["replies"] for row in after.rows] == [4, 4]
        if moment in PHASES[:2]:  # else training took place twice, from other seeds
            assert here.engine().run().status == "finished"
            trained = [row["train_loss"] for row in after.rows]
            assert trained == pytest.approx([row["train_loss"] for row in here.rows], abs=1e-5)
