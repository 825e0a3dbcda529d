"""A fast path: the gradient of a mixture of small experts, in one compiled call.

If an expert is a chain of layers that the kernels support, they run all experts, the gate and the
loss between them, and write all gradients. The results equal torch's up to rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from edgefed.learn.base.mixture_table import least_share
from edgefed.learn.base.torch_private import is_watched
from edgefed.learn.base.types import Batch, Context, Params
from edgefed.learn.compiled.compiled_chain_layers import ChainLayers
from edgefed.learn.compiled.compiled_chain_plan import ChainPart, plan
from edgefed.learn.networks.small_conv import is_plain
from edgefed.learn.objectives.expert_mixture import (
    CONDITIONS,
    FREQUENCIES,
    GATE_BIAS,
    GATE_WEIGHT,
    PERSONAL_BIAS,
    SHARES,
    TABLE,
    ExpertMixture,
)
from edgefed.learn.steps.capabilities import Phase
from edgefed.native import chain as kernels
from edgefed.native import experts
from edgefed.native.library import native


def compiled_experts_of(
    phase: Phase, params: Params, extra: Mapping[str, torch.Tensor], precision: str, room: int
) -> CompiledExperts | None:
    """Return the compiled experts for an update of a mixture, or None where torch computes it.

    Args:
        phase: the update.
        params: all weights and variables; they must be changed in place only.
        extra: extras of the objective's context, the same in every step.
        precision: of the schedule.
        room: most samples of a batch.
    """
    objective = phase.objective
    if type(objective) is not ExpertMixture or objective.entropy == "direct":
        return None
    if native().library is None or precision != "fp32" or is_watched():
        return None
    given, parts = {**extra, **params}, plan(objective.model)
    if not parts or not _fit(objective, parts, given):
        return None
    compiled = CompiledExperts(objective, parts, given, room, phase.trained)
    # Otherwise something is trained that the kernels give no gradient of
    return compiled if compiled.gradient_names.issuperset(phase.trained) else None


def _fit(objective: ExpertMixture, parts: Sequence[ChainPart], given: Params) -> bool:
    """Return whether the kernels can read all arrays: no address may lead outside of them."""
    held = [name for expert in objective.kept for name in objective.names_of(expert).values()]
    if not given.keys() >= set(held):
        return False
    shapes = _shapes(objective, parts, given)
    plain = [given[name] for name in (*held, *shapes) if name in given]
    conditions = given.get(CONDITIONS)
    return (
        all(name in given and given[name].shape == shape for name, shape in shapes.items())
        and all(is_plain(tensor) and tensor.is_contiguous() for tensor in plain)
        and (conditions is None or conditions.dtype == torch.int64)
    )


def _shapes(
    objective: ExpertMixture, parts: Sequence[ChainPart], given: Params
) -> dict[str, tuple[int, ...]]:
    """Return the shapes that the mixture's own arrays must have."""
    every, classes = objective.experts, parts[-1].after
    shapes: dict[str, tuple[int, ...]] = {
        GATE_WEIGHT: (parts[-1].before, every),
        GATE_BIAS: (every,),
    }
    if objective.has_bias:
        shapes[PERSONAL_BIAS] = (classes,)
    if objective.by_device:
        return {**shapes, SHARES: (every,)}
    conditions = len(given[FREQUENCIES]) if CONDITIONS in given else classes
    return {**shapes, TABLE: (conditions, every), FREQUENCIES: (conditions,)}


