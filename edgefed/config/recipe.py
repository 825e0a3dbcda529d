"""The recipe: what a run trains, as pydantic models that ``edgefed config schema`` shows."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from edgefed.config.class_names import Classes

CodecName = Literal["fp32", "bf16", "int8"]

LossName = Literal["cross_entropy", "squared_error"]

NAME_PATTERN = r"^[a-z0-9][a-z0-9-]{0,63}$"
"""A name that is safe in a topic, a file name and a host name."""


class Section(BaseModel):
    """A table of a recipe; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class OpenSection(BaseModel):
    """A table whose further keys belong to what its ``name`` names, which checks them."""

    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)

    def settings(self) -> dict[str, Any]:
        """Return the further keys."""
        return dict(self.__pydantic_extra__ or {})


class ModelSection(OpenSection):
    """The network; further keys are its factory's."""

    name: str = "cnn"
    """Name of a model: ``cnn``, ``lenet5``, ``lenet5-wide``, ``lstm``, ``mlp``, ``resnet18``,
    ``resnet20``, ``vgg9``; or ``package.module:factory`` for one of your own."""


class DataSection(OpenSection):
    """The data that the coordinator tests on, and that virtual devices share out.

    A real device trains on its own data, named in its own settings, never in the recipe.
    Further keys are the data set's.
    """

    name: str = "digits"
    """Name of a data set: ``digits``, ``npz``, ``folder``, ``mnist``, ``fashion-mnist``,
    ``emnist``, ``cifar10``, ``cifar100``, ``svhn``, ``femnist``, ``shakespeare``; ``none`` for
    none."""

    classes: Classes = ()
    """The run's classes in order, by name: ``["cat", "dog"]``. Devices number their own labels
    after it; one may lack some classes, and one with a class that is not listed takes no part. A
    number: how many labels there are, or numbers in a target. Left out: as the data sets of devices
    and coordinator say, which must then agree."""

    partition: str = "classes"
    """How virtual devices share the training data: ``classes``, ``overlap``, ``disjoint-random``,
    ``niid-label``, ``shards``, ``dirichlet``, ``dirichlet-equal``, ``pachinko``, ``natural``,
    ``quantity``, ``growing``, ``iid``."""

    classes_per_device: Annotated[int, Field(ge=1)] = 2
    """With ``classes``, ``overlap``, ``disjoint-random`` or ``niid-label``: how many different
    labels each device holds."""

    alpha: Annotated[float, Field(gt=0)] = 0.5
    """With ``dirichlet``, ``dirichlet-equal``, ``growing`` or ``quantity``: concentration; smaller
    is more skewed."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes that the table names; empty where it names none."""
        return self.classes if isinstance(self.classes, tuple) else ()


class AlgorithmSection(OpenSection):
    """The federated algorithm; further keys are its settings (``edgefed algo show NAME``)."""

    name: str = "fedavg"
    """Name of an algorithm, as ``edgefed algo list`` prints it."""


