"""The inputs and outputs of an algorithm's device half: tasks, a view of the device, work.

A trainer does the work; the half itself has no training loop.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from edgefed.config.recipes.sections import LossName
from edgefed.data.base.types import UNPREPARED, Preparation
from edgefed.learn.base.types import Array, Job, Samples, Score, Tensors, Trained
from edgefed.natural_noise.draw import DrawNoise, draw_noise
from edgefed.sharing.policy import Policy
from edgefed.sharing.random_words import RandomWords, generator_words

if TYPE_CHECKING:
    from edgefed.learn.modeling.model import Model
    from edgefed.learn.training.scoring import Predict, Predictor

MODE = "mode_"
"""Before a mode in the name of the metric that tells it; see ``EvalJob.mode``."""

LedgerEntry = Mapping[str, Any]
"""A device's record of one release: JSON values by name."""


def operating_system_generator() -> np.random.Generator:
    """Return a new generator whose 256-bit seed the operating system drew."""
    return np.random.default_rng(secrets.randbits(256))


class DeviceTrust(Protocol):
    """Signs for a device, and verifies signatures of other devices of its fleet."""

    @property
    def certificate(self) -> bytes:
        """The device's own certificate, as ``verify`` of other devices takes it."""
        ...

    def sign(self, data: bytes) -> bytes:
        """Return the device's signature of some bytes."""
        ...

    def verify(self, device: str, certificate: bytes, data: bytes, signature: bytes) -> None:
        """Check that a device of this fleet signed some bytes.

        Raises:
            EdgeFedError: it did not, or the certificate is not that device's.
        """
        ...


@dataclass(frozen=True)
class DeviceTask:
    """A task as the device's half sees it, its blobs decoded.

    Attributes:
        groups: arrays by role, as the question named them.
        seed: of every draw of this task on this device.
        receivers: the devices to which the answer may send a blob, one to each.
        run: id of the run; it is part of signatures between devices, and nothing else depends on
            it.
        rounds: planned rounds of the run, over which a learning rate may change.
        max_relay_bytes: the largest such blob.
        relays: blobs from other devices, by sender, sorted; those of one sender in sending order.
            Empty where the coordinator no longer has them.
        task_digest: of the part of the task that is the same for all devices
            (``wire.task_digest``); empty where updates are not masked.
    """

    question: str
    round: int
    device: str
    seed: int
    groups: Mapping[str, Tensors]
    params: Mapping[str, Any]
    receivers: tuple[str, ...] = ()
    max_relay_bytes: int = 0
    relays: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)
    rounds: int = 0
    run: str = ""
    task_digest: bytes = b""


@dataclass(frozen=True)
class DeviceView:
    """The resources of a device's half.

    Attributes:
        train, test: the device's samples; ``test`` may be empty.
        private: state that earlier answers of this run left.
        policy: the sharing policy of its owner.
        model: the run's model; its ``classes`` and ``vocabulary`` define the meaning of samples.
        device_state: groups of arrays that answers of any run left; read-only.
        ledger: the device's record of releases in all runs, oldest first.
        private_generator: for privacy noise, and nothing else: the run's seed does not determine
            it, so its draws differ from run to run.
        private_words: random words for privacy noise, from the operating system; None to draw them
            from ``private_generator``, as tests do.
        class_names: names of the run's labels; empty when they have none.
        preparation: of the inputs.
        noise: draws natural noise; see ``noise_samples``.
        pool: pixels from 0 to 1 of all devices, which only a simulation has.
        memory: the most bytes that training may take here; the model alone fits.
        trust: signs for the device; None in simulations, and in fleets without certificates.
        private_bytes: returns random bytes for keys, from the operating system's generator.
    """

    train: Samples
    test: Samples
    private: Mapping[str, Tensors]
    policy: Policy
    model: Model
    device_state: Mapping[str, Tensors] = field(default_factory=dict)
    ledger: tuple[LedgerEntry, ...] = ()
    private_generator: np.random.Generator = field(default_factory=operating_system_generator)
    class_names: tuple[str, ...] = ()
    preparation: Preparation = UNPREPARED
    noise: DrawNoise = draw_noise
    pool: Array | None = None
    memory: int = sys.maxsize
    trust: DeviceTrust | None = None
    private_words: RandomWords | None = None
    private_bytes: Callable[[int], bytes] = secrets.token_bytes

    def words(self) -> RandomWords:
        """Return the source of random words for privacy noise."""
        return self.private_words or generator_words(self.private_generator)


