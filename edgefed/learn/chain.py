"""A shortcut: the gradient of cross-entropy for small chains of layers, in one compiled call.

For models of a few small layers, most of a step is what torch does around the numbers: recording
the graph, walking it back, handing tensors on. Where the whole model is a chain that the kernels
know, they take the loss and all gradients at once. The numbers are torch's up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from edgefed.learn.capabilities import Phase
from edgefed.learn.chain_plan import Part, plan
from edgefed.learn.models import Model
from edgefed.learn.networks.small_conv import is_plain, is_watched
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.proximal import Proximal
from edgefed.learn.types import Batch, Params
from edgefed.native import chain as kernels
from edgefed.native.library import native


def chain_of(model: Model, phase: Phase, params: Params, precision: str, room: int) -> Chain | None:
    """Return the shortcut for an update, or None where torch has to do it.

    Args:
        model: what is trained.
        phase: the update.
        params: all weights of the model, which are to be changed in place only.
        precision: of the schedule.
        room: most samples of a batch.
    """
    objective, pull = phase.objective, 0.0
    if isinstance(objective, Proximal):
        pull = objective.mu
        objective = objective.inner
    if native().library is None or type(objective) is not CrossEntropy or precision != "fp32":
        return None
    known = all(is_plain(part) and part.is_contiguous() for part in params.values())
    parts = plan(model) if known and not is_watched() else []
    return Chain(parts, params, room, pull) if parts else None


class Chain:
    """The layers of a model, with the weights that a job trains and room for its batches.

    Args:
        parts: the layers, as ``plan`` returns them.
        params: all weights; they are read at every call.
        room: most samples of a batch.
        pull: FedProx's μ, the strength of the proximal term; 0 for none.
    """

    def __init__(self, parts: Sequence[Part], params: Params, room: int, pull: float = 0.0) -> None:
        self._pull = pull
        self._room = room
        self._rooms: list[torch.Tensor] = []
        self._params = params
        self._gradients = {
            f"{part.name}.{end}": torch.empty_like(params[f"{part.name}.{end}"])
            for part in parts
            for end in ("weight", "bias")
        }
        self._loss = torch.empty(())
        self._is_dense = parts[0].image is None
        self._layers = kernels.layers([self._link(part) for part in parts])

    @torch.no_grad()
    def gradients(
        self, batch: Batch, names: Sequence[str], anchor: Params
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return the loss of a batch, and its gradients with respect to the named weights.

        The gradients are overwritten by the next call. ``anchor`` is what the weights are pulled
        to, if they are.
        """
        inputs = batch.inputs.flatten(1).contiguous() if self._is_dense else batch.inputs
        strides = (*inputs.stride(), 0, 0) if self._is_dense else inputs.stride()
        labels = batch.targets.contiguous()
        where = (inputs.data_ptr(), strides, labels.data_ptr(), self._loss.data_ptr())
        kernels.gradients(self._layers, len(inputs), *where)
        loss, found = self._loss.clone(), [self._gradients[name] for name in names]
        if self._pull:
            ways = {name: self._params[name] - start for name, start in anchor.items()}
            torch._foreach_add_(found, [ways[name] for name in names], alpha=self._pull)
            lengths = torch.stack([way.square().sum() for way in ways.values()])
            loss += self._pull / 2 * lengths.sum()
        return loss, found

    def takes(self, batch: Batch) -> bool:
        """Return whether a batch is one that this can do."""
        labels, inputs = batch.targets, batch.inputs
        return (
            labels.dtype == torch.int64
            and labels.dim() == 1
            and inputs.dtype == torch.float32
            and 0 < len(inputs) <= self._room
        )

    def _link(self, part: Part) -> kernels.Link:
        """Return a layer with its addresses."""
        weight, bias = (f"{part.name}.{end}" for end in ("weight", "bias"))
        dense = part.image is None
        turned = -(-self._room // kernels.SAMPLES) * kernels.SAMPLES
        return kernels.Link(
            before=part.before,
            after=part.after,
            image=part.image,
            relu=part.relu,
            weight=self._params[weight].data_ptr(),
            bias=self._params[bias].data_ptr(),
            weight_gradient=self._gradients[weight].data_ptr(),
            bias_gradient=self._gradients[bias].data_ptr(),
            output=self._new(self._room * part.values),
            gradient=self._new(self._room * part.values),
            codes=0 if dense else self._new(self._room * part.values, torch.uint8),
            turned=self._new(part.before * turned) if dense else 0,
            work=self._new(part.after * turned) if dense else 0,
        )

    def _new(self, size: int, kind: torch.dtype = torch.float32) -> int:
        """Return the address of new memory, which lives as long as this does."""
        self._rooms.append(torch.empty(size, dtype=kind))
        return self._rooms[-1].data_ptr()
