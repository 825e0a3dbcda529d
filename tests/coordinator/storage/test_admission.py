"""Devices whose data do not fit the run, at its start and later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from edgefed.algorithms.interface.member import Member, Roster
from edgefed.coordinator.exchanges.device_admission import Admission
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.rounds.run_controls import RunControls
from edgefed.coordinator.storage.compatibility import DataSpec
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.data.base.class_names import renumbered
from edgefed.data.base.types import Shard
from edgefed.files.samples import Samples
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.exchanges.test_resume import Fuse, PowerCut, cut_in_time
from tests.coordinator.fleets import TamperedFleet
from tests.run_fixture import SHAPE, World, recipe, samples, shards

ABC = ("a", "b", "c")
LISTED = {"data": {"name": "none", "classes": list(ABC)}}


def named(shard: Shard, *names: str) -> Shard:
    return replace(shard, class_names=names)


def own_order(shard: Shard, *names: str) -> Shard:
    """Return the same samples as a device that numbers its classes in another order has them."""
    train, test = (renumbered(part, ABC, names) for part in (shard.train, shard.test))
    assert not np.array_equal(train.targets, shard.train.targets)
    return replace(shard, train=train, test=test, class_names=names)


def asked(fleet: TamperedFleet) -> set[str]:
    return {task.device for exchange in fleet.asked for task in exchange.tasks}


def warnings(here: World) -> list[str]:
    return [fields["text"] for fields in here.seen("note", level="warning")]


def test_equal_lists_change_no_bit_of_a_run(world: MakeWorld) -> None:
    plain = world(recipe(), shards((5, 9)))
    told = world(recipe(**LISTED), [named(each, *ABC) for each in shards((5, 9))])
    digests = [here.engine().run().weights_digest for here in (plain, told)]
    assert digests[0] == digests[1] != ""


def test_devices_that_number_otherwise_come_to_the_same_bits(world: MakeWorld) -> None:
    first, second = shards((5, 9), tested=5)
    same = world(recipe(**LISTED), [named(first, *ABC), named(second, *ABC)])
    other = world(recipe(**LISTED), [named(first, *ABC), own_order(second, "c", "a", "b")])
    one, two = (here.engine().run() for here in (same, other))
    assert one.status == two.status == "finished"
    assert one.weights_digest == two.weights_digest


def test_a_device_with_another_class_is_left_out_and_named_once(world: MakeWorld) -> None:
    parts = [named(each, *ABC) for each in shards((5, 9, 6))]
    here = world(recipe(**LISTED), [*parts, named(shards((4,))[0], "a", "b", "x")])
    fleet = TamperedFleet(here.devices)
    record = here.engine(fleet).run()
    assert (record.status, record.devices, record.class_names) == ("finished", 3, ABC)
    assert asked(fleet) == {"device-00", "device-01", "device-02"}
    assert warnings(here) == [
        "device-03 is excluded: it has classes that data.classes does not list: 'x'"
    ]
    told = [each for each in here.seen("device") if "excluded" in each]
    why = "it has classes that data.classes does not list: 'x'"
    assert told == [{"device": "device-03", "excluded": why}]
    assert here.record.spec == record.spec


class Given(TamperedFleet):
    """A fleet whose devices a test changes."""

    members: list[Member]

    def roster(self) -> Roster:
        return tuple(self.members)


def test_a_device_is_said_to_be_excluded_until_its_data_fit(world: MakeWorld) -> None:
    here = world(recipe(**LISTED), [named(each, *ABC) for each in shards((5, 9))])
    first, second = here.devices.roster()
    fleet, told = Given(here.devices), list[tuple[str, str]]()
    fleet.members = there = [first, replace(second, class_names=("a", "b", "x"))]
    plan = here.recipe, DataSpec(SHAPE, 3, ABC), lambda text: None, here.clock
    admission = Admission(fleet, *plan, excluded=lambda *change: told.append(change))
    assert [each.device for each in admission.roster()] == ["device-00"]
    assert [each.device for each in admission.roster()] == ["device-00"]
    there[1] = second
    assert len(admission.roster()) == 2
    there[0] = replace(first, samples=0)
    admission.roster()
    assert told == [
        ("device-01", "it has classes that data.classes does not list: 'x'"),
        ("device-01", ""),
        ("device-00", "it has no samples to train on"),
    ]


def test_a_device_that_was_forgotten_is_said_to_be_excluded_again(world: MakeWorld) -> None:
    here = world(recipe(**LISTED), [named(each, *ABC) for each in shards((5, 9))])
    first, second = here.devices.roster()
    fleet, seen = Given(here.devices), dict[str, str]()
    fleet.members = [first, replace(second, class_names=("a", "b", "x"))]
    plan = here.recipe, DataSpec(SHAPE, 3, ABC), lambda text: None, here.clock
    admission = Admission(fleet, *plan, excluded=seen.__setitem__, shown=lambda: seen)
    for _ in range(2):
        admission.roster()
        assert seen.pop("device-01").startswith("it has classes")


def test_a_roster_that_fitted_before_is_still_judged_by_what_has_changed(
    world: MakeWorld,
) -> None:
    """The roster of virtual devices stays the same object, whatever happens to its devices."""
    here = world(recipe(**LISTED), [named(each, *ABC) for each in shards((5, 9, 6))])
    out, many, seen = set[str](), dict[str, str](), dict[str, str]()
    plan = here.recipe, DataSpec(SHAPE, 3, ABC), lambda text: None, here.clock
    admission = Admission(
        here.devices, *plan, lambda _: out, lambda _: many, seen.__setitem__, lambda: seen
    )
    whole = admission.roster()
    assert whole is admission.roster() is here.devices.roster()
    changes: list[Callable[[], object]] = [
        partial(out.add, "device-01"),
        out.clear,
        partial(many.update, {"device-01": "too many samples"}),
        many.clear,
        partial(seen.update, {"device-01": "a reason of before a restart"}),
    ]
    for change in changes:
        change()
        left = {member.device for member in admission.roster()}
        assert ("device-01" in left) == ("device-01" not in out | set(many)), left
    unfit = world(recipe(**LISTED), [named(e, "a", "x") for e in shards((5, 9))])
    admission = Admission(unfit.devices, *plan, shown=dict)
    assert admission.roster() == admission.roster() == (), "even where the journal shows nothing"


def test_devices_are_left_out_of_a_round_by_what_they_missed(world: MakeWorld) -> None:
    here = world(recipe(**LISTED), [named(each, *ABC) for each in shards((5, 9, 6))])
    seen = dict[str, str]()
    plan = here.recipe, DataSpec(SHAPE, 3, ABC), lambda text: None, here.clock
    admission = Admission(here.devices, *plan, excluded=seen.__setitem__, shown=lambda: seen)
    missed = {"device-02": (3, 9)}
    assert len(admission.roster_without(missed, 9)) == 2
    assert len(admission.roster_without({}, 9)) == 3
    assert not any(seen.values())


class Returning(TamperedFleet):
    """After a restart of the agents, one device is there; the others come within the time."""

    waited: int = 0
    comes: bool = True

    def roster(self) -> Roster:
        return super().roster()[: None if self.comes and self.waited else 1]

    def wait_for(self, devices: int, timeout: float, stop: Callable[[], bool]) -> Roster:
        self.waited = max(self.waited, devices)
        return self.roster()


@pytest.mark.parametrize("comes", [True, False])
def test_a_run_that_goes_on_waits_for_its_devices_and_then_does_without(
    world: MakeWorld, comes: bool
) -> None:
    for passes in range(20, 100):
        here = world(recipe(rounds={"min_devices": 3, "count": 2}), shards((5, 9, 6)))
        with suppress(PowerCut):
            cut_in_time(here, Fuse(passes))
        checkpoint = here.store().checkpoint(here.run)
        if checkpoint is not None and not checkpoint.open and checkpoint.state.round == 1:
            break  # it was cut between two rounds
    else:
        pytest.fail("never cut between two rounds")
    fleet = Returning(here.devices)
    fleet.comes = comes
    assert here.engine(fleet).run().status == "finished"
    assert fleet.waited == 3
    assert {len(each.tasks) for each in fleet.asked} == {3 if comes else 1}
    assert "1 of 3 devices are there; waiting up to 60 s" in warnings(here)


def test_too_few_that_fit_fail_the_run_and_every_misfit_is_named(world: MakeWorld) -> None:
    parts = [named(shards((5,))[0], *ABC), named(shards((4,))[0], "a", "b", "x")]
    here = world(recipe(**LISTED, rounds={"min_devices": 2, "join_timeout": 0.5}), parts)
    record = here.engine().run()
    assert (record.status, record.error, record.round) == ("failed", "data.misfit", 0)
    assert "Only 1 of 2 devices fit" in record.reason
    assert "device-01: it has classes that data.classes does not list: 'x'" in record.reason


def test_lists_that_differ_fail_a_run_before_anybody_is_asked(world: MakeWorld) -> None:
    parts = [named(shards((5,))[0], *ABC), named(shards((4,))[0], "b", "c", "d")]
    here = world(recipe(), parts, tests=0)
    fleet = TamperedFleet(here.devices)
    record = here.engine(fleet).run()
    assert (record.status, record.error) == ("failed", "data.classes")
    assert record.hint.endswith('classes = ["a", "b", "c", "d"]')
    assert fleet.asked == []


class Growing(TamperedFleet):
    """Two devices are there; the third comes when somebody waits for as many."""

    there = 2

    def roster(self) -> Roster:
        return super().roster()[: self.there]

    def wait_for(self, devices: int, timeout: float, stop: Callable[[], bool]) -> Roster:
        self.there = max(self.there, devices)
        return self.roster()


def test_who_does_not_fit_is_no_reason_not_to_wait_for_who_does(world: MakeWorld) -> None:
    first, second, third = shards((5, 9, 6))
    parts = [named(first, *ABC), named(second, "a", "b", "x"), named(third, *ABC)]
    here = world(recipe(**LISTED, rounds={"min_devices": 2}), parts)
    fleet = Growing(here.devices)
    assert here.engine(fleet).run().status == "finished"
    assert asked(fleet) == {"device-00", "device-02"}


class Late(TamperedFleet):
    """Somebody joins after the first exchange."""

    def roster(self) -> Roster:
        everybody = super().roster()
        return everybody if self.asked else everybody[:-1]


def test_who_joins_a_running_run_is_held_to_its_list(world: MakeWorld) -> None:
    parts = [named(each, *ABC) for each in shards((5, 9))]
    here = world(recipe(), [*parts, named(shards((4,))[0], "a", "b", "x")], tests=0)
    fleet = Late(here.devices)
    record = here.engine(fleet).run()
    assert (record.status, record.class_names) == ("finished", ABC)
    assert asked(fleet) == {"device-00", "device-01"}
    assert len(warnings(here)) >= 1
    assert warnings(here)[0].startswith("device-02 is excluded: ")


class Alone(TamperedFleet):
    """Only the last device is there."""

    def roster(self) -> Roster:
        return super().roster()[-1:]


@pytest.mark.parametrize("names", [ABC, ()], ids=["named", "integers"])
def test_a_run_that_goes_on_keeps_its_classes_whoever_is_there(
    world: MakeWorld, names: tuple[str, ...]
) -> None:
    """Whoever is there after a restart would have other classes agreed upon."""
    rng = np.random.default_rng(1)
    fewer = Samples(rng.standard_normal((6, *SHAPE)).astype(np.float32), np.arange(6) % 2)
    parts = [named(shards((5,))[0], *names), Shard(fewer, samples(0, 1), 2, class_names=names[:2])]
    sections = {"data": {"name": "none", "classes": list(names)}}
    here = world(recipe(**sections, evaluation={"every": 0}), parts, tests=0)
    here.dataset = replace(here.dataset, classes=len(names), class_names=names, shape=())
    controls = RunControls()

    def stop(_: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        controls.stop_process()
        return replies

    here.engine(TamperedFleet(here.devices, stop), controls).run()
    assert here.record.spec is not None
    assert here.record.classes == 3
    alone = Alone(here.devices)
    assert here.engine(alone).run().classes == 3
    later = {task.device for exchange in alone.asked[1:] for task in exchange.tasks}
    assert later == {"device-01"}  # the exchange that was open is put as it was
    assert {task.classes for exchange in alone.asked for task in exchange.tasks} == {3}
