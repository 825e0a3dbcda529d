"""A run whose state is larger than everything else that it writes."""

from __future__ import annotations

from edgefed.config.recipes.recipe import Recipe
from tests.run_fixture import recipe

HIDDEN = 20_000
STATE_BYTES = 4 * (8 * HIDDEN + HIDDEN + 3 * HIDDEN + 3)
"""960 KB of weights in float32."""


def big_recipe() -> Recipe:
    """Return a recipe of three short rounds."""
    training = {"batch_size": 64, "learning_rate": 0.1}
    return recipe(model={"name": "mlp", "hidden": [HIDDEN]}, training=training)
