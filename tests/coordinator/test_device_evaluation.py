"""The algorithm decides how devices test the model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgefed.algorithms.base import Exchange, Roster, State
from edgefed.algorithms.composition import compose
from edgefed.algorithms.fedmix import FedMix
from edgefed.algorithms.registry import make
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.fleets import TamperedFleet
from tests.coordinator.test_resume import Fuse, PowerCut, cut_in_replies
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
    judged = compose(OneJudge(make(plan).settings, plan.training, plan.rounds))
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
