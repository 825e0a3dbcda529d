"""The recipe's ``[training]`` table: how a device trains."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from edgefed.config.recipes.class_weights import ClassWeights
from edgefed.config.recipes.sections import LossName, Section

ScheduleName = Literal["constant", "cosine", "step", "linear"]


class TrainingSection(Section):
    """How a device trains between two exchanges."""

    loss: LossName = "cross_entropy"
    """The loss that training minimises and evaluation reports: ``cross_entropy`` for labels or
    label distributions; ``squared_error``, the mean of (output - target)², for numeric targets; or
    ``package.module:function`` for one of your own, of outputs and targets."""

    epochs: Annotated[int, Field(ge=1, le=1000)] = 1
    """Passes over the device's data in a round."""

    least_epochs: Annotated[int, Field(ge=0, le=1000, validate_default=True)] = 0
    """Fewest passes: in each round every device does a number of its own, drawn between this and
    ``epochs``. 0: every device does ``epochs``."""

    seconds: Annotated[float, Field(ge=0, le=30 * 86400, allow_inf_nan=False)] = 0.0
    """Time budget of an answer, with its transfers: each device does as many steps as its last
    answer in the run lets expect, at most ``epochs``; the first is one epoch. 0: no budget."""

    batch_size: Annotated[int, Field(ge=1, le=65536)] = 16
    """Samples in a mini-batch; the last one of an epoch may be smaller."""

    learning_rate: Annotated[float, Field(gt=0, le=100)] = 0.05
    """Step size of the local optimiser."""

    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    """Local optimiser. Its state is reset in each round. ``adamw`` is Adam with decoupled weight
    decay."""

    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """With ``adam`` or ``adamw``: decay of the first moment."""

    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    """With ``adam`` or ``adamw``: decay of the second moment."""

    epsilon: Annotated[float, Field(gt=0, le=1)] = 1e-8
    """With ``adam`` or ``adamw``: added to the root of the second moment."""

    learning_rate_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Factor by which the learning rate is multiplied after each round, beside ``schedule``."""

    schedule: ScheduleName = "constant"
    """How the learning rate changes after the warm-up: ``constant``; ``cosine`` or ``linear``, down
    to ``final_rate``; ``step``, by ``step_factor`` after every ``step_every``."""

    schedule_over: Literal["round", "run"] = "round"
    """The span of ``schedule`` and ``warm_up``: the steps of each ``round`` on a device, or the
    rounds of the ``run``, in each of which the rate is constant."""

    warm_up: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Fraction of these steps or rounds in which the learning rate rises linearly to its full
    value."""

    final_rate: Annotated[float, Field(ge=0, le=1)] = 0.0
    """With ``cosine`` or ``linear``: fraction of the learning rate at the end. With ``step``: the
    fraction below which it does not fall."""

    step_every: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """With ``step``: number of steps or rounds after which the rate changes."""

    step_factor: Annotated[float, Field(gt=0, le=1)] = 0.1
    """With ``step``: factor by which the rate is multiplied each time."""

    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """With ``sgd``: heavy-ball momentum; 0 is plain SGD."""

    nesterov: bool = False
    """With ``sgd`` and a momentum: Nesterov's momentum."""

    weight_decay: Annotated[float, Field(ge=0, le=1)] = 0.0
    """L2 penalty added to the gradient; with ``adamw``, decay of the weights by this times the
    learning rate."""

    max_gradient_norm: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """Norm of all gradients of a step together to which longer ones are clipped; 0 for no limit."""

    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Fraction of each target that is spread over all classes, in training only."""

    class_weights: ClassWeights = "none"
    """Weights of the classes in the training loss: ``none``; ``balanced``, from each device's own
    counts, so that all its classes weigh the same; or a number for each class."""

    max_steps: Annotated[int, Field(ge=0)] = 0
    """Maximum number of steps in a round; 0 for no limit."""

    carry_state: bool = False
    """Train a recurrent model on consecutive text: the samples keep their order, and each row of a
    batch begins with the state in which that row of the batch before it ended; every epoch begins
    with a state of zeros. Evaluation always does."""

    precision: Literal["fp32", "bf16"] = "fp32"
    """Arithmetic of the forward pass; ``bf16`` is mixed precision."""

    crop: Annotated[int, Field(ge=0, le=64)] | None = None
    """Pixels that are padded around each image of a batch before it is cropped at random to its
    previous size; 0 for no crop. Unset: the ``crop`` of the data set."""

    crop_fill: Literal["reflect", "zeros"] | None = None
    """With ``crop``: the added pixels mirror the image (``reflect``) or are ``zeros``. Unset: the
    value of the data set."""

    flip: bool | None = None
    """Mirror half of the images of each batch left to right. Unset: the value of the data set."""

    @property
    def varies(self) -> bool:
        """Whether devices do different amounts of work."""
        return self.least_epochs > 0 or self.seconds > 0

    @field_validator("least_epochs")
    @classmethod
    def _at_most_epochs(cls, value: int, info: ValidationInfo) -> int:
        """Check the range of epochs."""
        epochs = info.data.get("epochs", value)
        if value > epochs:
            raise ValueError(f"must be at most epochs, which is {epochs}")
        return value
