"""Pass a task's work to the trainer."""

from __future__ import annotations

from collections.abc import Callable

from edgefed.algorithms.base import (
    DeviceTest,
    Encoding,
    EvalJob,
    PredictorEvalJob,
    Result,
    TrainedEvalJob,
    Work,
)
from edgefed.learn.scoring import score
from edgefed.learn.training import ModelPredictions, Trainer
from edgefed.learn.types import Samples, Score


def run_work(
    trainer: Trainer,
    work: Work,
    own: Samples,
    progress: Callable[[float], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Result:
    """Train, test or encode, and return the result.

    Args:
        trainer: has the task's model.
        work: what to do.
        own: the device's training samples, for a ``Job`` that brings none.
        progress: told the share done, 0 to 1.
        stop: asked before each training step; True gives up.

    Raises:
        Stopped: ``stop`` said so.
    """
    if isinstance(work, (EvalJob, PredictorEvalJob)):
        return _tested(trainer, work)
    if isinstance(work, TrainedEvalJob):
        return _tested(trainer, work.test(trainer.train(work.job, own, progress, stop)))
    if isinstance(work, Encoding):
        return trainer.encode(work.weights, work.samples.inputs, work.split)
    return trainer.train(work, own, progress, stop)


def _tested(trainer: Trainer, test: EvalJob | PredictorEvalJob) -> Score:
    """Return the score of a test."""
    if isinstance(test, EvalJob):
        return trainer.evaluate(test.weights, test.samples, test.loss)
    return score(test.predictor(ModelPredictions(trainer)), test.samples, test.loss)


def mode_of(work: Work) -> str:
    """Return the mode of a test; of other work, nothing."""
    return work.mode if isinstance(work, DeviceTest) else ""
