"""The backend that trains a simulation's devices: ``--on local`` or ``--on ray``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from edgefed.config.recipes.recipe import Recipe
    from edgefed.simulator.executors import Maker

Backend = Literal["local", "ray"]


@contextmanager
def place(
    on: Backend, address: str, recipes: Iterable[Recipe], jobs: int = 1
) -> Iterator[Maker | None]:
    """Yield the maker of executors, valid within the block; None for this machine's default.

    Args:
        on: the option.
        address: of the cluster; empty when it was not typed.
        recipes: to be run; they determine the number of workers of a cluster of our own.
        jobs: the number of recipes to be run at once.

    Raises:
        UsageError: no such backend, an address without ``--on ray``, or several jobs with it; or
            ``ray.code``: a recipe's code cannot be imported on a cluster.
        EdgeFedError: Ray cannot be used.
    """
    from edgefed.errors import UsageError

    if on not in get_args(Backend):
        raise UsageError(f"There is no backend '{on}'.", hint="choose local or ray")
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
    recipes = list(recipes)
    for recipe in recipes:
        _check_importable(recipe)
    from edgefed.simulator.ray_executor import on_ray

    with on_ray(address, max(recipe.simulation.workers for recipe in recipes)) as maker:
        yield maker


def _check_importable(recipe: Recipe) -> None:
    """Check that workers of a cluster can import the code that devices run.

    Raises:
        UsageError: ``ray.code``: it is defined in a script, a notebook or a function.
    """
    from edgefed.coordinator.models.user_code_check import code_of_devices
    from edgefed.errors import UsageError

    for kind, name in code_of_devices(recipe):
        if name.startswith("__main__:") or "<" in name:
            raise UsageError(
                f"The {kind} {name} cannot be imported by the workers of Ray.",
                code="ray.code",
                hint="define it at the top level of a module that all machines of the cluster have,"
                " or leave ray out",
            )
