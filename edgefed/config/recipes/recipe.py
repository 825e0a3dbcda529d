"""The recipe as pydantic models: the definition of a run. ``edgefed config schema`` prints them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from edgefed.config.recipes.checks_section import ChecksSection
from edgefed.config.recipes.class_names import Classes
from edgefed.config.recipes.images_section import ImagesSection
from edgefed.config.recipes.merging_section import MergingSection
from edgefed.config.recipes.privacy_section import PrivacySection
from edgefed.config.recipes.rollout_section import RolloutSection
from edgefed.config.recipes.sections import (
    CodecName,
    OpenSection,
    Section,
    TrainChoice,
    UserFunction,
    WeightPattern,
)
from edgefed.config.recipes.secure_aggregation_section import SecureAggregationSection
from edgefed.config.recipes.selection_section import SelectionSection
from edgefed.config.recipes.speeds_section import SpeedsSection
from edgefed.config.recipes.training_section import TrainingSection

NAME_PATTERN = r"^[a-z0-9][a-z0-9-]{0,63}$"
"""A name that is safe in a topic, a file name and a host name."""


class ModelSection(OpenSection):
    """The network; further keys are its settings."""

    name: str = "cnn"
    """Name of a model: ``cnn``, ``lenet5``, ``lenet5-wide``, ``lstm``, ``mlp``, ``resnet18``,
    ``resnet20``, ``vgg9``; a classifier of torchvision, such as
    ``torchvision:mobilenet_v3_small``; one of a plug-in; or ``package.module:factory`` for one of
    your own."""

    weights: Annotated[str, Field(max_length=4096)] = ""
    """Initial weights from elsewhere: ``default`` for those that torchvision publishes, or a
    ``.safetensors`` or ``.pth`` file. An output layer for other classes is not taken. Empty: drawn
    from the run's seed."""

    start: Annotated[str, Field(max_length=4096)] = ""
    """A model of EdgeFed's to start from: ``run:r-0007``, or a run's ``model.safetensors``. The
    output layer's rows are taken by the names of classes; new classes get new rows."""

    train: TrainChoice = "all"
    """The trained weights: ``all``; the ``head``, which is the last linear layer; ``last:N``, the
    last N layers with weights; or names of weights, with ``*`` and ``?`` for any characters and any
    character: ``["classifier.*"]``. The others are frozen: devices receive them once."""


class DataSection(OpenSection):
    """The data that the coordinator tests on, and that is partitioned over virtual devices.

    A real device trains on its own data, named in its own settings, never in the recipe.
    Further keys are the data set's.
    """

    name: str = "digits"
    """Name of a data set: ``digits``, ``npz``, ``folder``, ``mnist``, ``fashion-mnist``,
    ``emnist``, ``cifar10``, ``cifar100``, ``svhn``, ``femnist``, ``shakespeare``,
    ``huggingface``; ``memory`` for data that a Python program passes; ``none`` for none; one of a
    plug-in; or in simulations ``package.module:name`` for a reader of your own."""

    classes: Classes = ()
    """The run's classes in order, by name: ``["cat", "dog"]``. Devices map their labels to this
    list; a device may lack classes, but is excluded if it has a class that is not listed. A
    number: the number of labels, or of values in a target. Unset: the classes of the data sets
    of devices and coordinator, which must be equal."""

    partition: str = "classes"
    """How the training data is partitioned over virtual devices: ``classes``, ``overlap``,
    ``disjoint-random``, ``niid-label``, ``shards``, ``dirichlet``, ``dirichlet-equal``,
    ``pachinko``, ``natural``, ``quantity``, ``growing``, ``clusters``, ``histograms``, ``iid``; one
    of a plug-in; or ``package.module:name`` for one of your own."""

    classes_per_device: Annotated[int, Field(ge=1)] = 2
    """With ``classes``, ``overlap``, ``disjoint-random`` or ``niid-label``: number of labels that
    each device holds."""

    alpha: Annotated[float, Field(gt=0)] = 0.5
    """With ``dirichlet``, ``dirichlet-equal``, ``growing``, ``clusters`` or ``quantity``:
    concentration; smaller is more skewed."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes that the table names; empty where it names none."""
        return self.classes if isinstance(self.classes, tuple) else ()


class AlgorithmSection(OpenSection):
    """The federated algorithm; further keys are its settings (``edgefed algo show NAME``)."""

    name: str = "fedavg"
    """Name of an algorithm, as ``edgefed algo list`` prints it. In simulations also
    ``package.module:Class`` for one of your own."""


