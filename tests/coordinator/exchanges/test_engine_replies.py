"""A round completes correctly whatever single devices send or fail to send."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from contextlib import closing

import numpy as np
import pytest

from edgefed.algorithms.averaging.fedavg import FedAvg
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.data.base.types import Shard
from edgefed.errors import UnmergeableError
from edgefed.files.samples import Samples
from edgefed.learn.aggregation.exact_mean import ExactMean
from edgefed.learn.base.types import Tensors
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.fleets import (
    Forge,
    Tamper,
    TamperedFleet,
    forged,
    silent,
    told,
    with_bits,
    with_blob,
    with_delta,
)
from tests.coordinator.model_algorithms import of
from tests.run_fixture import CLASSES, World, recipe, samples, shards

LIAR = "device-01"
"""Neither the first nor the last to answer."""


def _digest(here: World, tamper: Tamper | None) -> str:
    record = here.engine(TamperedFleet(here.devices, tamper)).run()
    assert record.status == "finished"
    return record.weights_digest


def _run(world: MakeWorld, tamper: Tamper | None) -> str:
    return _digest(world(), tamper)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of a run whose devices are all honest."""
    with closing(World(tmp_path_factory.mktemp("honest"))) as here:
        return _digest(here, None)


@pytest.fixture(scope="module")
def without_the_liar(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of a run to which the liar does not answer."""
    with closing(World(tmp_path_factory.mktemp("silent"))) as here:
        return _digest(here, silent(LIAR))


def test_a_reply_is_merged_before_its_verdict_and_its_event(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = world(recipe(rounds={"count": 1}))
    fleet = TamperedFleet(here.devices)
    before: list[tuple[int, int]] = []
    add = ExactMean.add

    def counted(mean: ExactMean, arrays: Tensors, weight: float) -> None:
        before.append((len(fleet.verdicts), len(here.seen("reply"))))
        add(mean, arrays, weight)

    monkeypatch.setattr(ExactMean, "add", counted)
    assert here.engine(fleet).run().status == "finished"
    devices = len({device for device, _, _ in fleet.verdicts})
    assert before == [(number, number) for number in range(devices)]
    assert len(here.seen("reply", outcome="accepted")) == devices > 1


class LastUnmergeable(FedAvg):
    """Cannot merge the last reply of round 1."""

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        def until_the_last() -> Iterator[Answer]:
            for number, answer in enumerate(answers, 1):
                if state.round == 0 and number == len(exchange.questions):
                    raise UnmergeableError("It is odd.", code="example.odd")
                yield answer

        return super().merge(state, exchange, until_the_last())


def test_a_reply_with_which_the_merge_fails_is_judged_and_counts(world: MakeWorld) -> None:
    plan = recipe(rounds={"count": 1})
    here = world(plan)
    fleet = TamperedFleet(here.devices)
    here.engine(fleet, algorithm=of(LastUnmergeable, plan)).run()
    first = fleet.asked[0]
    answered = here.seen("reply", exchange=first.exchange, outcome="accepted")
    assert len(answered) == len(first.tasks)
    assert any("were not merged: It is odd" in note["text"] for note in here.seen("note"))


FORGERIES: dict[str, tuple[Forge, str]] = {
    "NaN": (with_bits(0x7F, 0xC0), "not finite"),
    "infinity": (with_bits(0x7F, 0x80), "not finite"),
    "another dtype": (
        with_delta(lambda delta: {name: a.astype(np.float64) for name, a in delta.items()}),
        "float64",
    ),
    "not a blob": (with_blob(b"\x00" * 40), "delta: "),
    "another nonce": (told(nonce="00" * 8), "it answers another task"),
    "no samples": (told(samples=0), "no samples"),
    "another exchange": (told(exchange="r-0001-0000-99"), "another exchange"),
    "an unasked device": (told(device="device-99"), "not asked"),
    "an endless metric": (told(metrics={"loss": float("inf")}), "loss is inf"),
    "no number": (told(metrics={"loss": float("nan")}), "loss is nan"),
}


@pytest.mark.parametrize("wrong", FORGERIES)
def test_a_wrong_reply_is_rejected_with_a_reason_and_the_round_goes_on(
    world: MakeWorld, wrong: str, without_the_liar: str
) -> None:
    forge, reason = FORGERIES[wrong]
    here = world()
    fleet = TamperedFleet(here.devices, forged(LIAR, forge))
    record = here.engine(fleet).run()
    assert record.status == "finished"
    rejected = [(device, told) for device, outcome, told in fleet.verdicts if outcome != "accepted"]
    who = "device-99" if wrong == "an unasked device" else LIAR
    assert [device for device, _ in rejected] == [who] * 3
    assert all(reason in told for _, told in rejected), rejected
    assert [fields["reason"] for fields in here.seen("reply", outcome="rejected")] == [
        told for _, told in rejected
    ]
    assert [(row["replies"], row["late"]) for row in here.rows] == [(3, 1)] * 3
    assert record.weights_digest == without_the_liar


def test_a_reply_weighs_no_more_than_its_device_announced(
    world: MakeWorld, undisturbed: str
) -> None:
    assert _run(world, forged(LIAR, told(samples=2**50))) == undisturbed


def test_what_arrives_twice_counts_once(world: MakeWorld, undisturbed: str) -> None:
    def twice(_: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        for each in replies:
            yield each
            yield each

    def again_at_the_end(_: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        # The last reply is kept back, or the exchange would close before the repetitions.
        *early, last = replies
        yield from (*early, *early, last)

    assert _run(world, twice) == undisturbed
    assert _run(world, again_at_the_end) == undisturbed


def test_the_order_of_replies_does_not_matter(world: MakeWorld, undisturbed: str) -> None:
    def backwards(_: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        yield from reversed(list(replies))

    assert _run(world, backwards) == undisturbed


def test_replies_to_earlier_exchanges_change_nothing(world: MakeWorld, undisturbed: str) -> None:
    kept: list[Delivered] = []

    def late(_: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        earlier, now = tuple(kept), list(replies)
        kept.extend(now)
        yield from (*earlier, *now)

    here = world()
    fleet = TamperedFleet(here.devices, late)
    assert here.engine(fleet).run().weights_digest == undisturbed
    rejected = [reason for _, outcome, reason in fleet.verdicts if outcome == "rejected"]
    assert rejected == ["it answers another exchange"] * 12


def test_the_first_answers_are_taken_and_no_more_are_waited_for(world: MakeWorld) -> None:
    plan = recipe(rounds={"cohort": 2, "over_selection": 1.0, "count": 1})
    taken: list[str] = []

    def counted(exchange: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        assert len(exchange.tasks) == 4
        for each in reversed(list(replies)):
            taken.append(each.reply.device)
            yield each

    here = world(plan)
    fleet = TamperedFleet(here.devices, counted)
    record = here.engine(fleet).run()
    assert record.status == "finished"
    assert taken == ["device-03", "device-02"]
    assert [device for device, outcome, _ in fleet.verdicts if outcome == "accepted"] == taken
    others = _run_plan(world, silent("device-00", "device-01"))
    assert record.weights_digest == others


def _run_plan(world: MakeWorld, tamper: Tamper) -> str:
    here = world(recipe(rounds={"count": 1}))
    return here.engine(TamperedFleet(here.devices, tamper)).run().weights_digest


def test_devices_that_cannot_are_counted_with_what_they_say(world: MakeWorld) -> None:
    unfit = Shard(samples(5, 3, (5,)), samples(0, 4), CLASSES)
    poisoned = Samples(np.full((6, 8), np.nan, np.float32), np.zeros(6, np.int64))
    parts = (*shards((5, 9)), unfit, Shard(poisoned, samples(0, 5), CLASSES))
    here = world(recipe(), parts)
    assert here.engine().run().status == "finished"
    failed = here.seen("reply", outcome="failed")
    assert [f["text"] for f in here.seen("note", level="warning")] == [
        "device-02 is excluded: its inputs are 5, the run's are 8"
    ]
    assert {f["device"] for f in failed} == {"device-03"}
    assert all("NaN" in f["reason"] for f in failed)
    assert [(row["replies"], row["late"]) for row in here.rows] == [(2, 1)] * 3


def test_a_device_without_data_is_never_asked(world: MakeWorld) -> None:
    here = world(recipe(), shards((5, 0, 6)))
    fleet = TamperedFleet(here.devices)
    assert here.engine(fleet).run().status == "finished"
    asked = {task.device for exchange in fleet.asked for task in exchange.tasks}
    assert asked == {"device-00", "device-02"}


def test_replies_of_random_bytes_never_end_a_run(world: MakeWorld) -> None:
    def noise(each: Delivered) -> Delivered:
        return with_blob(b"EFC1" + secrets.token_bytes(99))(each)

    here = world()
    fleet = TamperedFleet(here.devices, forged(LIAR, noise))
    assert here.engine(fleet).run().status == "finished"