class CompiledExperts:
    """The kept experts of a mixture, with the arrays that a job trains and room for its batches.

    Attributes:
        gradient_names: of the arrays whose gradients are computed.

    Args:
        objective: the mixture; not the direct one.
        parts: the layers of an expert, as ``plan`` returns them.
        given: all arrays that the mixture reads; they are read at every call.
        room: most samples of a batch.
        trained: names of the arrays that are trained.
    """

    def __init__(
        self,
        objective: ExpertMixture,
        parts: Sequence[ChainPart],
        given: Params,
        room: int,
        trained: Sequence[str],
    ) -> None:
        self._objective = objective
        self._given = given
        self._count = len(parts)
        self._numbers = torch.tensor(objective.kept)
        own = [TABLE, GATE_WEIGHT, GATE_BIAS, PERSONAL_BIAS, SHARES]
        self._gradients = {name: torch.empty_like(given[name]) for name in own if name in given}
        self._experts: list[ChainLayers] = []
        for expert in objective.kept:
            names = objective.names_of(expert)
            weights = {name: given[held] for name, held in names.items()}
            made = ChainLayers(parts, objective.model.shape, weights, room, has_changes=False)
            self._gradients |= {names[name]: gradient for name, gradient in made.gradients.items()}
            self._experts.append(made)
        self._layers = kernels.layers([link for expert in self._experts for link in expert.links])
        own_names = {
            held for expert in objective.kept for held in objective.names_of(expert).values()
        }
        self._mixture = self._described(trains_experts=not own_names.isdisjoint(trained))
        self.gradient_names = self._gradients.keys() - set(objective.assigned)

    def gradients(
        self, batch: Batch, names: Sequence[str], context: Context
    ) -> tuple[torch.Tensor, list[torch.Tensor]] | None:
        """Return the loss of a batch, and its gradients with respect to the named arrays.

        Variables that the objective assigns are set. The gradients are overwritten by the next
        call. None if torch has to do this batch.

        Raises:
            ValueError: a label is none of the classes, or a condition none of the table's.
        """
        del context
        first, targets = self._experts[0], batch.targets
        if not (first.takes(batch.inputs) and first.takes_targets(targets, len(batch.inputs))):
            return None
        inputs, strides = first.arranged(batch.inputs)
        targets, loss = targets.contiguous(), torch.empty(())
        labels = targets.data_ptr() if targets.dim() == 1 else None
        soft = targets.data_ptr() if targets.dim() == 2 else None
        conditions = self._conditions(batch)
        where = labels if conditions is None else conditions.data_ptr()
        experts.gradients(
            self._layers,
            self._count,
            len(inputs),
            inputs.data_ptr(),
            strides,
            labels,
            soft,
            None if self._objective.by_device else where,
            self._mixture,
            loss.data_ptr(),
        )
        with torch.no_grad():
            for name in self._objective.assigned:
                self._given[name].copy_(self._gradients[name])
        return loss, [self._gradients[name] for name in names]

    def _conditions(self, batch: Batch) -> torch.Tensor | None:
        """Return the condition of each sample, where it is not its label."""
        if CONDITIONS not in self._given or self._objective.by_device:
            return None
        return self._given[CONDITIONS].index_select(0, batch.rows)

    def _described(self, *, trains_experts: bool) -> experts.Mixture:
        """Return the mixture as the kernels take it."""
        objective, given, gradients = self._objective, self._given, self._gradients
        unread = {TABLE, FREQUENCIES} if objective.by_device else {SHARES}
        unread |= set() if objective.has_bias else {PERSONAL_BIAS}

        def at(arrays: Params, name: str) -> int | None:
            return arrays[name].data_ptr() if name in arrays and name not in unread else None

        return experts.Mixture(
            experts=objective.experts,
            here=len(objective.kept),
            conditions=0 if objective.by_device else len(given[TABLE]),
            trains_experts=trains_experts,
            prunes_gate=objective.prunes_gate,
            detaches=objective.detaches,
            adds_entropy=objective.entropy == "local",
            threshold=objective.experts * least_share(objective.threshold, objective.experts),
            skip_below=objective.skip_below,
            damping=objective.damping,
            numbers=self._numbers.data_ptr(),
            phi=at(given, TABLE),
            frequencies=at(given, FREQUENCIES),
            shares=at(given, SHARES),
            gate_weight=at(given, GATE_WEIGHT),
            gate_bias=at(given, GATE_BIAS),
            bias=at(given, PERSONAL_BIAS),
            phi_gradient=at(gradients, TABLE),
            gate_weight_gradient=at(gradients, GATE_WEIGHT),
            gate_bias_gradient=at(gradients, GATE_BIAS),
            bias_gradient=at(gradients, PERSONAL_BIAS),
            next_shares=at(gradients, SHARES),
        )