class RoundsSection(Section):
    """Number of rounds, size of the cohort, time limits."""

    count: Annotated[int, Field(ge=1, le=1_000_000)] = 40
    """Rounds of the run."""

    mode: Literal["synchronous", "buffered"] = "synchronous"
    """``synchronous``: a round asks a cohort and waits for it. ``buffered``: devices train all the
    time, each from the newest weights, and a round ends whenever ``buffer`` answers are there."""

    buffer: Annotated[int, Field(ge=0, le=1_000_000, validate_default=True)] = 0
    """With ``buffered``: answers that are merged together, at most one of each device."""

    concurrency: Annotated[int, Field(ge=0, le=1_000_000, validate_default=True)] = 0
    """With ``buffered``: devices that train at the same time; 0 for all online devices."""

    max_staleness: Annotated[int, Field(ge=0, le=1000)] = 10
    """With ``buffered``: an answer is refused if more than so many rounds ended since its device
    was asked; a device that is further behind is asked anew."""

    cohort: Annotated[int, Field(ge=0, validate_default=True)] = 0
    """Number of answers that a round waits for; 0 for all online devices."""

    test_cohort: Annotated[int, Field(ge=0)] | None = None
    """Number of devices that an evaluation on devices asks; 0 for all online devices. Unset: as
    ``cohort``."""

    over_selection: Annotated[float, Field(ge=0, le=4, validate_default=True)] = 0.0
    """Fraction of additional devices to ask; the first answers are used."""

    quorum: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Fraction of the wanted answers that suffices when the deadline passes."""

    deadline: Annotated[float, Field(gt=0, le=30 * 86400)] = 300.0
    """Time limit of an exchange, in seconds."""

    lost_grace: Annotated[float, Field(ge=0, le=30 * 86400)] | Literal["deadline"] = 30.0
    """Seconds for which an exchange that has its quorum waits for lost devices if no other device
    is still working, counted from the quorum or from the loss, whichever is later. ``deadline``:
    until the deadline, as for any other device."""

    site_sums: Literal["auto", "always", "never"] = "auto"
    """Whether a gateway sends one sum in place of the updates of its site: ``auto``, where the sum
    takes fewer bytes and the method only adds updates up; ``always``; or ``never``. The model is
    the same."""

    checkpoint_every: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Rounds between two copies of the model that are kept, as
    ``checkpoints/round-0010.safetensors`` in the run's folder; 0 for no copies."""

    retries: Annotated[int, Field(ge=0, le=100)] = 2
    """How often a round that missed its quorum is repeated before the run fails."""

    min_devices: Annotated[int, Field(ge=1)] = 1
    """Number of devices that must be online before the run starts. A run that goes on waits for
    them too, and then continues with fewer."""

    join_timeout: Annotated[float, Field(gt=0, le=7 * 86400)] = 60.0
    """Seconds to wait for these devices."""

    @property
    def buffered(self) -> bool:
        """Whether rounds are buffers of answers that devices give at any time."""
        return self.mode == "buffered"

    @field_validator("buffer", "concurrency", "cohort", "over_selection")
    @classmethod
    def _of_its_mode(cls, value: float, info: ValidationInfo) -> float:
        """Check that a key is one of the mode."""
        if "mode" not in info.data:  # it is wrong itself, which is told
            return value
        buffered, key = info.data["mode"] == "buffered", info.field_name
        if buffered and key == "buffer" and not value:
            raise ValueError("must be at least 1 with mode = buffered")
        if value and buffered != (key in ("buffer", "concurrency")):
            wanted = "synchronous" if buffered else "buffered"
            raise ValueError(f"must be 0 unless mode = {wanted}")
        return value


class WireSection(Section):
    """How tensors are encoded on the wire."""

    downlink: CodecName = "bf16"
    """Codec from the coordinator to devices: ``fp32``, the complete weights; ``bf16``, ``int8`` or
    ``topk``, their difference from the weights sent before."""

    uplink: CodecName = "bf16"
    """Codec from devices to the coordinator. ``topk`` sends the quarter of an update's values with
    the largest magnitude; without ``error_feedback`` the others are lost."""

    error_feedback: bool = True
    """Whether devices add the error of a lossy codec to their next reply."""


EvaluationPlace = Literal["coordinator", "devices", "both"]

EvaluationWeighting = Literal["samples", "devices"]

ScoreName = Annotated[str, Field(max_length=128)]


