"""The backend that trains a simulation's devices: ``--on local`` or ``--on ray``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from edgefed.config.recipes.recipe import Recipe
    from edgefed.simulator.executors import Maker


@contextmanager
def place(
    on: Literal["local", "ray"], address: str, recipes: Iterable[Recipe], jobs: int = 1
) -> Iterator[Maker | None]:
    """Yield the maker of executors, valid within the block; None for this machine's default.

    Args:
        on: the option.
        address: of the cluster; empty when it was not typed.
        recipes: to be run; they determine the number of workers of a cluster of our own.
        jobs: the number of recipes to be run at once.

    Raises:
        UsageError: an address without ``--on ray``, or several jobs with it.
        EdgeFedError: Ray cannot be used.
    """
    from edgefed.errors import UsageError

    if on == "local":
        if address:
            raise UsageError(
                "--address names a Ray cluster and needs --on ray.", hint="add --on ray"
            )
        yield None
        return
    if jobs > 1:
        raise UsageError(
            "A Ray cluster trains the devices of one run at a time.",
            hint="leave out --jobs: the run uses the whole cluster",
        )
    from edgefed.simulator.ray_executor import on_ray

    with on_ray(address, max(recipe.simulation.workers for recipe in recipes)) as maker:
        yield maker
