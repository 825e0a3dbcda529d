"""Local work that differs between devices: epochs drawn for each, or the steps of a time budget.

With ``training.least_epochs`` each device of a round does E_k epochs, uniform between this number
and ``training.epochs``, as in the experiments of Wang, Liu, Liang, Joshi, Poor: Tackling the
Objective Inconsistency Problem in Heterogeneous Federated Optimization, NeurIPS 2020; the draw
derives from the seed of the task. With ``training.seconds = B`` a device whose last answer took t
seconds for s steps does at most

    B s / t     steps, at least 1

which tends to the steps that fit into B together with the transfers. Before its first answer it
does one epoch. The coordinator decides, so that it knows the work that an answer must contain, and
a restart asks for the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from edgefed.algorithms.averaging.training import EPOCHS, STEPS, shortened
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.device_side import (
    DeviceTask,
    DeviceView,
    LowestLossJob,
    Work,
    WorkSequence,
)
from edgefed.algorithms.interface.exchange import Exchange, Finished
from edgefed.algorithms.interface.member import Roster
from edgefed.algorithms.interface.wrapped_algorithm import WrappedAlgorithm
from edgefed.config.recipes.recipe import Recipe
from edgefed.errors import RecipeError
from edgefed.learn.base.types import Job

MOST_STEPS = 2**31 - 1
"""Most steps that a question names, whatever number a device reports."""


class LocalWork(WrappedAlgorithm):
    """An algorithm whose devices do different amounts of local work; see the module."""

    def plan(self, state: State, roster: Roster, seed: int) -> Exchange | Finished:
        """Plan, and say in each question of a training how much of it the device does."""
        planned = self.inner.plan(state, roster, seed)
        budget = self.training.seconds
        if isinstance(planned, Finished) or not budget:
            return planned
        if not any(role.trained for role in planned.reply_roles.values()):
            return planned
        paces = {member.device: member.pace for member in roster}
        questions = tuple(
            replace(question, params={**question.params, **_limit(budget, paces[question.device])})
            for question in planned.questions
        )
        return replace(planned, questions=questions)

    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        """Prepare, and shorten every training job of the work."""
        work = self.inner.prepare(task, device)

        def changed(job: Job) -> Job:
            schedule = shortened(job.schedule, self.training, task.params, task.seed)
            return replace(job, schedule=schedule)

        return work if isinstance(work, Answer) else with_jobs(work, changed)


def _limit(budget: float, pace: float | None) -> Mapping[str, int]:
    """Return the parameters of a question to a device that takes so many seconds for a step."""
    if pace is None:
        return {EPOCHS: 1}
    return {STEPS: max(1, int(min(budget / pace, MOST_STEPS)))} if pace > 0 else {}


def with_jobs(work: Work, change: Callable[[Job], Job]) -> Work:
    """Return work whose training jobs are changed."""
    if isinstance(work, Job):
        return change(work)
    if isinstance(work, LowestLossJob):
        return replace(work, jobs=tuple(change(job) for job in work.jobs))
    if isinstance(work, WorkSequence):
        works = (change(part) if isinstance(part, Job) else part for part in work.works)
        return replace(work, works=tuple(works))
    return work


def check_local_work(recipe: Recipe) -> None:
    """Check that a time budget can be kept.

    Raises:
        RecipeError: ``training.seconds``: the answers do not tell the steps of a device.
    """
    private = [name for name in ("privacy", "secure_aggregation") if getattr(recipe, name).wanted]
    if recipe.training.seconds and private:
        raise RecipeError(
            f"training.seconds does not go with the [{private[0]}] table: devices then do not send"
            " the number of their steps.",
            code="training.seconds",
            hint="set training.least_epochs or training.max_steps instead",
        )