class EvaluationSection(Section):
    """How the model is evaluated."""

    every: Annotated[int, Field(ge=0)] = 1
    """Rounds between evaluations; the last round is always evaluated. 0: only the last round."""

    on: EvaluationPlace | None = None
    """The samples to evaluate on: the ``coordinator``'s test set, the held-out samples of each of
    the ``devices``, or ``both``. Unset: the devices', where each has a model of its own, as with
    ``fedmoe``; otherwise the coordinator's."""

    validation_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Fraction of the data set's training samples that the coordinator keeps apart for choosing
    settings and rounds; no simulated device trains on them. Each evaluation then also has scores of
    these, such as ``validation_accuracy``. 0 for none."""

    weighting: EvaluationWeighting | None = None
    """With tests on devices: whether the mean over devices weighs each by its number of held-out
    samples (``samples``), or all equally (``devices``). Unset: as the algorithm's paper does it,
    ``samples`` for most."""

    confusion: bool = True
    """Whether tests count samples by true and predicted label, for precision, recall and F1 of each
    class. A device's counts tell how many samples of each label it holds out; a device that does
    not share its labels (``share_labels``) sends none."""

    top_k: Annotated[int, Field(ge=0, le=100)] = 5
    """Tests also count the samples whose label is among the k with the largest outputs. With fewer
    classes k is one less than these; below 2, as with 0, nothing is counted."""

    metrics: Annotated[tuple[UserFunction, ...], Field(max_length=16)] = ()
    """Metrics of your own, as ``package.module:function``: functions of outputs and targets that
    return a numerator and a denominator, which are summed over devices. Each is reported under the
    function's name."""

    best_metric: ScoreName = ""
    """The score that says which round is best, by its name in a round's row, such as ``loss`` or
    ``device_accuracy``. The best round's model is kept as ``best.safetensors``. Unset:
    ``accuracy``, or ``loss`` where there is no accuracy."""

    better: Literal["higher", "lower"] | None = None
    """Which values of ``best_metric`` are better. Unset: ``lower`` if ``loss`` or ``error`` is a
    word of its name, otherwise ``higher``."""

    least_tested: Annotated[float, Field(ge=0, le=1)] = 0.9
    """With tests on devices: the least share of the fleet's test samples on which a round has to be
    tested to be compared with others, for the best round and for stopping early. The fleet's are
    those of all devices that have tested in the run and were not removed; where ``rounds.cohort``
    or ``rounds.test_cohort`` draws fewer devices, it is the least share of these."""

    stop_patience: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """The run stops early after this many evaluations without a better ``best_metric``; 0: it
    never does."""

    stop_min_change: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """With ``stop_patience``: a score is better if it differs by more than this from the last that
    was."""


class LabelsSection(Section):
    """Supplements for labels that are missing or rare on a device: mixes of others, and noise.

    DP-LabelHide (arXiv 2409.13235). They are made before training, with any algorithm.
    """

    supplement: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Samples that a device without any of a label gets for it, as a fraction of its largest
    class; 0 for no supplements. A device with some gets those that are missing to that number."""

    count: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """The same as a number of samples, which replaces ``supplement`` if it is not 0."""

    fewer_than: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """A device gets a supplement for every label of which it has fewer training samples than this.
    Its own samples of the label count towards the size of the supplement."""

    mix_share: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Fraction of a supplement that is requested from other devices as mixes."""

    noise: Literal["oriented", "spectrum", "white", "none"] = "oriented"
    """Generator of images for the shortage that mixes do not cover; ``none`` leaves it."""

    width: Annotated[int, Field(ge=1, le=64)] = 4
    """Samples in a mix; 1 is a sample with noise."""

    low: Annotated[float, Field(ge=0.5, le=1)] = 0.5
    """Least weight of the sample whose label a mix has."""

    high: Annotated[float, Field(ge=0.5, le=1, validate_default=True)] = 0.75
    """Largest weight of the sample whose label a mix has."""

    others: Literal["any", "other_classes", "global"] = "any"
    """The other samples of a mix: ``any`` of the device that mixes, those of ``other_classes``, or
    those of all devices (``global``, in simulations only)."""

    noise_scale: Annotated[float, Field(ge=0, le=100)] = 16 / 255
    """Scale of the Laplace noise on each pixel of a mix, where pixels are from 0 to 1."""

    clip: bool = True
    """Whether the pixels of a mix are clipped to 0 to 1 after the noise."""

    wait: Annotated[float, Field(gt=0, le=7 * 86400)] = 60.0
    """Seconds that each of the exchanges about supplements may take."""

    count_supplements: bool = False
    """Whether losses that weigh labels by their number (``fedlc``, ``fedrs``) count supplements."""

    @field_validator("high")
    @classmethod
    def _at_least_low(cls, high: float, info: ValidationInfo) -> float:
        """Check the range of weights, whose lower end may be set alone."""
        low = info.data.get("low", 0.0)
        if low > high:
            raise ValueError(f"must be at least low, which is {low}")
        return high

    @property
    def wanted(self) -> bool:
        """Whether devices get supplements."""
        return self.count > 0 or self.supplement > 0


