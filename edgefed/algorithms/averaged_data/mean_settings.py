"""Settings of the algorithms that mix samples or averaged data."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from edgefed.algorithms.averaging.fedavg import AveragingSettings


class SplitSettings(AveragingSettings):
    """Where in the model samples are mixed."""

    split: Annotated[int, Field(ge=0, le=1000)] = 0
    """Number of layers after which to mix, instead of at the input; averages of hidden states are
    exchanged in each round. For tokens 1, after the embedding; their averages are exchanged
    once."""

    embedding_grad: bool = False
    """With ``split``: the mixed loss also trains the layers before it."""


class MeanSettings(SplitSettings):
    """Settings of every algorithm that trains with averaged data."""

    group_size: Annotated[int, Field(ge=0, le=2**31)] = 0
    """Number of samples per average, M; 0 for all samples of a device. A device's policy may
    require more."""

    threshold: Annotated[int, Field(ge=0, le=2**31)] = 0
    """Devices with fewer samples than this are not asked for averages."""

    merge_entries: Annotated[int, Field(ge=1, le=2**20)] = 1
    """Number of entries of different devices that the coordinator averages again, m; 1 for none."""

    noise: Annotated[float, Field(ge=0, le=100)] = 0.0
    """Standard deviation of Gaussian noise on averaged inputs, in units of the prepared input."""

    same_class: bool = False
    """Average within labels only: an experiment, for simulations."""

    exclude_own: bool = False
    """A device trains with the averages of others only."""

    entries: Literal["exchanged", "random", "own"] = "exchanged"
    """The data that devices mix in: the exchanged averages; noise instead of them (``random``); or
    their own averages, without an exchange (``own``)."""

    packing: Literal["uint8", "bf16", "fp32"] = "uint8"
    """Encoding of averaged inputs: one, two or four bytes per value."""
