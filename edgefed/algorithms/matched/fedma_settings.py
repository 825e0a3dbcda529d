"""Settings of FedMA."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from edgefed.algorithms.matched.matching_settings import MatchingSettings


class FedMaSettings(MatchingSettings):
    """Settings of ``fedma``."""

    retrain_epochs: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Epochs for which a device trains the layers above a matched layer. Unset:
    ``training.epochs``. 0: devices send all layers at once, which are matched one after another."""

    last_epochs: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Epochs for which a device trains the output layer alone. Unset: as ``retrain_epochs``."""

    retrain_learning_rate: Annotated[float, Field(gt=0, le=10)] = 1.0
    """Factor on the learning rate where the layers above a matched layer are trained."""

    last_learning_rate: Annotated[float, Field(gt=0, le=10)] = 1.0
    """Factor on the learning rate where the output layer is trained alone; the paper has 0.1."""

    initial: Literal["shared", "independent"] = "shared"
    """Whether all devices begin with the same weights, or each with weights of its own."""

    last_layer: Literal["classes", "samples", "uniform"] = "classes"
    """The weight of a device in the mean of the output layers: for each class its share of that
    class's samples (``classes``), its share of all samples, or the same for all (``uniform``). With
    ``classes``, a device whose owner does not share label counts has equally many of each class,
    and a class that fewer than half of the devices have is averaged by ``samples``."""

    weighting: Literal["uniform", "examples"] = "uniform"
    """Whether all devices that have a unit weigh as much in its mean, or each by its samples."""

    decides: Literal["first", "ready"] = "first"
    """With residual connections: whether the ``first`` layer that adds to a sum decides the order
    of its channels, or all those together whose inputs are matched by then (``ready``)."""

    recurrent: Literal["held", "padded"] = "held"
    """How an LSTM's weights from its own last output are averaged: over the devices that have both
    units (``held``), or over all, with zeros for units that a device lacks (``padded``)."""

    quadratic: bool = False
    """With an LSTM: whether the weights from its own last output also count in the matching, by an
    approximate solution of the quadratic assignment problem."""

    layer_codec: Literal["fp32", "bf16"] = "bf16"
    """Codec of layers in both directions; the recipe's ``[wire]`` table does not apply to them.
    With ``bf16``, matched layers are rounded, so that devices have exactly the saved model."""