@dataclass(frozen=True)
class EvalJob:
    """Work for the trainer that only tests: ``weights`` on ``samples``, by ``loss``.

    Attributes:
        mode: the origin of the tested model, such as ``known`` for a device that has trained;
            devices of different modes are also counted separately. Empty for no mode.
    """

    weights: Tensors
    samples: Samples
    loss: LossName = "cross_entropy"
    mode: str = ""


@dataclass(frozen=True)
class PredictorEvalJob:
    """Work for the trainer that tests the joint predictions of several models.

    Attributes:
        predictor: given how a single model predicts, returns how the device predicts; it may use
            the device's private state.
        samples: to predict.
        loss: of the outputs.
        mode: as in ``EvalJob``.
    """

    predictor: Callable[[Predict], Predictor]
    samples: Samples
    loss: LossName = "cross_entropy"
    mode: str = ""


@dataclass(frozen=True)
class TrainedEvalJob:
    """Work for the trainer that trains a model first, for instance to fine-tune it, and tests it.

    The trained weights are not kept.

    Attributes:
        job: the training.
        before: the test of the model before training; its loss and accuracy are reported too. None
            for no such test.
        test: given the result of training, returns the test.
        mode: as in ``EvalJob``; that of the test does not matter.
    """

    job: Job
    test: Callable[[Trained], EvalJob | PredictorEvalJob]
    mode: str = ""
    before: EvalJob | PredictorEvalJob | None = None


@dataclass(frozen=True)
class Encoding:
    """Work for the trainer that only runs the first ``split`` layers, with ``weights``."""

    weights: Tensors
    samples: Samples
    split: int


@dataclass(frozen=True)
class LowestLossJob:
    """Work for the trainer that does one of several jobs: the one that starts at the lowest loss.

    Attributes:
        jobs: one at least. Of equal losses the first one counts.
        loss: to compare, over the samples that the job would train on.
    """

    jobs: tuple[Job, ...]
    loss: LossName = "cross_entropy"


@dataclass(frozen=True)
class Chosen:
    """The result of a ``LowestLossJob``: the number of the job that was done, and its result."""

    index: int
    trained: Trained


@dataclass(frozen=True)
class DensityFit:
    """Work for the trainer that fits p(x|s) to inputs; see ``learn/density``.

    Attributes:
        inputs: numbers from 0 to 1, (n, …).
        seed: of every draw.
    """

    inputs: Array
    seed: int


@dataclass(frozen=True)
class StatisticsJob:
    """Work for the trainer that measures the inputs of batch normalisation layers.

    See ``learn/batch_statistics``; ``learn/pooled_statistics`` pools the results of devices.

    Attributes:
        weights: of the model.
        samples: None for the device's own training samples.
        known: names of layers that normalise with the statistics of ``weights``; the others do with
            those just measured.
    """

    weights: Tensors
    samples: Samples | None = None
    known: frozenset[str] = frozenset()


@dataclass(frozen=True)
class WorkSequence:
    """Several works of one task, done in order; the result is the tuple of theirs.

    Attributes:
        works: one at least. A function is called with the results so far, and returns the work.
    """

    works: tuple[Job | EvalJob | Callable[[tuple[Trained | Score, ...]], Job | EvalJob], ...]


DeviceTest = EvalJob | PredictorEvalJob | TrainedEvalJob
"""How a device tests the model of an ``evaluate`` task."""

Work = Job | LowestLossJob | WorkSequence | DeviceTest | Encoding | DensityFit | StatisticsJob
"""Work of a trainer."""

Result = Trained | Chosen | tuple[Trained | Score, ...] | Score | Array | Tensors
"""The result: ``Trained`` of a ``Job``, ``Chosen`` of a ``LowestLossJob``, a tuple of a
``WorkSequence``, ``Score`` of an evaluation, hidden states (n, …) of an ``Encoding``, weights of a
``DensityFit``, running means and variances of a ``StatisticsJob``."""


def lowest(losses: Sequence[float]) -> int:
    """Return the place of the lowest loss, the first of equal ones.

    One that is not a finite number counts as the highest.
    """
    known = [loss if np.isfinite(loss) else np.inf for loss in losses]
    return known.index(min(known))
