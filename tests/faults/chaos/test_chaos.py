"""A short run of the chaos benchmark: nothing lost, nothing trained twice, the same digest."""

from __future__ import annotations

import json

import pytest

from benchmarks.chaos.schedule import KINDS
from tests.faults.shifted_clock import can_shift_clocks
from tests.processes import outcome, start_module


@pytest.mark.slow
@pytest.mark.mosquitto
def test_faults_of_every_kind_over_tls_leave_the_digest_as_it_is() -> None:
    words = ("--algorithm", "fedavg", "--faults", "10", "--seed", "2327", "--rounds", "2", "--json")
    code, out, err = outcome(start_module("benchmarks.chaos", *words))
    found = json.loads(out)
    assert code == 0, out + err
    assert found["passed"]
    assert found["tls"]
    assert found["differing"] == found["charged_twice"] == []
    assert sum(found["faults"].values()) == 10
    lacking = {kind for kind in KINDS if f"the machine lacks the means: {kind}" in err}
    assert lacking <= ({"disk"} if can_shift_clocks() else {"disk", "clock"})
    assert set(found["faults"]) == set(KINDS) - lacking
    assert found["rounds"] == 2 * found["runs"]
    assert found["trainings"]["tasks"] == 8 * found["rounds"]
