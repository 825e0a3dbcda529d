"""The policy of a device's owner: what it shares besides its model update; no task changes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """The owner's say.

    Attributes:
        share_means: whether averaged data may leave the device at all.
        least_group: fewest samples that may stand behind one average; 1 would be a raw sample.
        share_hidden: whether averages of hidden states may. They are of weights that the
            coordinator chooses, and weights can be chosen to single a sample out.
    """

    share_means: bool = True
    least_group: int = 1
    share_hidden: bool = True


ANYTHING = Policy()
"""The policy of a device whose owner has said nothing, such as a virtual one."""
