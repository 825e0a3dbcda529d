"""The report of a mixture of experts: which devices use each expert, and whether any is unused."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DeviceMixture:
    """One device's shares of the experts, q(z|s).

    Attributes:
        device: its id.
        samples: behind its last answer.
        round: of that answer.
        shares: one for each expert, of sum 1, before pruning.
        kept: numbers of the experts that it uses.
    """

    device: str
    samples: int
    round: int
    shares: tuple[float, ...]
    kept: tuple[int, ...]


@dataclass(frozen=True)
class ExpertReport:
    """The experts of a run after a round; ``experts`` is 0 for algorithms without experts.

    Attributes:
        experts: their number, K.
        round: the last one included.
        condition: the variable of the shares: ``label``, the name of a column, or ``device``.
        table: q(z|y), for each label or value the shares of the experts; empty for ``device``.
        mixtures: of the devices that have answered, sorted by device.
        load: for each expert its share of the samples of the devices that answered last.
        entropy: of the load in nats; 0 where one expert has all of it. None before the first
            answer.
        dead: numbers of the experts whose load is below a hundredth of an equal share.
        collapsed: whether one of several experts has more than 99 % of the load.
        divergence: for each expert the gradient divergence of the last round, from 0 to 1 per
            tensor (equation 16 of the paper); empty where it is not measured.
    """

    experts: int = 0
    round: int = 0
    condition: str = ""
    table: tuple[tuple[float, ...], ...] = ()
    mixtures: tuple[DeviceMixture, ...] = ()
    load: tuple[float, ...] = ()
    entropy: float | None = None
    dead: tuple[int, ...] = ()
    collapsed: bool = False
    divergence: tuple[float | None, ...] = ()
