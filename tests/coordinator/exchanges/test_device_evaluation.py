"""The algorithm decides how devices test the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from edgefed.algorithms.averaged_data.fedmix import FedMix
from edgefed.algorithms.averaging.fedavg import FedAvg
from edgefed.algorithms.composed.composition import compose
from edgefed.algorithms.composed.method import Method
from edgefed.algorithms.composed.registry import make
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.algorithms.interface.member import Roster
from edgefed.config.recipes.recipe import EvaluationSection
from edgefed.coordinator.devices.trust_scores import TrustScores
from edgefed.coordinator.exchanges.fleet import Delivered, Fleet
from edgefed.coordinator.models.model_file_contents import file_round
from edgefed.coordinator.rounds import run_beginning
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.events.history.early_stopping import EvaluationHistory, Row, history_of
from edgefed.learn.modeling.model_file_reader import BEST_FILE
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.exchanges.test_resume import Fuse, PowerCut, cut_in_replies
from tests.coordinator.fleets import Forge, Tamper, TamperedFleet, forged, silent, told
from tests.run_fixture import recipe, shards


class OneJudge(FedMix):
    """Asks the same device each time."""

    def evaluation(self, state: State, roster: Roster, seed: int) -> Exchange:
        asked = super().evaluation(state, roster, seed)
        return replace(asked, questions=asked.questions[1:2], wanted=1)


@pytest.mark.parametrize("name", ["fedavg", "fedmix"])
def test_a_cohort_tests_the_model_unless_the_algorithm_says_otherwise(
    world: MakeWorld, name: str
) -> None:
    plan = recipe(algorithm={"name": name}, rounds={"count": 1}, evaluation={"on": "devices"})
    here = world(plan, shards((5, 9, 6, 4), tested=3))
    fleet = TamperedFleet(here.devices)
    assert here.engine(fleet).run().status == "finished"
    assert [len(each.tasks) for each in fleet.asked if each.name == "evaluate"] == [4]


def test_an_algorithm_chooses_who_tests_its_model(world: MakeWorld) -> None:
    plan = recipe(algorithm={"name": "fedmix"}, rounds={"count": 2}, evaluation={"on": "devices"})
    method = Method.of(plan, make(plan).settings)
    judged = compose(method.bare(OneJudge, plan.rounds), method)
    digests = []
    for cut in (False, True):
        here = world(plan, shards((5, 9, 6, 4), tested=3))
        fleet = TamperedFleet(here.devices)
        if cut:
            with pytest.raises(PowerCut):
                cut_in_replies(here, Fuse(8), judged)  # in the first test
        record = here.engine(fleet, algorithm=judged).run()
        assert record.status == "finished"
        tests = [each for each in fleet.asked if each.name == "evaluate"]
        assert [[task.device for task in each.tasks] for each in tests] == [["device-01"]] * 2
        digests.append((record.weights_digest, record.accuracy))
    assert digests[0] == digests[1]


def scores(world: MakeWorld, change: Tamper) -> tuple[list[tuple[float, float]], list[str]]:
    """Return the scores of two rounds whose tests are changed, and why tests were refused."""
    plan = recipe(rounds={"count": 2}, evaluation={"on": "devices"})
    here = world(plan, shards((5, 9, 6, 4), tested=3))

    def tamper(asked: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        return change(asked, replies) if asked.name == "evaluate" else replies

    here.engine(TamperedFleet(here.devices, tamper)).run()
    refused = [each["reason"] for each in here.seen("reply") if each["outcome"] == "rejected"]
    return [(row["accuracy"], row["loss"]) for row in here.rows], refused


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        (told(samples=4000), "it tested 4000 samples, and its device announced 3 held-out samples"),
        (told(metrics={"loss": 0.0}), "it lacks the accuracy"),
        (told(metrics={"accuracy": 1.0}), "it lacks the loss"),
    ],
)
def test_no_device_steers_the_scores_by_a_test_that_it_did_not_do(
    world: MakeWorld, lie: Forge, why: str
) -> None:
    attacked, refused = scores(world, forged("device-01", lie))
    assert refused == [why, why]
    assert attacked == scores(world, silent("device-01"))[0]
    assert attacked != scores(world, silent())[0]


class Shrinking(TamperedFleet):
    """A fleet from which a device is removed after the test of the first round."""

    def __init__(self, inner: Fleet) -> None:
        super().__init__(inner)
        self.removed = ""

    def _is_over(self) -> bool:
        return any(each.round == 2 for each in self.asked)

    def roster(self) -> Roster:
        return tuple(each for each in super().roster() if self.belongs(each.device))

    def belongs(self, device: str) -> bool:
        return device != self.removed or not self._is_over()


@pytest.mark.parametrize(
    ("place", "metric", "anew"),
    [
        ("devices", "accuracy", True),
        ("both", "device_accuracy", True),
        ("both", "accuracy", False),
        ("coordinator", "accuracy", False),
    ],
)
def test_the_best_round_is_sought_anew_when_a_tester_was_removed(
    world: MakeWorld, place: str, metric: str, *, anew: bool
) -> None:
    """After every kill too: what a run knows of it is in the rows of its rounds."""
    evaluation = {"on": place, "best_metric": metric, "better": "lower"}  # the first is the best
    plan = recipe(rounds={"count": 4}, evaluation=evaluation, training={"learning_rate": 0.05})
    here = world(plan, shards((5, 9, 6, 4), tested=3))
    fleet = Shrinking(here.devices)
    fleet.removed = "device-01"
    assert here.engine(fleet).run().status == "finished"
    marked = [row["round"] for row in here.rows if row.get("removed_testers")]
    assert marked == ([] if place == "coordinator" else [2])
    scores = {row["round"]: row[metric] for row in here.rows if row["round"] >= (2 if anew else 1)}
    best = history_of(plan.evaluation, here.rows).best
    assert best is not None
    assert (best.round, best.score) == (min(scores, key=lambda r: scores[r]), min(scores.values()))
    told = [each["text"] for each in here.seen("note") if "no longer tested by" in each["text"]]
    assert len(told) == len(marked)


def test_a_quarantined_tester_counts_as_removed(world: MakeWorld) -> None:
    trust = TrustScores()
    plan = recipe(rounds={"count": 3}, evaluation={"on": "devices"})
    here = world(plan, shards((5, 9, 6, 4), tested=3))

    def quarantine(asked: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        if asked.round == 2 and asked.name == "fit":
            trust.quarantine("device-01", "operator.ann", "now")
        return replies

    here.engine(TamperedFleet(here.devices, quarantine), trust=trust).run()
    assert [row.get("removed_testers") for row in here.rows] == [None, 1, None]
    assert here.record.testers == ("device-00", "device-02", "device-03")


@pytest.mark.parametrize("cut", [0, 14])
def test_half_the_testers_that_vanish_do_not_decide_which_round_is_best(
    world: MakeWorld, cut: int
) -> None:
    """The scores of each device are stored, so that a restarted run decides the same."""
    bare = {"confusion": False, "top_k": 0}  # so that a test that is too good is accepted
    plan = recipe(rounds={"count": 4}, evaluation={"on": "devices", **bare})
    here = world(plan, shards((5, 9, 6, 4), tested=3))

    def flattered(reply: Delivered) -> Delivered:
        return told(metrics={**reply.reply.metrics, "accuracy": 1.0})(reply)

    fuse = Fuse(cut or 10_000)

    def vanish(asked: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        for reply in replies:
            fuse()
            if asked.name != "evaluate" or asked.round < 3:
                yield reply
            elif reply.reply.device in ("device-00", "device-01"):
                yield flattered(reply)

    if cut:
        with pytest.raises(PowerCut):
            here.engine(TamperedFleet(here.devices, vanish)).run()
    fuse = Fuse(10_000)
    assert here.engine(TamperedFleet(here.devices, vanish)).run().status == "finished"
    shown = [(row["tested_devices"], row["all_testers"], row["is_best"]) for row in here.rows]
    assert [each[:2] for each in shown] == [(4, 4), (4, 4), (2, 4), (2, 4)]
    assert not shown[2][2] and not shown[3][2]
    whole = world(plan, shards((5, 9, 6, 4), tested=3))
    whole.engine(TamperedFleet(whole.devices, vanish)).run()
    assert [row["is_best"] for row in whole.rows] == [best for *_, best in shown]
    assert [row["accuracy"] for row in here.rows[2:]] == [1.0, 1.0]
    best = history_of(plan.evaluation, here.rows).best
    kept = file_round(here.store().run_folder(here.run) / BEST_FILE)
    assert best is not None and kept == best.round <= 2
    stored = here.store().rounds(here.run, details=True)
    assert [sorted(row["device_tests"]) for row in stored[1:3]] == [
        ["device-00", "device-01", "device-02", "device-03"],
        ["device-00", "device-01"],
    ]
    assert stored[2]["device_tests"]["device-01"]["accuracy"] == 1.0
    assert "device_tests" not in here.rows[0]
    assert here.record.tested_devices == 2 and here.record.all_testers == 4


@pytest.mark.parametrize(
    ("rounds", "drawn"), [({}, 0), ({"test_cohort": 2}, 2), ({"cohort": 2}, 2), ({"cohort": 4}, 0)]
)
def test_where_a_sample_of_the_fleet_tests_it_counts_by_itself(
    world: MakeWorld, rounds: dict[str, int], drawn: int
) -> None:
    plan = recipe(rounds={"count": 3, **rounds}, evaluation={"on": "devices"})
    here = world(plan, shards((5, 9, 6, 4), tested=3))
    here.engine(TamperedFleet(here.devices)).run()
    assert len(here.record.testers) >= 3
    expected = drawn or len(here.record.testers)
    assert {row["all_testers"] for row in here.rows[2:]} == {expected}
    assert {row["tested_share"] for row in here.rows} == {1.0}


def test_a_simulation_that_draws_testers_keeps_the_best_round(world: MakeWorld) -> None:
    """One device tests each round, so that the accuracies compare as they are."""
    plan = recipe(rounds={"count": 6, "test_cohort": 1}, evaluation={"on": "devices"})
    here = world(plan, shards((5, 9, 6, 4), tested=3))
    here.engine().run()
    accuracies = [row["accuracy"] for row in here.rows]
    better = [value > max([-1.0, *accuracies[:k]]) for k, value in enumerate(accuracies)]
    assert [row["is_best"] for row in here.rows] == better
    assert not all(better)


@pytest.mark.parametrize(
    ("chosen", "own", "expected"),
    [(None, "samples", "samples"), (None, "devices", "devices"), ("samples", "devices", "samples")],
)
def test_rounds_are_compared_by_the_weighting_of_their_scores(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch, chosen: str, own: str, expected: str
) -> None:
    weightings = []

    def seen(section: EvaluationSection, rows: Iterable[Row]) -> EvaluationHistory:
        weightings.append(section.weighting)
        return history_of(section, rows)

    monkeypatch.setattr(run_beginning, "history_of", seen)
    monkeypatch.setattr(FedAvg, "evaluation_weighting", own)
    plan = recipe(rounds={"count": 1}, evaluation={"on": "devices", "weighting": chosen})
    here = world(plan, shards((5, 9, 6, 4), tested=3))
    assert here.engine().run().status == "finished"
    assert weightings == [expected]
