"""The policy of a device's owner: the data shared besides its model update; no task changes it."""

from __future__ import annotations

from dataclasses import dataclass

from edgefed.errors import DataError


@dataclass(frozen=True)
class Policy:
    """The owner's decisions.

    Attributes:
        share_means: whether averaged data may leave the device at all.
        least_group: fewest samples in one average; 1 would be a raw sample.
        share_hidden: whether averages of hidden states may. They are of weights that the
            coordinator chooses, and weights can be chosen to single a sample out.
        share_labels: whether the coordinator learns which labels the device has. Without it, the
            device neither asks for mixes nor offers any.
        request_mixes: whether mixes of other devices are requested for labels it lacks.
        share_mixes: whether mixes of its samples may leave the device.
        mix_receivers: devices that may get them; None for every device.
        least_mix_width: fewest samples in a mix; with 1 a mix is a sample with noise.
        least_mix_noise: least scale of the noise on a mix; with 0 there may be none.
        most_mix_weight: most that one sample of a mix may weigh; 1 would be the sample alone.
        share_gate: whether its gate of a mixture of experts, with its shares of them, may leave the
            device; they disclose its labels.
        share_density: whether a density of its inputs may, with its gate; samples like the device's
            can be drawn from it.
        mix_epsilon: most ε that mixes may cost, over all runs; None for no limit.
        mix_limit: most mixes that may leave the device, over all runs; None for no limit.
        update_epsilon: most ε that model updates may cost, over all runs, so that only runs with
            noise of the device's own are trained; None for no limit.
        update_delta: the δ of that ε.
        least_cohort: fewest devices whose updates are summed with the device's by secure
            aggregation; with 1 or more, only runs with secure aggregation are trained.
        least_threshold: fewest devices that together uncover such a sum; likewise.
    """

    share_means: bool = True
    least_group: int = 1
    share_hidden: bool = True
    share_labels: bool = True
    request_mixes: bool = True
    share_mixes: bool = True
    share_gate: bool = True
    share_density: bool = True
    mix_receivers: tuple[str, ...] | None = None
    least_mix_width: int = 1
    least_mix_noise: float = 0.0
    most_mix_weight: float = 1.0
    mix_epsilon: float | None = None
    mix_limit: int | None = None
    update_epsilon: float | None = None
    update_delta: float = 1e-5
    least_cohort: int = 0
    least_threshold: int = 0

    @property
    def refuses(self) -> tuple[str, ...]:
        """The data that do not leave the device at all, as a birth names them."""
        shared = {
            "means": self.share_means,
            "mixes": self.share_mixes,
            "labels": self.share_labels,
        }
        return tuple(name for name, leaves in shared.items() if not leaves)


ANYTHING = Policy()
"""The policy of a device whose owner has said nothing, such as a virtual one."""


class Withheld(DataError):  # noqa: N818 - the device is in its right
    """The device does not share the requested data."""

    default_code = "share.withheld"
