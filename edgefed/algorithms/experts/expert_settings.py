"""Settings of the federated mixture of experts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from edgefed.algorithms.interface.base import AlgorithmSettings
from edgefed.learn.aggregation.server_optimizers import ServerOptimizer

MOST_EXPERTS = 64


class ExpertSettings(AlgorithmSettings):
    """Settings of ``fedmoe``."""

    experts: Annotated[int, Field(ge=1, le=MOST_EXPERTS)] = 4
    """Number of experts, K; 1 is FedAvg with this server optimiser."""

    condition: Annotated[str, Field(min_length=1, max_length=64)] = "label"
    """The variable that selects the experts for a sample: its ``label``; the name of a column of
    the samples, such as ``rotation`` or ``site``; or the ``device`` that has it."""

    condition_values: Annotated[int, Field(ge=0, le=4096, validate_default=True)] = 0
    """With a column as ``condition``: number of its values, which are 0, 1, 2, …"""

    prune: Annotated[float, Field(ge=0, le=1)] = 0.0
    """A device does not use an expert whose share of its samples is below ``prune`` / K, and is
    not sent it again below 0.9 of that; 0 for all experts on all devices."""

    permanent_prune: bool = False
    """Whether an expert that a device has stopped using is never sent to it again, as the paper's
    algorithm 2 has it; otherwise it is sent again when its share rises."""

    prune_gate_targets: bool = False
    """Whether gates learn the shares without those of unused experts; the paper's learn all."""

    most_experts: Annotated[int, Field(ge=0, le=MOST_EXPERTS)] = 0
    """Most experts that a device is sent, those with the largest shares; 0 for no limit. Training
    takes memory for each."""

    entropy: Literal["none", "local", "direct"] = "none"
    """Local objective: ``none``, the paper's; ``local`` adds the entropy of the shares, with which
    experts become alike (equation 5); ``direct`` maximises the mixture's likelihood, with which
    one expert remains (equation 3)."""

    entropy_weight: Annotated[float, Field(ge=0, le=1000)] = 1.0
    """Weight of the entropy of the shares over all labels, which the coordinator maximises."""

    detach_gate_features: bool = False
    """Whether the gates' gradients stop at the experts' features."""

    skip_below: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """A device skips the backward pass of a sample through an expert whose share of it is below
    this, which saves time once experts have specialised, mostly with ``detach_gate_features``; 0
    for the exact gradient. An expert's gradient is off by less than this times the mean size of
    the gradients of single samples."""

    gates: Literal["private", "averaged"] = "private"
    """Whether each device has a gate of its own, or gates are averaged like weights (the paper's
    FEMNIST)."""

    personal_bias: bool = False
    """Whether each device has an output bias of its own, which is never sent (biased FedMix)."""

    start: Literal["independent", "updates"] = "independent"
    """How experts begin: with ``independent`` initial weights, or from the most different
    ``updates`` of a first round in which all devices train the same weights."""

    start_devices: Annotated[int, Field(ge=1, le=1024)] = 64
    """With ``start = "updates"``: most devices asked for an update; the coordinator holds all of
    these at once."""

    reseed_dead: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Rounds after which an expert with less than a hundredth of an equal share begins again near
    the most used one; 0 for never."""

    damping: Annotated[float, Field(ge=0, lt=1)] = 0.75
    """With ``condition = "device"``: weight of the old shares in each step."""

    server: Literal["adam", "sgd"] = "adam"
    """Server optimiser of each expert; ``sgd`` with learning rate 1 is plain averaging."""

    server_learning_rate: Annotated[float, Field(gt=0, le=100)] = 0.01
    """Step size of the server optimiser for experts and gates. The paper's 0.001 takes thousands
    of rounds."""

    table_learning_rate: Annotated[float, Field(ge=0, le=100)] = 0.1
    """With ``server = "adam"``: step size of the server optimiser for the table of shares; 0 for
    that of the experts, as in the paper. In a round, no logit of the table moves by much more."""

    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Decay of the server's first moment."""

    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    """Decay of the server's second moment."""

    epsilon: Annotated[float, Field(gt=0, le=1)] = 1e-8
    """Added to the root of the server's second moment."""

    divergence: bool = False
    """Whether the gradient divergence of each expert is measured in every round."""

    collect_gates: bool = False
    """Whether devices are asked for their gates and shares after the last round, for predictions
    on devices without labels; only those with ``share_gate`` in their settings give them."""

    collect_densities: bool = False
    """With ``collect_gates``: whether devices also fit a density to their inputs, which must be
    from 0 to 1, so that an input decides whose gates count; only those with ``share_density`` in
    their settings do so."""

    density_draws: Annotated[int, Field(ge=1, le=1024)] = 1
    """Draws by which a density is computed; 1 for the evidence lower bound."""

    @field_validator("condition_values")
    @classmethod
    def _for_a_column(cls, values: int, info: ValidationInfo) -> int:
        """Check that a column's number of values is known, and no other condition has one."""
        condition = info.data.get("condition", "label")
        if condition in ("label", "device"):
            if values:
                raise ValueError(f'must be left out with condition = "{condition}"')
        elif not values:
            raise ValueError(f"must say how many values the column {condition!r} has")
        return values

    @field_validator("skip_below")
    @classmethod
    def _of_the_bound(cls, share: float, info: ValidationInfo) -> float:
        """Check that shares are the weights of samples: the direct objective has no such bound."""
        if share and info.data.get("entropy") == "direct":
            raise ValueError('must be 0 with entropy = "direct"')
        return share

    @property
    def has_column(self) -> bool:
        """Whether shares depend on a column of the samples."""
        return self.condition not in ("label", "device")

    def conditions(self, classes: int) -> int:
        """Return the number of conditions; 0 where shares belong to a device."""
        if self.condition == "device":
            return 0
        return self.condition_values if self.has_column else classes

    def optimizer(self, table: bool = False) -> ServerOptimizer:
        """Return the server optimiser of the experts, or of the table."""
        rate = self.server_learning_rate
        if table and self.server == "adam":
            rate = self.table_learning_rate or rate
        return ServerOptimizer(
            name=self.server,
            learning_rate=rate,
            beta1=self.beta1,
            beta2=self.beta2,
            tau=self.epsilon,
            adam_variant="kingma",
        )
