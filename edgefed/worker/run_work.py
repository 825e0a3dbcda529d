"""Pass a task's work to the trainer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from edgefed.algorithms.interface.device_side import (
    Chosen,
    DensityFit,
    DeviceTest,
    Encoding,
    EvalJob,
    LowestLossJob,
    PredictorEvalJob,
    Result,
    StatisticsJob,
    TrainedEvalJob,
    Work,
    WorkSequence,
    lowest,
)
from edgefed.learn.base.types import Samples, Score, Trained
from edgefed.learn.samples.jobs import samples_of
from edgefed.learn.training.batch_statistics import batch_statistics
from edgefed.learn.training.density import fit_density
from edgefed.learn.training.measures import NOTHING_MORE, Measures
from edgefed.learn.training.scoring import score
from edgefed.learn.training.trainer import ModelPredictions, Stopped, Trainer


def run_work(
    trainer: Trainer,
    work: Work,
    own: Samples,
    progress: Callable[[float], None] | None = None,
    stop: Callable[[], bool] | None = None,
    measures: Measures = NOTHING_MORE,
) -> Result:
    """Train, test, encode or measure, and return the result.

    Args:
        trainer: has the task's model.
        work: the task's.
        own: the device's training samples, for a job that brings none.
        progress: called with the share done, 0 to 1.
        stop: called before each training step, and each batch of a test; True ends the work.
        measures: of a test, beside loss and accuracy.

    Raises:
        Stopped: ``stop`` returned True.
    """
    if isinstance(work, (EvalJob, PredictorEvalJob)):
        return _tested(trainer, work, measures, stop)
    if isinstance(work, TrainedEvalJob):
        before = None if work.before is None else _tested(trainer, work.before, NOTHING_MORE, stop)
        after = work.test(trainer.train(work.job, own, progress, stop))
        return replace(_tested(trainer, after, measures, stop), before=before)
    if isinstance(work, Encoding):
        return trainer.encode(work.weights, work.samples.model_inputs, work.split)
    if isinstance(work, DensityFit):
        return fit_density(work.inputs, work.seed, trainer.device, progress, stop)
    if isinstance(work, StatisticsJob):
        inputs = (own if work.samples is None else work.samples).model_inputs
        return batch_statistics(trainer, work.weights, inputs, work.known, progress, stop)
    if isinstance(work, LowestLossJob):
        index = _lowest_loss(trainer, work, own, stop)
        return Chosen(index, trainer.train(work.jobs[index], own, progress, stop))
    if isinstance(work, WorkSequence):
        return _in_order(trainer, work, own, progress, stop)
    return trainer.train(work, own, progress, stop)


def _in_order(
    trainer: Trainer,
    sequence: WorkSequence,
    own: Samples,
    progress: Callable[[float], None] | None,
    stop: Callable[[], bool] | None,
) -> tuple[Trained | Score, ...]:
    """Return the results of works that are done one after another; each is a share of progress."""
    results: tuple[Trained | Score, ...] = ()
    count = len(sequence.works)
    for number, planned in enumerate(sequence.works):
        work = planned(results) if callable(planned) else planned
        if isinstance(work, EvalJob):
            result: Trained | Score = _tested(trainer, work, NOTHING_MORE, stop)
        else:
            result = trainer.train(work, own, _share(progress, number, count), stop)
        results = (*results, result)
    return results


def _share(
    progress: Callable[[float], None] | None, number: int, count: int
) -> Callable[[float], None] | None:
    """Return the progress of one of several works."""
    return None if progress is None else lambda done: progress((number + done) / count)


def _tested(
    trainer: Trainer,
    test: EvalJob | PredictorEvalJob,
    measures: Measures,
    stop: Callable[[], bool] | None,
) -> Score:
    """Return the score of a test."""
    if isinstance(test, EvalJob):
        return trainer.evaluate(test.weights, test.samples, test.loss, measures, stop)
    return score(test.predictor(ModelPredictions(trainer)), test.samples, test.loss, measures)


def _lowest_loss(
    trainer: Trainer, work: LowestLossJob, own: Samples, stop: Callable[[], bool] | None
) -> int:
    """Return the number of the job whose weights have the lowest loss before training."""
    losses = []
    for job in work.jobs:
        if stop is not None and stop():
            raise Stopped("The choice of a model was stopped.", hint="the task can be sent again")
        losses.append(trainer.evaluate(job.weights, samples_of(job, own), work.loss).loss)
    return lowest(losses)


def mode_of(work: Work) -> str:
    """Return the mode of a test; of other work, nothing."""
    return work.mode if isinstance(work, DeviceTest) else ""
