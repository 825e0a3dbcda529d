"""Check whether a run can carry a recurrent state from batch to batch: ``training.carry_state``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.errors import RecipeError

if TYPE_CHECKING:
    from edgefed.learn.modeling.model import Model


def check_carried_state(algorithm: CompleteAlgorithm[Any], model: Model) -> None:
    """Check that the model has a state, and that the algorithm's devices can carry it.

    Raises:
        RecipeError: ``train.carry_state``: they cannot, but the recipe requires it.
    """
    if not algorithm.training.carry_state:
        return
    reason = model.why_not_carry()
    if not reason and not algorithm.can_carry_state():
        reason = (
            f"with these settings {algorithm.name} calls the model more than once per step, or on"
            " more than the device's own samples"
        )
    if reason:
        raise RecipeError(
            f"A recurrent state cannot be carried from batch to batch: {reason}.",
            code="train.carry_state",
            hint="set training.carry_state = false, or choose model lstm and fedavg",
        )
