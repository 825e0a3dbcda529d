"""A coordinator without consent never imports a user's loss or metric, not even on resume."""

from __future__ import annotations

from typing import Any

import pytest

from tests.coordinator.conftest import MakeWorld
from tests.run_fixture import recipe

NOWHERE = "no.such.package:function"


@pytest.mark.parametrize(
    ("sections", "code"),
    [
        ({"training": {"loss": NOWHERE}}, "loss.refused"),
        ({"evaluation": {"metrics": [NOWHERE]}}, "metric.refused"),
    ],
)
def test_a_run_that_names_users_functions_fails_before_anything_is_imported(
    world: MakeWorld, sections: dict[str, Any], code: str
) -> None:
    here = world(recipe(**sections))
    record = here.engine().run()
    assert (record.status, record.error) == ("failed", code)
    assert NOWHERE in record.reason
    assert "user_models = true" in record.hint
    assert not here.seen("exchange")
