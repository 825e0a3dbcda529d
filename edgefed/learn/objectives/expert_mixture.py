"""The local objective of the federated mixture of experts.

Reisser, Louizos, Gavves, Welling: Federated Mixture of Experts, 2021, equation 5 and algorithms 1
and 2. On device s, over a batch of samples (x, y), the device minimises

    L = - mean_b [ sum_z q'(z|y_b) log p_z(y_b|x_b) ]        the experts
        - mean_b [ sum_z q(z|y_b) log p_theta(z|x_b, s) ]    the gate

where p_z is expert z's prediction, q(z|y) = softmax(phi[y, :]), q' the same without the experts
that the device does not use, and the gate looks at features h averaged over experts (equation 9):

    p_theta(z|x, s) = softmax_z(A^T h_s(x) + b),    h_s(x) = sum_k q'(k|s) h_k(x).

The softmax of the gate runs over all experts, kept or not: predictions run it over the kept ones
(``mixture_prediction``). This is the bound of equation 5 without the entropy of q, with
which experts do not specialise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch.nn import functional

from edgefed.learn.base.mixture_table import least_share
from edgefed.learn.base.torch_private import is_watched
from edgefed.learn.base.types import Array, Batch, Context, Forward, Params
from edgefed.learn.modeling.model import Model

Outputs = tuple[torch.Tensor, torch.Tensor]
"""Logits (batch, classes) and features (batch, width)."""


def forward_where(
    model: Model,
    forward: Callable[[torch.Tensor], Outputs],
    inputs: torch.Tensor,
    flows: torch.Tensor | None,
) -> Outputs:
    """Return a forward pass's outputs, differentiable in the weights for some samples only.

    On a CPU, the other samples pass without a graph, if the model treats samples separately.
    Otherwise all samples pass with one, and the outputs of the others are detached. The results are
    the same up to rounding.

    Args:
        model: the model of the pass.
        forward: the pass.
        inputs: (batch, …).
        flows: bool (batch,), the samples with gradients; None for all.
    """
    if flows is None:
        return forward(inputs)
    if inputs.device.type != "cpu" or not model.is_samplewise or is_watched():
        logits, features = forward(inputs)
        some = flows[:, None]
        return (
            torch.where(some, logits, logits.detach()),
            torch.where(some, features, features.detach()),
        )
    count = int(flows.sum())
    if count == len(inputs):
        return forward(inputs)
    if not count:
        with torch.no_grad():
            return forward(inputs)
    order = flows.to(torch.uint8).argsort(descending=True, stable=True)
    with_gradient = forward(inputs.index_select(0, order[:count]))
    with torch.no_grad():
        without = forward(inputs.index_select(0, order[count:]))
    places = order.argsort()
    logits, features = (
        torch.cat(parts).index_select(0, places)
        for parts in zip(with_gradient, without, strict=True)
    )
    return logits, features


EntropyTerm = Literal["none", "local", "direct"]

TABLE, GATE_WEIGHT, GATE_BIAS = "table/phi", "gate/weight", "gate/bias"
SHARES, PERSONAL_BIAS = "mixture/shares", "personal/bias"
FREQUENCIES, CONDITIONS = "frequencies", "conditions"


def expert_name(expert: int, weight: str) -> str:
    """Return the name of an expert's weight among a job's variables."""
    return f"expert-{expert}/{weight}"


@dataclass(frozen=True)
class ExpertMixture:
    """The objective above; trained arrays are ``params``, constant ones may be extras.

    ``params`` or extras: the first kept expert's weights under the model's names, those of the
    others as ``expert-K/NAME``; ``table/phi`` (conditions, experts), or with ``by_device``
    ``mixture/shares`` (experts,); ``gate/weight`` (width, experts) and ``gate/bias`` (experts,);
    with ``has_bias`` ``personal/bias`` (classes,), which is added to every expert's logits.

    Extras: ``frequencies`` (conditions,), the share of the device's samples of each condition;
    ``conditions`` (samples,) the condition of each sample, where it is not its label.

    Attributes:
        model: one expert.
        experts: K, how many there are in the fleet.
        kept: numbers of those that are here, rising; the others count as pruned.
        threshold: eta; an expert below a share of eta / K is not used.
        by_device: q(z|s) is one vector for all samples, set in each step by equation 13:
            shares <- damping * shares + (1 - damping) * softmax_k(mean_b log p(y_b, k|x_b)).
        has_bias: whether there is a personal bias.
        entropy: ``none``; ``local`` adds the entropy of q, which gives equation 5; ``direct``
            maximises equation 3, log sum_z p_theta(z|x) p_z(y|x), itself.
        prunes_gate: whether the gate learns q' instead of q.
        detaches: whether no gradient flows from the gate into the features.
        damping: of the old shares, with ``by_device``.
        skip_below: no gradient flows into expert k's pass over sample b where q'(k|y_b) is below
            this and, unless ``detaches``, q'(k|s) is, too; 0 for the exact gradient. The pass is
            then made forward only, so the loss and the gradients of phi, of the gate and of the
            bias stay exact. At the logits, a skipped pair lacks q'(k|y_b) (p_k - y) / B, of norm
            below sqrt(2) skip_below / B: the gradient of expert k is off by less than skip_below
            times the batch's mean norm of its cross-entropy's gradients. Unless ``detaches``, it
            also lacks q'(k|s) A (g - q) / B at the features, where g is the gate's prediction, of
            norm below sqrt(2) skip_below |A| / B. Has no effect with ``direct``.
    """

    model: Model
    experts: int
    kept: tuple[int, ...]
    threshold: float = 0.0
    by_device: bool = False
    has_bias: bool = False
    entropy: EntropyTerm = "none"
    prunes_gate: bool = False
    detaches: bool = False
    damping: float = 0.75
    skip_below: float = 0.0

    @property
    def assigned(self) -> tuple[str, ...]:
        """Names of the variables that are set by a formula."""
        return (SHARES,) if self.by_device else ()

    def __call__(
        self, forward: Forward, params: Params, batch: Batch, context: Context
    ) -> torch.Tensor:
        """Return the scalar loss."""
        return self.loss_and_values(forward, params, batch, context)[0]

    def loss_and_values(
        self, forward: Forward, params: Params, batch: Batch, context: Context
    ) -> tuple[torch.Tensor, Params]:
        """Return the scalar loss, and the shares after the step where a formula sets them."""
        del forward
        given = {**context.extra, **params}
        shares, own = self._shares(given, batch)
        used = self._used(own)
        kept_own = _renormalized(own, used)
        flows = self._flows(_renormalized(shares, used).detach(), kept_own, used)
        right, features = self._experts(given, batch, flows)
        log_gate = self._log_gate(given, features, kept_own)
        loss = self._loss(right, log_gate, shares, used)
        if not self.by_device:
            return loss, {}
        return loss, {SHARES: self._stepped(own, (right + log_gate).mean(dim=0))}

    def _stepped(self, own: torch.Tensor, joint: torch.Tensor) -> torch.Tensor:
        """Return the shares after equation 13; experts that are not here keep theirs."""
        here = self._here(own)
        joint_shares = torch.softmax(joint.masked_fill(~here, -torch.inf), dim=0).to(own.dtype)
        mass = torch.where(here, own, torch.zeros_like(own)).sum()
        return torch.where(here, self.damping * own + (1 - self.damping) * mass * joint_shares, own)

    def _flows(
        self, kept: torch.Tensor, own: torch.Tensor, used: torch.Tensor
    ) -> torch.Tensor | None:
        """Return which samples' gradients flow into which experts (batch, K); None for all."""
        if not self.skip_below or self.entropy == "direct":
            return used.expand(kept.shape) if self.threshold else None
        weights = kept if self.detaches else torch.maximum(kept, own)
        return used & (weights >= self.skip_below)

    def _experts(
        self, given: Mapping[str, torch.Tensor], batch: Batch, flows: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log p_z(y|x) (batch, K), and features (K, batch, width); 0 for those not here."""
        right: list[torch.Tensor] = []
        features: list[torch.Tensor] = []
        for expert in self.kept:
            some = None if flows is None else flows[:, expert]
            forward = partial(self.model.forward_with_features, self.weights_of(expert, given))
            logits, hidden = forward_where(self.model, forward, batch.inputs, some)
            if self.has_bias:
                logits = logits + given[PERSONAL_BIAS]
            right.append(-functional.cross_entropy(logits, batch.targets, reduction="none"))
            features.append(hidden)
        return self._spread(torch.stack(right, dim=1), 1), self._spread(torch.stack(features), 0)

    def names_of(self, expert: int) -> dict[str, str]:
        """Return the model's names of a kept expert's weights, with the names they have here."""
        if expert == self.kept[0]:
            return {name: name for name in self.model.names}
        own = {name: expert_name(expert, name) for name in self.model.parameter_names}
        return {name: own.get(name, name) for name in self.model.names}

    def weights_of(self, expert: int, given: Mapping[str, torch.Tensor]) -> Params:
        """Return a kept expert's weights under the model's names."""
        return {name: given[here] for name, here in self.names_of(expert).items()}

    def _spread(self, values: torch.Tensor, dim: int) -> torch.Tensor:
        """Return values of kept experts, with zeros for the others."""
        if len(self.kept) == self.experts:
            return values
        parts = list(values.unbind(dim))
        nothing = torch.zeros_like(parts[0])
        places = {expert: place for place, expert in enumerate(self.kept)}
        every = [
            parts[places[expert]] if expert in places else nothing for expert in range(self.experts)
        ]
        return torch.stack(every, dim)

    def _shares(
        self, given: Mapping[str, torch.Tensor], batch: Batch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return q(z|y_b) (batch, K), and q(z|s) (K,) as a constant."""
        if self.by_device:
            own = given[SHARES].detach()
            return own.expand(len(batch.inputs), -1), own
        table = torch.softmax(given[TABLE], dim=1)
        own = (given[FREQUENCIES].to(table.dtype) @ table).detach()
        if CONDITIONS in given:
            return functional.embedding(given[CONDITIONS][batch.rows], table), own
        if batch.targets.is_floating_point():
            return batch.targets.to(table.dtype) @ table, own
        return functional.embedding(batch.targets, table), own

    def _used(self, own: torch.Tensor) -> torch.Tensor:
        """Return which experts (K,) are used: here, and not below the threshold."""
        here = self._here(own)
        used = here & (own >= least_share(self.threshold, self.experts))
        return torch.where(used.any(), used, here)

    def _here(self, like: torch.Tensor) -> torch.Tensor:
        # Built from numbers of Python, which the kernels take along: a list would be a transfer.
        numbers = torch.arange(self.experts, device=like.device)
        here = torch.zeros_like(numbers, dtype=torch.bool)
        for kept in self.kept:
            here |= numbers == kept
        return here

    def _log_gate(
        self, given: Mapping[str, torch.Tensor], features: torch.Tensor, own: torch.Tensor
    ) -> torch.Tensor:
        """Return log p_theta(z|x, s) (batch, K), of equation 9."""
        if self.detaches:
            features = features.detach()
        hidden = torch.tensordot(own.to(features.dtype), features, dims=1)
        return torch.log_softmax(hidden @ given[GATE_WEIGHT] + given[GATE_BIAS], dim=1)

    def _loss(
        self,
        right: torch.Tensor,
        log_gate: torch.Tensor,
        shares: torch.Tensor,
        used: torch.Tensor,
    ) -> torch.Tensor:
        """Return the loss of log p_z(y|x), log p_theta(z|x, s) and q(z|y), each (batch, K)."""
        kept = _renormalized(shares, used)
        if self.entropy == "direct":
            here = (right + log_gate).masked_fill(~used, -torch.inf)
            open_gate = log_gate.masked_fill(~used, -torch.inf)
            terms = torch.logsumexp(here, dim=1) - torch.logsumexp(open_gate, dim=1)
            return -terms.mean()
        terms = (kept * right).sum(dim=1)
        terms = terms + ((kept if self.prunes_gate else shares) * log_gate).sum(dim=1)
        if self.entropy == "local":
            # The slope of the entropy is infinite at 0; that of 1 is finite, and both are 0.
            inside = torch.where(used, kept, torch.ones_like(kept))
            terms = terms + torch.special.entr(inside).sum(dim=1)
        return -terms.mean()


def check_conditions(conditions: Array, values: int) -> bool:
    """Return whether conditions (samples,) are numbers from 0 and below ``values``."""
    return not len(conditions) or bool(0 <= conditions.min() <= conditions.max() < values)


def _renormalized(shares: torch.Tensor, used: torch.Tensor) -> torch.Tensor:
    """Return shares (…, K) of the experts that are used, divided by their sum."""
    left = torch.where(used, shares, torch.zeros_like(shares))
    return left / left.sum(dim=-1, keepdim=True).clamp_min(torch.finfo(left.dtype).tiny)