PersonalPreset = Literal["none", "biased", "lg", "fedper", "fedbn"]


class PersonalSection(Section):
    """Weights that every device keeps to itself: its personal part of the model.

    They are trained with the others, and are neither sent nor averaged. ``weights`` and ``preset``
    together select them.
    """

    weights: Annotated[tuple[WeightPattern, ...], Field(max_length=64)] = ()
    """Names of the model's weights and running statistics, with ``*`` and ``?`` for any characters
    and any character: ``["fc2.bias", "conv1.*"]``."""

    preset: PersonalPreset = "none"
    """Weights by their place: the bias of the output layer (``biased``), the output layer
    (``fedper``), the input layer (``lg``, as LG-FedAvg in the mixture-of-experts paper), all
    normalisation layers with their running statistics (``fedbn``); ``none`` for no preset."""

    own_epochs: Annotated[int, Field(ge=0, le=1000)] = 0
    """Epochs in which a device trains its personal weights alone, before the shared ones alone are
    trained as ``[training]`` says (FedRep); 0 to train all weights together."""

    fine_tune_epochs: Annotated[int, Field(ge=0, le=1000)] = 0
    """Epochs for which a device trains before it tests the model; nothing of that is kept.
    ``accuracy`` is that of the fine-tuned models, ``accuracy_before`` that of the others."""

    @property
    def keeps_weights(self) -> bool:
        """Whether devices have personal weights."""
        return bool(self.weights) or self.preset != "none"

    @property
    def wanted(self) -> bool:
        """Whether devices have personal weights, or train before they test."""
        return self.keeps_weights or self.fine_tune_epochs > 0


class SimulationSection(Section):
    """Settings of virtual devices and of the demo."""

    devices: Annotated[int, Field(ge=1, le=1_000_000)] = 8
    """Number of virtual devices."""

    holdout: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Fraction of its samples that each device holds out for evaluation. Unset: 0.2 where
    evaluation is on devices, otherwise 0."""

    newcomers: Annotated[int, Field(ge=0, validate_default=True)] = 0
    """Number of virtual devices, drawn from the run's seed, that never train: they only test, and
    their scores are also reported separately (``accuracy_newcomer``, ``accuracy_participant``)."""

    sharing: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Fraction of the devices that share averaged data if a method requests them; the others
    refuse, but still train."""

    workers: Annotated[int, Field(ge=0, le=1024)] = 0
    """Worker processes of a simulation; 0 for one per core, 1 for the main process only."""

    engine: Literal["auto", "sequential", "stacked"] = "auto"
    """How devices train: one after another (``sequential``), or many at once in one batch
    (``stacked``; fast on a GPU, slow on a CPU). ``auto``: stacked on a GPU, if the model
    supports it, otherwise worker processes."""

    chunk: Annotated[int, Field(ge=1, le=65536)] = 32
    """With ``stacked``: maximum number of devices that train at once; memory grows with it."""

    @field_validator("newcomers")
    @classmethod
    def _some_train(cls, newcomers: int, info: ValidationInfo) -> int:
        """Check that a device is left to train."""
        devices = info.data.get("devices", newcomers + 1)
        if newcomers >= devices:
            raise ValueError(f"must be below the number of devices, which is {devices}")
        return newcomers


class Recipe(Section):
    """The recipe of a run."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)] = "digits-fedavg"
    """A short name for lists and files; by default ``DATA-ALGORITHM``."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Seed of the run; all random draws except privacy noise derive from it."""

    model: ModelSection = ModelSection()
    data: DataSection = DataSection()
    algorithm: AlgorithmSection = AlgorithmSection()
    training: TrainingSection = TrainingSection()
    images: ImagesSection = ImagesSection()
    rounds: RoundsSection = RoundsSection()
    selection: SelectionSection = SelectionSection()
    labels: LabelsSection = LabelsSection()
    personal: PersonalSection = PersonalSection()
    secure_aggregation: SecureAggregationSection = SecureAggregationSection()
    privacy: PrivacySection = PrivacySection()
    checks: ChecksSection = ChecksSection()
    merging: MergingSection = MergingSection()
    wire: WireSection = WireSection()
    evaluation: EvaluationSection = EvaluationSection()
    rollout: RolloutSection = RolloutSection()
    simulation: SimulationSection = SimulationSection()
    speeds: SpeedsSection = SpeedsSection()
