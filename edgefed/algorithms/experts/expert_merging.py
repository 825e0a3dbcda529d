"""The coordinator's step of the federated mixture of experts (algorithms 1 and 2).

With S' the devices that answered, N_s their samples, and q'(z|s) their shares without experts that
they do not use:

    p(s)      = N_s / sum N_s'
    p(s|z)    = q'(z|s) p(s) / sum_s' q'(z|s') p(s')                                 (equation 8)
    Delta_z   = sum_s p(s|z) (w_z^s - w_z)
    Delta_phi = sum_s p(s) (phi_s - phi) + weight * grad_phi H( sum_y p(y) q(z|y) ),  p(y) = 1 / C
    w_z <- w_z + Adam_z(Delta_z),  phi <- phi + Adam(Delta_phi)

The weights q'(z|s) N_s of equation 8 are rounded to multiples of 2^-8 samples, for a mean with the
same bits in any order of answers; weights that round to 0 are left out.

Each expert has an optimiser of its own, which takes a step only when a device used the expert.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from edgefed.algorithms.averaging.fedavg import MOST_SAMPLES, RUNNING
from edgefed.algorithms.experts.expert_records import (
    GATE,
    MIXTURE,
    MIXTURES,
    PHI,
    STEPS,
    TABLE,
    TABLE_STEPS,
    KnownMixture,
    memory_of,
    mixtures_of,
    role,
)
from edgefed.algorithms.experts.expert_settings import ExpertSettings
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.learn.aggregation.exact_mean import MAX_TOTAL_WEIGHT, ExactMean
from edgefed.learn.aggregation.server_optimizers import ServerOptimizer
from edgefed.learn.aggregation.update_divergence import UpdateDivergence
from edgefed.learn.base.mixture_table import marginal_entropy_gradient
from edgefed.learn.base.types import Tensors

SHARE_BITS = 8
"""Weights of answers, samples times share, are rounded to multiples of 2^-8 samples; of more where
devices have more samples than can be summed like that."""

DIVERGENCE = "divergence"


@dataclass
class ExpertSums:
    """The answers to one exchange, added one at a time in any order.

    Args:
        settings: of the algorithm.
        state: before the exchange.
        limits: the most samples that each device asked may weigh.
    """

    settings: ExpertSettings
    state: State
    limits: dict[str, int]
    mixtures: dict[str, KnownMixture] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count, total = self.settings.experts, max(1, sum(self.limits.values()))
        bits = share_bits(total) if count > 1 else 0
        groups = self.state.groups
        self.experts = [ExactMean(groups[role(expert)], total, bits) for expert in range(count)]
        self.whole = {
            name: ExactMean(groups[name], total) for name in (TABLE, GATE) if name in groups
        }
        measured = count if self.settings.divergence else 0
        self.divergences = [
            UpdateDivergence(groups[role(expert)], total, bits) for expert in range(measured)
        ]

    def add(self, answer: Answer, round: int) -> None:  # noqa: A002
        """Add one device's answer."""
        samples = min(answer.samples, self.limits[answer.device])
        mixture = answer.groups[MIXTURE].arrays
        kept = tuple(int(expert) for expert in np.flatnonzero(mixture["kept"] > 0))
        for expert in kept:
            weight = samples * min(1.0, float(mixture["kept"][expert]))
            mean = self.experts[expert]
            if units_of(weight, mean.fraction_bits) > 0:
                delta = answer.groups[role(expert)].arrays
                mean.add(delta, weight)
                if self.divergences:
                    self.divergences[expert].add(delta, weight)
        for name, whole in self.whole.items():
            whole.add(answer.groups[name].arrays, samples)
        shares = mixture["kept" if self.settings.permanent_prune else "raw"]
        known = tuple(float(share) for share in shares)
        self.mixtures[answer.device] = KnownMixture(known, kept, samples, round)

    def stepped(self, round: int) -> State:  # noqa: A002
        """Return the state after all answers."""
        settings, groups = self.settings, dict(self.state.groups)
        steps = list(self.state.params[STEPS])
        for expert, mean in enumerate(self.experts):
            if mean.weight:
                steps[expert] += 1
                _step(groups, role(expert), mean.mean(), settings.optimizer(), steps[expert])
        rounds = self.state.params[TABLE_STEPS] + 1
        for name, whole in self.whole.items():
            delta = self._pulled(whole.mean()) if name == TABLE else whole.mean()
            _step(groups, name, delta, settings.optimizer(name == TABLE), rounds)
        known = {**mixtures_of(self.state), **self.mixtures}
        params = {
            **self.state.params,
            STEPS: steps,
            TABLE_STEPS: rounds,
            MIXTURES: {device: mixture.to_json() for device, mixture in sorted(known.items())},
        }
        if self.divergences:
            params[DIVERGENCE] = [divergence.total() for divergence in self.divergences]
        return State(round, groups, params)

    def _pulled(self, delta: Tensors) -> Tensors:
        """Return the table's pseudo-gradient with that of the marginal entropy."""
        table = self.state.groups[TABLE][PHI]
        frequencies = np.full(len(table), 1 / len(table))
        pull = self.settings.entropy_weight * marginal_entropy_gradient(table, frequencies)
        return {PHI: (delta[PHI] + pull).astype(np.float32)}


def merged(
    settings: ExpertSettings, state: State, exchange: Exchange, answers: Iterable[Answer]
) -> State:
    """Return the state after a round; without an answer, everything but the round stays."""
    sums = ExpertSums(settings, state, sample_limits(exchange))
    for answer in answers:
        sums.add(answer, exchange.round)
    if not sums.mixtures:
        return State(exchange.round, state.groups, state.params)
    return sums.stepped(exchange.round)


def sample_limits(exchange: Exchange) -> dict[str, int]:
    """Return the most samples that each device asked may weigh."""
    return {question.device: min(question.samples, MOST_SAMPLES) for question in exchange.questions}


def units_of(weight: float, bits: int) -> int:
    """Return a weight in units of 2^-bits."""
    return round(weight * 2.0**bits)


def share_bits(samples: int) -> int:
    """Return the fraction bits of weights that come to at most so many samples together."""
    return max(0, min(SHARE_BITS, MAX_TOTAL_WEIGHT.bit_length() - samples.bit_length()))


def _step(
    groups: dict[str, Tensors], name: str, delta: Tensors, optimizer: ServerOptimizer, count: int
) -> None:
    """Move a group along its mean delta, in the optimiser's step number ``count``."""
    memory = groups[memory_of(name)]
    plain = [tensor_name for tensor_name in delta if tensor_name.rpartition(".")[2] in RUNNING]
    groups[name], groups[memory_of(name)] = optimizer.step(
        groups[name], delta, memory, count, plain
    )
