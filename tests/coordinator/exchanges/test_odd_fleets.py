"""Engines with empty fleets, diverged models and oversized answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from edgefed.algorithms.averaging.fedavg import FedAvg
from edgefed.algorithms.composed.registry import make
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Exchange, Finished, ReplyRole
from edgefed.algorithms.interface.member import Roster
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.exchanges.reply_checks import LEAST_ROOM
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.learn.base.types import Tensors
from edgefed.learn.training.scoring import Predict, Predictor
from edgefed.wire.tensors import specs_of
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.fleets import TamperedFleet, exact, told, with_blob
from tests.run_fixture import recipe


class Outage(TamperedFleet):
    """Everybody is gone after the first exchange, until somebody waits for them."""

    gone = False
    waits = 0

    def roster(self) -> Roster:
        return () if self.gone else super().roster()

    def wait_for(self, devices: int, timeout: float, stop: Callable[[], bool]) -> Roster:
        self.waits += self.gone
        self.gone = False
        return super().wait_for(devices, timeout, stop)

    def replies(self, exchange: OpenExchange, stop: Callable[[], bool]) -> Iterator[Delivered]:
        if exchange is self.asked[0]:
            self.gone = True
        else:
            yield from super().replies(exchange, stop)


def test_an_outage_longer_than_a_deadline_uses_up_one_attempt_only(world: MakeWorld) -> None:
    here = world(recipe(rounds={"retries": 1, "count": 1}))
    fleet = Outage(here.devices)
    assert here.engine(fleet).run().status == "finished"
    assert fleet.waits == 1
    assert [len(exchange.tasks) for exchange in fleet.asked] == [4, 4]


class Blind(FedAvg):
    """Predicts what is no number."""

    def predictor(self, state: State, predict: Predict) -> Predictor:
        return lambda inputs: np.full_like(predict(self.weights(state), inputs), np.nan)


def test_a_score_that_is_no_number_does_not_end_the_run(world: MakeWorld) -> None:
    here = world(recipe(rounds={"count": 2}))
    blind = Blind(make(here.recipe).settings, here.recipe.training, here.recipe.rounds)
    record = here.engine(algorithm=blind).run()
    assert (record.status, record.loss) == ("finished", None)
    assert [row["loss"] for row in here.rows] == [None, None]
    warnings = [fields["text"] for fields in here.seen("note", level="warning")]
    assert [text for text in warnings if "training.learning_rate" in text] == warnings[:1]


@pytest.mark.parametrize(
    ("reason", "hinted"),
    [("Training diverged: the loss is no longer finite.", True), ("the disk is full", False)],
)
def test_devices_that_report_divergence_end_in_a_hint(
    world: MakeWorld, reason: str, hinted: bool
) -> None:
    here = world(recipe(rounds={"count": 1, "retries": 0}))

    def fail(_: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        return (told(status="failed", reason=reason)(each) for each in replies)

    record = here.engine(TamperedFleet(here.devices, fail)).run()
    assert (record.status, record.error) == ("failed", "round.quorum")
    assert ("lower training.learning_rate" in record.hint) == hinted


def test_a_role_of_known_tensors_may_be_as_large_as_they_are(world: MakeWorld) -> None:
    large: Tensors = {"zeros": np.zeros(LEAST_ROOM, np.float32)}  # 4 MiB, much more than the model

    class Large(FedAvg):
        """Asks for an array that is larger than the model."""

        def plan(self, state: State, roster: Roster, seed: int) -> Exchange | Finished:
            planned = super().plan(state, roster, seed)
            if isinstance(planned, Finished):
                return planned
            roles = {**planned.reply_roles, "large": ReplyRole(specs_of(large), 1.0)}
            return replace(planned, reply_roles=roles)

    def add(_: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        return (with_blob(exact(large), "large")(each) for each in replies)

    here = world(recipe(rounds={"count": 1}))
    algorithm = Large(make(here.recipe).settings, here.recipe.training, here.recipe.rounds)
    fleet = TamperedFleet(here.devices, add)
    assert here.engine(fleet, algorithm=algorithm).run().status == "finished"
    assert {outcome for _, outcome, _ in fleet.verdicts} == {"accepted"}
