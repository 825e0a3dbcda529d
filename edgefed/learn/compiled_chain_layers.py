"""A chain of layers as the compiled kernels take it: addresses of weights, and room for a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from edgefed.learn.compiled_chain_plan import Part
from edgefed.learn.networks.small_conv import is_plain
from edgefed.learn.types import Params
from edgefed.native import chain as kernels


class ChainLayers:
    """The layers of a model, with its weights, their gradients, and room for a batch.

    Attributes:
        layers: what the kernels take.
        gradients: of the weights, by the model's names; every backward pass overwrites them.
        classes: number of logits.

    Args:
        parts: the layers, as ``plan`` returns them.
        shape: of one input.
        params: all weights by the model's names; they are read at every call.
        room: most samples of a batch.
        has_changes: whether there is room for a change of each sample, too.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        shape: tuple[int, ...],
        params: Mapping[str, torch.Tensor],
        room: int,
        *,
        has_changes: bool = True,
    ) -> None:
        self._shape = shape
        self._room = room
        self._rows = 2 * room if has_changes else room
        self._held: list[torch.Tensor] = []
        self._params = params
        self.gradients: Params = {
            f"{part.name}.{end}": torch.empty_like(params[f"{part.name}.{end}"])
            for part in parts
            for end in ("weight", "bias")
        }
        self.classes = parts[-1].after
        self._is_dense = parts[0].image is None
        self._links = [self._link(part) for part in parts]
        self.layers = kernels.layers(self._links)

    @property
    def outputs(self) -> torch.Tensor:
        """The memory of the last layer's outputs, one after the other."""
        return self._held_at(self._links[-1].output)

    @property
    def outputs_gradient(self) -> torch.Tensor:
        """The memory of the gradient at the last layer's outputs."""
        return self._held_at(self._links[-1].gradient)

    @property
    def features(self) -> torch.Tensor | None:
        """The memory of what the last layer takes; None where that is the inputs."""
        return self._held_at(self._links[-2].output) if len(self._links) > 1 else None

    def arranged(self, inputs: torch.Tensor) -> tuple[torch.Tensor, tuple[int, ...]]:
        """Return inputs as the first layer reads them, and their strides."""
        if not self._is_dense:
            return inputs, inputs.stride()
        inputs = inputs.flatten(1).contiguous()
        return inputs, (*inputs.stride(), 0, 0)

    def takes(self, inputs: torch.Tensor) -> bool:
        """Return whether inputs are what the kernels can read: no address may lead elsewhere."""
        return (
            is_plain(inputs) and 0 < len(inputs) <= self._room and inputs.shape[1:] == self._shape
        )

    def _link(self, part: Part) -> kernels.Link:
        """Return a layer with its addresses."""
        weight, bias = (f"{part.name}.{end}" for end in ("weight", "bias"))
        dense = part.image is None
        turned = -(-self._rows // kernels.SAMPLES) * kernels.SAMPLES
        return kernels.Link(
            before=part.before,
            after=part.after,
            image=part.image,
            relu=part.relu,
            weight=self._params[weight].data_ptr(),
            bias=self._params[bias].data_ptr(),
            weight_gradient=self.gradients[weight].data_ptr(),
            bias_gradient=self.gradients[bias].data_ptr(),
            output=self._new(self._rows * part.values),
            gradient=self._new(self._rows * part.values),
            codes=0 if dense else self._new(self._room * part.values, torch.uint8),
            turned=self._new(part.before * turned) if dense else 0,
            work=self._new(part.after * turned) if dense else 0,
        )

    def _new(self, size: int, kind: torch.dtype = torch.float32) -> int:
        """Return the address of new memory, which lives as long as this does."""
        self._held.append(torch.empty(size, dtype=kind))
        return self._held[-1].data_ptr()

    def _held_at(self, address: int) -> torch.Tensor:
        return next(each for each in self._held if each.data_ptr() == address)