class TrainingSection(Section):
    """How a device trains between two exchanges."""

    loss: LossName = "cross_entropy"
    """What training descends and tests report: ``cross_entropy`` for labels, or shares of them;
    ``squared_error``, the mean of (output - target)², for targets that are numbers."""

    epochs: Annotated[int, Field(ge=1, le=1000)] = 1
    """Passes over the device's data in a round."""

    batch_size: Annotated[int, Field(ge=1, le=65536)] = 16
    """Samples in a mini-batch; the last one of an epoch may be smaller."""

    learning_rate: Annotated[float, Field(gt=0, le=100)] = 0.05
    """Step size of the local optimiser."""

    optimizer: Literal["sgd", "adam"] = "sgd"
    """Local optimiser. Its state starts anew in each round."""

    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """With ``adam``: decay of the first moment."""

    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    """With ``adam``: decay of the second moment."""

    epsilon: Annotated[float, Field(gt=0, le=1)] = 1e-8
    """With ``adam``: added to the root of the second moment."""

    learning_rate_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The learning rate is multiplied by this after each round."""

    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """With ``sgd``: heavy-ball momentum; 0 is plain SGD."""

    weight_decay: Annotated[float, Field(ge=0, le=1)] = 0.0
    """L2 penalty added to the gradient."""

    max_steps: Annotated[int, Field(ge=0)] = 0
    """Most steps in a round; 0 for no limit."""

    precision: Literal["fp32", "bf16"] = "fp32"
    """Arithmetic of the forward pass; ``bf16`` is mixed precision."""

    crop: Annotated[int, Field(ge=0, le=64)] | None = None
    """Pixels put around an image of each batch before a random piece of its old size is cut out; 0
    for none. Left out: what the data set declares in its own ``crop``."""

    crop_fill: Literal["reflect", "zeros"] | None = None
    """With ``crop``: the added pixels mirror the image (``reflect``) or are ``zeros``. Left out:
    what the data set declares."""

    flip: bool | None = None
    """Mirror half of the images of each batch left to right. Left out: what the data set
    declares."""


class RoundsSection(Section):
    """How many rounds, who is asked, how long they have."""

    count: Annotated[int, Field(ge=1, le=1_000_000)] = 40
    """Rounds of the run."""

    cohort: Annotated[int, Field(ge=0)] = 0
    """How many answers a round wants; 0 for every device that is there."""

    over_selection: Annotated[float, Field(ge=0, le=4)] = 0.0
    """Ask this share more devices than wanted, and take the first answers."""

    quorum: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of the wanted answers that suffices when the deadline passes."""

    deadline: Annotated[float, Field(gt=0, le=30 * 86400)] = 300.0
    """Seconds that an exchange may take."""

    lost_grace: Annotated[float, Field(ge=0, le=30 * 86400)] | Literal["deadline"] = 30.0
    """Seconds that an exchange which has its quorum waits for devices that are lost, if no other
    is still at work: from the quorum or from the loss, whichever is later. ``deadline``: until
    the deadline, as for any other device."""

    retries: Annotated[int, Field(ge=0, le=100)] = 2
    """How often a round that missed its quorum is asked again before the run fails."""

    min_devices: Annotated[int, Field(ge=1)] = 1
    """Devices that must be there before the run starts."""

    join_timeout: Annotated[float, Field(gt=0, le=7 * 86400)] = 60.0
    """Seconds to wait for those devices."""


class WireSection(Section):
    """How tensors travel."""

    downlink: CodecName = "bf16"
    """Coordinator to devices: ``fp32``, the weights as they are; ``bf16`` or ``int8``, their
    difference from what was sent before."""

    uplink: CodecName = "bf16"
    """Devices to coordinator."""

    error_feedback: bool = True
    """Devices carry what a lossy code dropped into their next reply."""


class EvaluationSection(Section):
    """How the model is tested."""

    every: Annotated[int, Field(ge=0)] = 1
    """Test after every so many rounds, and after the last; 0 for the last only."""

    on: Literal["coordinator", "devices", "both"] = "coordinator"
    """Whose held-out samples: the coordinator's test set, each device's own share, or both."""


class SimulationSection(Section):
    """Only for virtual devices and the demo."""

    devices: Annotated[int, Field(ge=1, le=1_000_000)] = 8
    """How many devices share the data."""

    holdout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of its samples that each device keeps for evaluation."""

    sharing: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of the devices that give averaged data when a method asks for them; the others refuse,
    and train all the same."""

    workers: Annotated[int, Field(ge=0, le=1024)] = 0
    """Worker processes of a simulation; 0 for one a core, 1 for none beside the main process."""

    engine: Literal["auto", "sequential", "stacked"] = "auto"
    """Who trains: one device after another (``sequential``), or many at once in one batch
    (``stacked``, quick on a GPU, slow on a CPU). ``auto``: stacked on a GPU, if the model can be,
    else worker processes."""

    chunk: Annotated[int, Field(ge=1, le=65536)] = 32
    """With ``stacked``: most devices that train at once; memory grows with it."""


class Recipe(Section):
    """One run: what is trained, how, and on what terms."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)] = "digits-fedavg"
    """A short name for lists and files; without one, ``DATA-ALGORITHM``."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Every random draw of the run derives from it."""

    model: ModelSection = ModelSection()
    data: DataSection = DataSection()
    algorithm: AlgorithmSection = AlgorithmSection()
    training: TrainingSection = TrainingSection()
    rounds: RoundsSection = RoundsSection()
    wire: WireSection = WireSection()
    evaluation: EvaluationSection = EvaluationSection()
    simulation: SimulationSection = SimulationSection()
