"""Runs whose devices send each other bytes: same bits after any cut, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Exchange, Finished, Question, Relay
from edgefed.algorithms.interface.member import Roster
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.exchanges.relayed_blobs import RelayedBlobs
from edgefed.coordinator.rounds.run_controls import RunControls
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.wire import limits
from edgefed.wire.limits import MAX_SEAL_BYTES
from edgefed.wire.message_parts import SentRelay
from edgefed.wire.tensors import digest
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.exchanges.test_resume import Fuse, PowerCut, scores
from tests.coordinator.fleets import Forge, TamperedFleet, forged, silent, told
from tests.run_fixture import COARSE, World, recipe, shards
from tests.support.relaying import Combined, Relaying, installed

DEVICES = ("device-00", "device-01", "device-02")
FIRST, SECOND, THIRD = DEVICES


@pytest.fixture(autouse=True, scope="module")
def _installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, installed(tmp_path_factory.mktemp("site"), patch):
        yield


def plan(kind: type[Relaying] = Relaying, **sections: Any) -> Recipe:
    rounds = {"count": 3, "quorum": 0.5, **sections.pop("rounds", {})}
    algorithm = {"name": kind.name, "size": sections.pop("size", 1000)}
    return recipe(algorithm=algorithm, wire=COARSE, rounds=rounds, **sections)


def made(world: MakeWorld, chosen: Recipe | None = None) -> World:
    return world(chosen or plan(), shards((5, 9, 6), tested=3))


def left_behind(here: World) -> set[str]:
    """Return what is left of blobs between devices: rows, markers, and blobs with a marker."""
    markers = {path.name for path in (here.folder / "relays").iterdir()}
    return markers | {relay.digest for relay in here.stores[-1].relays()}


def restarted(here: World) -> None:
    """Make what the next process makes of the folders; pins end with a process."""
    here.cache._pins.clear()
    here.relays = RelayedBlobs(here.cache, here.folder / "relays", here.store().relays())


def asked(fleet: TamperedFleet, name: str) -> list[OpenExchange]:
    return [each for each in fleet.asked if each.name == name]


def test_each_device_gets_what_the_others_sent_it_and_nothing_stays(world: MakeWorld) -> None:
    here = made(world)
    fleet = TamperedFleet(here.devices)
    record = here.engine(fleet).run()
    assert record.status == "finished", record.reason
    assert {outcome for _, outcome, _ in fleet.verdicts} == {"accepted"}
    for passing, fit in zip(asked(fleet, "pass"), asked(fleet, "fit"), strict=True):
        for task in fit.tasks:
            others = [device for device in DEVICES if device != task.device]
            assert [relay.sender for relay in task.relays] == others
            assert {relay.exchange for relay in task.relays} == {passing.exchange}
    assert left_behind(here) == set()
    digests = {relay.digest for x in fleet.asked for task in x.tasks for relay in task.relays}
    assert len(digests) == 18
    assert not any(here.cache.has(each) for each in digests)


def test_cut_anywhere_it_ends_in_the_same_bits_and_leaves_nothing(world: MakeWorld) -> None:
    chosen = plan(Combined, rounds={"count": 2}, evaluation={"on": "both"})
    undisturbed = made(world, chosen)
    assert undisturbed.engine().run().status == "finished"
    for passes in range(2, 300, 31):
        here = made(world, chosen)
        here.clock.on_read = Fuse(passes)
        try:
            here.engine().run()
        except PowerCut:
            here.clock.on_read = lambda: None
        else:
            break
        restarted(here)
        held = here.stores[-1].relays()
        assert all(here.cache.has(relay.digest) for relay in held), passes
        assert left_behind(here) == {relay.digest for relay in held}, passes
        resumed = here.engine().run()
        assert resumed.status == "finished", (passes, resumed.reason)
        assert resumed.weights_digest == undisturbed.record.weights_digest, passes
        assert scores(here) == scores(undisturbed), passes
        assert left_behind(here) == set(), passes
    assert passes > 50, "nothing was cut"


def sends(receiver: str, data: bytes, size: int = 0) -> Forge:
    """Forge a reply that sends bytes to a device, and perhaps says another size."""
    sent = SentRelay(digest=digest(data), size=size or len(data))

    def forge(each: Delivered) -> Delivered:
        reply = each.reply.model_copy(update={"relays": {receiver: sent}})
        blobs = {sent.digest: data}
        return replace(each, reply=reply, read=lambda name: blobs.get(name) or each.read(name))

    return forge


@pytest.mark.parametrize(
    ("forge", "reason"),
    [
        (sends(SECOND, b"x" * 9), "it sends a blob to itself"),
        (
            sends("device-77", b"x" * 9),
            "it sends a blob to device-77, which its task does not name as a receiver",
        ),
        (
            sends(FIRST, b"x" * (1001 + MAX_SEAL_BYTES)),
            "its blob for device-00 has 5,097 bytes, more than the 5,096 that it may have",
        ),
        (
            sends(FIRST, b"x" * 9, size=10),
            "its blob for device-00 does not have the size that it says",
        ),
    ],
    ids=["to itself", "unknown receiver", "too large", "another size"],
)
def test_what_may_not_be_sent_is_rejected_with_a_reason(
    world: MakeWorld, forge: Forge, reason: str
) -> None:
    here = made(world, plan(rounds={"count": 1, "retries": 0}))
    fleet = TamperedFleet(here.devices, forged(SECOND, forge))
    record = here.engine(fleet).run()
    assert (SECOND, "rejected", reason) in fleet.verdicts
    assert (record.status, record.error) == ("failed", "round.quorum")
    assert left_behind(here) == set()


def test_nobody_sends_to_others_unless_asked_to(world: MakeWorld) -> None:
    here = world(recipe(rounds={"count": 1}), shards((5, 9, 6)))
    fleet = TamperedFleet(here.devices, forged(SECOND, sends(FIRST, b"x" * 9)))
    here.engine(fleet).run()
    reason = f"it sends a blob to {FIRST}, which its task does not name as a receiver"
    assert (SECOND, "rejected", reason) in fleet.verdicts


def test_more_than_the_coordinator_can_hold_is_rejected(world: MakeWorld) -> None:
    here = made(world, plan(rounds={"count": 1, "retries": 0}))
    here.relays = RelayedBlobs(here.cache, here.folder / "relays", limit_bytes=5000)
    fleet = TamperedFleet(here.devices)
    here.engine(fleet).run()
    reason = "the coordinator has no space for more blobs between devices"
    assert [outcome for _, outcome, _ in fleet.verdicts].count("accepted") == 2
    assert fleet.verdicts[-1][1:] == ("rejected", reason)
    assert left_behind(here) == set()


def test_a_missed_quorum_asks_again_and_keeps_nothing_of_the_first_try(world: MakeWorld) -> None:
    here = made(world, plan(rounds={"count": 1, "retries": 1}))

    def tamper(exchange: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        return silent(FIRST)(exchange, replies) if exchange.index == 0 else replies

    record = here.engine(TamperedFleet(here.devices, tamper)).run()
    assert (record.status, record.exchanges) == ("finished", 3)
    assert left_behind(here) == set()


def test_a_blob_stays_until_its_receiver_has_answered(world: MakeWorld) -> None:
    here = made(world, plan(rounds={"count": 2}))
    held: list[list[tuple[str, str]]] = []

    def tamper(exchange: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        held.append([(relay.sender, relay.receiver) for relay in here.stores[-1].relays()])
        return silent(FIRST)(exchange, replies) if exchange.index == 1 else replies

    assert here.engine(TamperedFleet(here.devices, tamper)).run().status == "finished"
    assert [len(each) for each in held] == [0, 6, 2, 8]
    assert sorted(held[2]) == [(SECOND, FIRST), (THIRD, FIRST)]
    assert left_behind(here) == set()


def stopped_in_round(here: World, order: Callable[[RunControls], object]) -> World:
    """Run until an order comes while the blobs of the second round are on their way."""
    controls = RunControls()

    def tamper(exchange: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        for each in replies:
            if exchange.index == 3:
                order(controls)
            yield each

    here.engine(TamperedFleet(here.devices, tamper), controls).run()
    return here


def test_blobs_wait_for_the_next_process_and_go_when_the_run_is_aborted(world: MakeWorld) -> None:
    here = stopped_in_round(made(world), lambda controls: controls.stop_process())
    held = here.stores[-1].relays()
    assert len(held) == 6
    assert all(here.cache.has(relay.digest) for relay in held)
    here.cache.shed()
    assert all(here.cache.has(relay.digest) for relay in held)

    here = stopped_in_round(made(world), lambda controls: controls.order("abort"))
    assert here.record.status == "aborted"
    assert left_behind(here) == set()


def test_a_run_that_is_resumed_after_its_end_goes_on_without_them(world: MakeWorld) -> None:
    here = stopped_in_round(made(world), lambda controls: controls.order("abort"))
    fleet = TamperedFleet(here.devices)
    record = here.engine(fleet).run()
    assert record.status == "finished", record.reason
    gone = [note["text"] for note in here.seen("note", level="warning")]
    assert record.exchanges == 7
    assert gone == [f"2 blobs that other devices sent to {device} are gone" for device in DEVICES]
    first, *later = asked(fleet, "fit")
    assert all(task.relays == () for task in first.tasks)
    assert all(len(task.relays) == 2 for each in later for task in each.tasks)


class Waiting(Relaying):
    """Never asks the third device to train, and discards what it was sent before the last round."""

    discards = False

    def plan(self, state: State, roster: Roster, seed: int) -> Exchange | Finished:
        planned = super().plan(state, roster, seed)
        if isinstance(planned, Finished) or planned.name == "pass":
            return planned
        asked = tuple(each for each in planned.questions if each.device != THIRD)
        relays = (Relay.from_json(each) for each in state.params["relays"])
        lost = tuple(relay for relay in relays if relay.receiver == THIRD)
        return replace(planned, questions=asked, discarded=lost if self.discards else ())


class Discarding(Waiting):
    discards = True


def of(kind: type[Relaying], chosen: Recipe) -> Relaying:
    settings = kind.Settings.model_validate(chosen.algorithm.settings())
    return kind(settings, chosen.training, chosen.rounds)


@pytest.mark.parametrize(("kind", "most"), [(Waiting, 4), (Discarding, 0)])
def test_what_a_lost_receiver_was_sent_stays_until_it_is_discarded_or_the_run_ends(
    world: MakeWorld, kind: type[Relaying], most: int
) -> None:
    here = made(world, plan(rounds={"count": 2}))
    held: list[int] = []

    def look(exchange: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        yield from replies
        if exchange.name == "fit":
            relays = here.stores[-1].relays()
            held.append(sum(relay.receiver == THIRD for relay in relays))

    record = here.engine(TamperedFleet(here.devices, look), algorithm=of(kind, here.recipe)).run()
    assert record.status == "finished", record.reason
    assert held == [min(2, most), most]
    assert left_behind(here) == set()


Change = Callable[[Exchange], Exchange]


def questions(change: Callable[[Question], Question]) -> Change:
    return lambda planned: replace(planned, questions=tuple(map(change, planned.questions)))


def relay(receiver: str) -> Relay:
    return Relay("r-0", "device-09", receiver, "0" * 64, 1)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda planned: replace(planned, max_relay_bytes=2**40), "allows blobs of more than"),
        (
            questions(lambda q: replace(q, receivers=tuple(f"d-{n}" for n in range(257)))),
            "names 257 receivers to device-00; the most are 256",
        ),
        (
            questions(lambda q: replace(q, relays=(relay(q.device),) * 257)),
            "delivers 257 blobs to device-00; the most are 256",
        ),
        (
            questions(lambda q: replace(q, relays=(relay("device-05"),))),
            "delivers a blob for device-05 to device-00",
        ),
        (
            lambda planned: questions(lambda q: replace(q, receivers=(FIRST,)))(
                replace(planned, name="evaluate")
            ),
            "is an evaluation, which sends no blobs from device to device",
        ),
    ],
    ids=["size", "receivers", "relays", "receiver", "evaluation"],
)
def test_an_algorithm_that_asks_for_what_cannot_be_ends_its_run_with_a_reason(
    world: MakeWorld, change: Change, problem: str
) -> None:
    class Wrong(Relaying):
        def plan(self, state: State, roster: Roster, seed: int) -> Exchange | Finished:
            planned = super().plan(state, roster, seed)
            assert isinstance(planned, Exchange)
            return change(planned)

    here = made(world)
    record = here.engine(algorithm=of(Wrong, here.recipe)).run()
    assert (record.status, record.error) == ("failed", "algorithm.relay")
    assert problem in record.reason


def test_the_most_that_a_task_may_deliver_fits_into_its_message() -> None:
    assert limits.MAX_RELAYS * 400 < limits.MAX_MESSAGE_BYTES


def test_a_device_that_sends_nothing_hinders_nobody(world: MakeWorld) -> None:
    here = made(world, plan(rounds={"count": 1}))
    fleet = TamperedFleet(here.devices, forged(FIRST, told(relays={})))
    assert here.engine(fleet).run().status == "finished"
    (fit,) = asked(fleet, "fit")
    received = {task.device: [relay.sender for relay in task.relays] for task in fit.tasks}
    assert received == {FIRST: [SECOND, THIRD], SECOND: [THIRD], THIRD: [SECOND]}
