"""The coordinator's memory does not grow with the number of replies."""

from __future__ import annotations

import tracemalloc
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from edgefed.algorithms.averaging.fedavg import FedAvg
from edgefed.algorithms.composed.registry import make
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.exchanges.downlink_encoder import CHAIN
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.learn.base.types import Array
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.fleets import TamperedFleet, told, with_blob
from tests.run_fixture import recipe, shards

HIDDEN = 20_000
MODEL_BYTES = 4 * (8 * HIDDEN + HIDDEN + 3 * HIDDEN + 3)
"""Just under 1 MB: 240,003 weights in float32."""


class Hoarder(FedAvg):
    """FedAvg that holds all answers before it adds up the first."""

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        return super().merge(state, exchange, list(answers))


def hoarder(plan: Recipe) -> CompleteAlgorithm[Any]:
    plain = make(plan)
    return Hoarder(plain.settings, plan.training, plan.rounds)


def peak(world: MakeWorld, devices: int, made: Callable[[Recipe], CompleteAlgorithm[Any]]) -> int:
    """Return the most bytes at a time while a round of so many answers is merged.

    The first device's answer stands for all, so that none but the coordinator's memory is measured.
    """
    plan = recipe(model={"name": "mlp", "hidden": [HIDDEN]}, rounds={"count": 1})
    here = world(plan, shards((2,) * devices))

    def measured(opened: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        first = next(replies)
        blob = first.read(first.reply.blobs["delta"].digest)
        tracemalloc.start()
        for task in opened.tasks:
            fresh = with_blob(bytes(blob))(first)
            yield told(device=task.device, nonce=task.nonce)(fresh)

    fleet = TamperedFleet(here.devices, measured)
    try:
        record = here.engine(fleet, algorithm=made(plan)).run()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert record.status == "finished"
    assert here.rows[0]["replies"] == devices
    return most


def test_memory_is_flat_in_the_number_of_replies(world: MakeWorld) -> None:
    few, many = peak(world, 10, make), peak(world, 100, make)
    assert many - few < 2 * MODEL_BYTES
    # Sums of twice the model's size, one answer with its code and a section of it, and the weights.
    assert few < 3.8 * MODEL_BYTES
    assert many < 4.5 * MODEL_BYTES


def test_the_measure_would_see_answers_that_are_held(world: MakeWorld) -> None:
    assert peak(world, 30, hoarder) - peak(world, 10, hoarder) > 15 * MODEL_BYTES


class Watching(FedAvg):
    """FedAvg that notes the arrays of the answers."""

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        return super().merge(state, exchange, map(self._noted, answers))

    def _noted(self, answer: Answer) -> Answer:
        arrays = answer.groups["delta"].arrays.values()
        NOTED.extend(weakref.ref(array) for array in arrays)
        return answer


NOTED: list[weakref.ref[Array]] = []


def test_no_answer_is_held_while_the_next_one_is_awaited(world: MakeWorld) -> None:
    plan = recipe(rounds={"count": 1})
    here, waits = world(plan, shards((4, 4, 4))), list[int]()

    def watched(opened: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        for delivered in replies:
            waits.append(len(NOTED))
            assert [reference() for reference in NOTED] == [None] * len(NOTED)
            yield delivered

    plain = make(plan)
    algorithm = Watching(plain.settings, plan.training, plan.rounds)
    fleet = TamperedFleet(here.devices, watched)
    assert here.engine(fleet, algorithm=algorithm).run().status == "finished"
    assert waits == [0, len(NOTED) // 3, 2 * len(NOTED) // 3]


def test_the_blobs_are_bounded_in_the_number_of_rounds(world: MakeWorld) -> None:
    plan = recipe(rounds={"count": 30}, wire={"downlink": "int8"})
    here = world(plan, shards((4, 4)))
    held: list[int] = []
    record = here.engine(listener=lambda _: held.append(len(here.cache))).run()
    assert record.status == "finished"
    assert max(held) <= 2 * (CHAIN + 1)
