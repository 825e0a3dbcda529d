"""Pass a task's work to the trainer."""

from __future__ import annotations

from collections.abc import Callable

from edgefed.algorithms.base import Encoding, EvalJob, PredictorEvalJob, Result, Work
from edgefed.learn.scoring import score
from edgefed.learn.training import Trainer
from edgefed.learn.types import Samples


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
    if isinstance(work, EvalJob):
        return trainer.evaluate(work.weights, work.samples, work.loss)
    if isinstance(work, PredictorEvalJob):
        return score(work.predictor(trainer.predict), work.samples, work.loss)
    if isinstance(work, Encoding):
        return trainer.encode(work.weights, work.samples.inputs, work.split)
    return trainer.train(work, own, progress, stop)
