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
