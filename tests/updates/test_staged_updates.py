"""A release that is offered in stages: who is asked when, and when it stops and is withdrawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefed.errors import EdgeFedError
from tests.updates.releases_world import Coordinator
from tests.updates.wheels import Publisher

NAMES = [f"cam-{number:02d}" for number in range(20)]
FIRST = NAMES[4:7]
NEW, OLD = "0.2.0", "base"


@pytest.fixture
def world(tmp_path: Path) -> Coordinator:
    publisher = Publisher(tmp_path)
    publisher.publish(NEW)
    publisher.publish("0.3.0")
    made = Coordinator(tmp_path / "c", NAMES)
    made.releases.add(publisher.folder)
    return made


def begin(world: Coordinator, release: str = NEW, first: list[str] = FIRST) -> None:
    world.releases.roll_out(
        *(release, []), first=first, shares=(0.05, 0.5, 1.0), stop_at=0.34, during_run=False
    )


def asked(sent: list[tuple[str, object]]) -> set[str]:
    return {device for device, _ in sent}


def test_each_stage_begins_when_the_one_before_runs_the_release(world: Coordinator) -> None:
    begin(world)
    assert [device for device, _ in world.sent] == FIRST
    assert world.turn() == []
    for device in FIRST[:2]:
        world.report(device, NEW)
    world.report(FIRST[2], OLD, "trial")
    world.online.remove(FIRST[2])
    assert world.turn() == [], "a device on trial is not connected, and is waited for"
    world.online.add(FIRST[2])
    world.report(FIRST[2], NEW)
    second = asked([*world.turn()])
    assert len(second) == 7, "half of 20, without those that have it; 5 % are fewer than the first"
    assert not second & {*FIRST}
    for device in second:
        world.report(device, NEW)
    third = asked([*world.turn()])
    assert third == {*NAMES} - second - {*FIRST}
    for device in third:
        world.report(device, NEW)
    world.turn()
    shown = world.releases.progress()
    assert (shown["status"], shown["taken"], shown["undecided"]) == ("finished", 20, 0)
    assert world.notes[0] == "release 0.2.0 of the agent: stage 1 of 3, 3 of 20 devices"
    assert world.notes[-1] == "release 0.2.0 of the agent: finished"


def test_it_stops_at_the_first_stage_and_nobody_else_installs_it(world: Coordinator) -> None:
    begin(world)
    world.report(FIRST[0], OLD)
    world.report(FIRST[1], OLD)
    ((device, offer),) = world.turn()
    assert (device, offer.withdraw, offer.metadata) == (FIRST[2], True, {})
    assert world.releases.progress()["status"] == "stopped"
    assert world.notes[-1] == "release 0.2.0 of the agent: stopped, 2 of 3 devices refused it"
    world.report(FIRST[2], OLD)
    for name in NAMES:
        world.releases.joined(name)
    assert world.turn() == []
    assert asked([*world.sent]) == {*FIRST}


def test_owners_who_decline_are_not_waited_for_and_count_for_nothing(world: Coordinator) -> None:
    begin(world)
    world.report(FIRST[0], OLD, "off")
    world.report(FIRST[1], OLD, "waiting")
    world.report(FIRST[2], NEW)
    assert len(world.turn()) == 7
    shown = world.releases.progress()
    assert (shown["taken"], shown["refused"], shown["skipped"]) == (1, 0, 2)


def test_it_goes_on_in_the_next_process(tmp_path: Path, world: Coordinator) -> None:
    begin(world)
    again = Coordinator(tmp_path / "c", NAMES)
    assert again.releases.progress()["asked"] == 3
    for device in FIRST:
        world.report(device, NEW)
    again = Coordinator(tmp_path / "c", NAMES)
    assert len(again.turn()) == 7
    assert again.releases.progress()["taken"] == 3


def test_a_rollout_is_replaced_and_its_undecided_devices_get_it_no_more(
    world: Coordinator,
) -> None:
    begin(world)
    world.report(FIRST[0], NEW)
    world.turn()
    before = len(world.sent)
    begin(world, "0.3.0", [FIRST[1]])
    offers = dict(world.sent[before:])
    assert len(offers) == len(world.sent[before:]), "each device gets one message"
    assert {device: offer.withdraw for device, offer in offers.items()} == {
        FIRST[1]: False,
        FIRST[2]: True,
    }
    assert offers[FIRST[1]].release == "0.3.0"


def test_another_offer_to_a_device_takes_it_out_of_the_rollout(world: Coordinator) -> None:
    begin(world)
    world.releases.offer("0.3.0", [FIRST[0]], during_run=False)
    for device in FIRST[1:]:
        world.report(device, NEW)
    assert FIRST[0] not in asked([*world.turn()])
    assert world.releases.progress()["skipped"] == 1


def test_a_rollout_that_cannot_be(world: Coordinator) -> None:
    with pytest.raises(EdgeFedError, match="No release was rolled out yet"):
        world.releases.progress()
    for release, first, code in (("9.9", FIRST, "release.unknown"), (NEW, ["x"], "device.unknown")):
        with pytest.raises(EdgeFedError) as refused:
            begin(world, release, first)
        assert refused.value.code == code
    assert world.sent == []
