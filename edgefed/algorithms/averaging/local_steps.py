"""The length of a device's local steps, which does not depend on its gradients with SGD.

Wang, Liu, Liang, Joshi, Poor: Tackling the Objective Inconsistency Problem in Heterogeneous
Federated Optimization, NeurIPS 2020, section 4.2.
"""

from __future__ import annotations

from functools import lru_cache

from edgefed.config.recipes.training_section import TrainingSection
from edgefed.errors import RecipeError
from edgefed.learn.base.types import Schedule


def check_steps_length(name: str, training: TrainingSection, mu: float) -> None:
    """Check that the length of the local steps is known without their gradients.

    Args:
        name: of the algorithm that needs it.
        training: the recipe's table.
        mu: strength of the proximal term, none of whose steps may pass the round's weights.

    Raises:
        RecipeError: ``algorithm.optimizer``.
    """
    if training.optimizer != "sgd":
        raise RecipeError(
            f"{name} needs local SGD, and training.optimizer is {training.optimizer}.",
            code="algorithm.optimizer",
            hint='set training.optimizer = "sgd", or choose fedavg',
        )
    if training.learning_rate * mu >= 1:
        raise RecipeError(
            f"With a learning rate of {training.learning_rate:g} and algorithm.mu ="
            f" {mu:g}, a step passes the round's weights.",
            code="algorithm.optimizer",
            hint="set algorithm.mu below 1 / training.learning_rate",
        )


@lru_cache(maxsize=256)
def steps_length(schedule: Schedule, mu: float, steps: int) -> float:
    """Return ``||a||_1``: how far so many steps go where every gradient is -1, in learning rates.

    The local optimiser is followed with a scalar u = (w - w_t) / η. Its gradient is 1 - η μ u, with
    the proximal term's part (section 4.2 of the paper).

    Args:
        schedule: of the local training, with SGD.
        mu: strength of the proximal term.
        steps: at least 1.
    """
    u = velocity = 0.0
    for step in range(steps):
        gradient = 1.0 - schedule.learning_rate * mu * u
        velocity = schedule.momentum * velocity + gradient
        moved = gradient + schedule.momentum * velocity if schedule.nesterov else velocity
        # In units of the schedule's own rate, which steps may deviate from
        u += schedule.rate(step, steps) / schedule.learning_rate * moved
    return u
