"""Create a run: choose its id, write its recipe into its folder, and add it to the store."""

from __future__ import annotations

import secrets

from edgefed.algorithms.composed.recipe_versions import recipe_versions
from edgefed.config.loading.write import to_toml
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.storage.run_store import Store
from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.files.writing import write_atomic
from edgefed.process.clock import Clock, timestamp


def create_run(store: Store, recipe: Recipe, clock: Clock, salt: str = "") -> RunRecord:
    """Return the row of a new run.

    Args:
        store: keeps it.
        recipe: of the run.
        clock: for the time of its creation.
        salt: four hexadecimal digits that keep ids of two state directories apart, since a device
            may still hold replies to a run of the same number.
    """
    run = f"r-{store.next_number():04d}-{salt or secrets.token_hex(2)}"
    record = RunRecord(
        run=run,
        name=recipe.name,
        algorithm=recipe.algorithm.name,
        recipe=recipe.model_dump_json(),
        seed=recipe.seed,
        status="waiting",
        created=timestamp(clock.now()),
        rounds=recipe.rounds.count,
        versions=recipe_versions(recipe),
    )
    # Before the row, so that a kill leaves no stored run without its recipe
    write_atomic(store.run_folder(run) / "recipe.toml", to_toml(recipe).encode())
    store.save_run(record)
    return record
