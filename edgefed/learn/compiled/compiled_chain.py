"""A fast path: the gradient of cross-entropy for small chains of layers, in one compiled call.

For models of a few small layers, most of a step is torch's overhead: recording the graph,
traversing it, passing tensors. If the whole model is a chain that the kernels support, they compute
the loss and all gradients at once. The results equal torch's up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import torch

from edgefed.learn.base.torch_private import is_watched
from edgefed.learn.base.types import Batch, Context, Objective, Params
from edgefed.learn.compiled.compiled_chain_layers import ChainLayers, in_one
from edgefed.learn.compiled.compiled_chain_plan import ChainPart, plan
from edgefed.learn.modeling.model import Model
from edgefed.learn.networks.small_conv import is_plain
from edgefed.learn.objectives.added_term import AddedTerm
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.linear_term import SHIFT, Linear
from edgefed.learn.objectives.losses import soft
from edgefed.learn.objectives.mixing import Mixed, Mixing
from edgefed.learn.objectives.proximal import Proximal
from edgefed.learn.steps.capabilities import Phase
from edgefed.native import chain as kernels
from edgefed.native.library import native

Mix = Callable[[Batch, Context], Mixed]
"""Turns a batch into the mixed batch of an objective."""


def chain_of(model: Model, phase: Phase, params: Params, precision: str, room: int) -> Chain | None:
    """Return the compiled chain for an update, or None where torch has to compute it.

    Args:
        model: the model in training.
        phase: the update.
        params: all weights of the model; they must be changed in place only.
        precision: of the schedule.
        room: most samples of a batch.
    """
    objective, added = phase.objective, dict[type[AddedTerm], AddedTerm]()
    while isinstance(objective, AddedTerm) and type(objective) not in added:
        added[type(objective)] = objective
        objective = objective.inner
    # Gradients of these terms can be added to those of the kernels
    if not added.keys() <= {Proximal, Linear}:
        return None
    mix = _mixing(objective, model.classes)
    if native().library is None or mix is None or precision != "fp32":
        return None
    known = all(is_plain(part) and part.is_contiguous() for part in params.values())
    parts = plan(model) if known and not is_watched() else []
    return Chain(parts, model.shape, params, room, mix, added) if parts else None


def _mixing(objective: Objective, classes: int) -> Mix | None:
    """Return the mixing of an objective, if its loss is cross-entropy of the mixed batch."""
    if type(objective) is CrossEntropy:
        return _adjusting(_as_it_is, objective, classes)
    if not isinstance(objective, Mixing) or type(objective).__call__ is not Mixing.__call__:
        return None
    loss = objective.loss
    return _adjusting(objective.mixed, loss, classes) if type(loss) is CrossEntropy else None


def _adjusting(mix: Mix, loss: CrossEntropy, classes: int) -> Mix:
    """Return the same mixing with smoothed or weighted targets, if the loss has such."""
    if loss.is_plain:
        return mix
    like = torch.empty(0, classes)

    def adjusted(batch: Batch, context: Context) -> Mixed:
        mixed = mix(batch, context)
        own = loss.adjusted(mixed.own_for(like), like, context)
        if mixed.other is None:
            return replace(mixed, own=own)
        return replace(mixed, own=own, other=loss.adjusted(soft(mixed.other, like), like, context))

    return adjusted


def _as_it_is(batch: Batch, _context: Context) -> Mixed:
    return Mixed(batch.inputs, batch.targets)


class Chain:
    """The layers of a model, with the weights that a job trains and room for its batches.

    Args:
        parts: the layers, as ``plan`` returns them.
        shape: of one input.
        params: all weights; they are read at every call.
        room: most samples of a batch.
        mix: turns a batch into the mixed batch of the objective.
        added: the terms of the objective by their types.
    """

    def __init__(
        self,
        parts: Sequence[ChainPart],
        shape: tuple[int, ...],
        params: Params,
        room: int,
        mix: Mix,
        added: Mapping[type[AddedTerm], AddedTerm] = MappingProxyType({}),
    ) -> None:
        self._mix = mix
        self._shifted = Linear in added
        pull = added.get(Proximal)
        self._pull = pull if isinstance(pull, Proximal) and pull.mu else None
        self._shape = shape
        self._params = params
        self._chain = ChainLayers(parts, shape, params, room)
        self._ways = in_one(self._chain.gradients) if self._pull else (torch.zeros(0), {})
        self._squares = torch.empty_like(self._ways[0])
        self._shift_of: Mapping[str, torch.Tensor] | None = None
        self._all_shifts = torch.zeros(0)
        self._layers = kernels.layers(self._chain.links)

    def gradients(
        self, batch: Batch, names: Sequence[str], context: Context
    ) -> tuple[torch.Tensor, list[torch.Tensor]] | None:
        """Return the loss of a batch, and its gradients with respect to the named weights.

        The gradients are overwritten by the next call. None if torch has to do this batch.

        Raises:
            ValueError: a label is none of the classes.
        """
        mixed = self._mix(batch, context)
        if not self._takes(mixed):
            return None
        loss = torch.empty(())
        if mixed.other is None and mixed.change is None and mixed.own.dim() == 1:
            inputs, strides = self._chain.arranged(mixed.inputs)
            labels = mixed.own.contiguous()
            where = (inputs.data_ptr(), strides, labels.data_ptr(), loss.data_ptr())
            kernels.gradients(self._layers, len(inputs), *where)
        else:
            self._mixed(mixed, loss)
        gradients = [self._chain.gradients[name] for name in names]
        if self._shifted:
            self._chain.all_gradients.add_(self._shift(names, context.extra))
        if self._pull:
            loss = loss + self._pulled(names, self._pull, self._pull.centre(context))
        return loss, gradients

    def _shift(self, names: Sequence[str], extra: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the linear term's gradient as one vector, made once for the extras of a job."""
        if self._shift_of is not extra:
            self._shift_of = extra
            self._all_shifts, parts = in_one(self._chain.gradients)
            for name in names:
                parts[name].copy_(extra[SHIFT + name])
        return self._all_shifts

    def _mixed(self, mixed: Mixed, loss: torch.Tensor) -> None:
        """Write the loss of mixed targets, and all gradients."""
        inputs, strides = self._chain.arranged(mixed.inputs)
        change, along = (
            (None, strides) if mixed.change is None else self._chain.arranged(mixed.change)
        )
        own = mixed.own.contiguous()
        other = None if mixed.other is None else mixed.other.contiguous()
        kernels.mixed_gradients(
            self._layers,
            len(inputs),
            inputs.data_ptr(),
            strides,
            _targets(own),
            kernels.Targets() if other is None else _targets(other),
            0.0 if other is None else float(mixed.share),
            0 if change is None else change.data_ptr(),
            (0, *along[1:]),
            mixed.factor,
            loss.data_ptr(),
        )

    @torch.no_grad()
    def _pulled(
        self, names: Sequence[str], pull: Proximal, centre: Mapping[str, torch.Tensor]
    ) -> torch.Tensor:
        """Add the proximal term's gradients to those that were found; return the term."""
        all_ways, ways = self._ways
        for name in names:
            torch.sub(self._params[name], centre[name], out=ways[name])
        # Ways of weights that are not named stay zeros, and add nothing
        self._chain.all_gradients.add_(all_ways, alpha=pull.mu)
        return pull.mu / 2 * torch.mul(all_ways, all_ways, out=self._squares).sum()

    def _takes(self, mixed: Mixed) -> bool:
        """Return whether a batch is one that the kernels can do: no address may lead elsewhere."""
        own, other, change, count = mixed.own, mixed.other, mixed.change, len(mixed.inputs)
        return (
            self._chain.takes(mixed.inputs)
            and self._chain.takes_targets(own, count)
            and (
                other is None or self._chain.takes_targets(other, count) or self._is_for_all(other)
            )
            and (change is None or (is_plain(change) and change.shape == (1, *self._shape)))
        )

    def _is_for_all(self, targets: torch.Tensor) -> bool:
        """Return whether these are soft targets of one sample, which all share."""
        return targets.dim() == 2 and self._chain.takes_targets(targets, 1)


def _targets(targets: torch.Tensor) -> kernels.Targets:
    """Return where contiguous targets are."""
    if targets.dim() == 1:
        return kernels.Targets(labels=targets.data_ptr())
    # A single row is shared by all samples, so the next one is 0 values apart
    return kernels.Targets(soft=targets.data_ptr(), apart=targets.stride(0) * (len(targets) > 1))
