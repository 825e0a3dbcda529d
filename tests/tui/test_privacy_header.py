"""The header says what the run's rounds have cost in differential privacy."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from tests.tui.driving import drive, screen_text
from tests.tui.samples import dashboard, fine, round_views, snapshot


@pytest.mark.parametrize(("epsilon", "told"), [(3.1415, True), (None, False)])
def test_epsilon_stands_in_the_header_of_a_private_run(epsilon: float | None, told: bool) -> None:
    *earlier, last = round_views()
    rounds = (*earlier, last.model_copy(update={"epsilon": epsilon}))
    update = fine(snapshot().model_copy(update={"rounds": rounds}))

    async def scenario(pilot: Pilot[None]) -> None:
        header = screen_text(pilot).splitlines()[0]
        assert ("ε 3.14" in header) is told
        assert ("ε" in header) is told

    drive(dashboard(update), scenario)


def test_epsilon_of_a_run_from_a_backup_is_a_lower_bound() -> None:
    *earlier, last = round_views()
    rounds = (*earlier, last.model_copy(update={"epsilon": 3.1415}))
    known = snapshot()
    assert known.run is not None
    run = known.run.model_copy(update={"restored": "2026-05-05T00:00:00.000Z"})
    update = fine(known.model_copy(update={"rounds": rounds, "run": run}))

    async def scenario(pilot: Pilot[None]) -> None:
        assert "ε ≥ 3.14" in screen_text(pilot).splitlines()[0]

    drive(dashboard(update), scenario)
