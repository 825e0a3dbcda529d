"""A chain of layers as the compiled kernels take it: addresses of weights, and room for a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from edgefed.learn.base.types import Params
from edgefed.learn.compiled.compiled_chain_plan import ChainPart
from edgefed.learn.networks.small_conv import is_plain
from edgefed.native import chain as kernels

_ALIGNED = 16
"""Values from the start of one array to the next: a multiple of them, 64 bytes."""


class ChainLayers:
    """The layers of a model, with its weights, their gradients, and room for a batch.

    Attributes:
        links: the layers with their addresses.
        gradients: of the weights, by the model's names; every backward pass overwrites them.
        all_gradients: the same memory as one vector.

    Args:
        parts: the layers, as ``plan`` returns them.
        shape: of one input.
        params: all weights by the model's names; they are read at every call.
        room: most samples of a batch.
        has_changes: whether there is room for a change of each sample, too.
    """

    def __init__(
        self,
        parts: Sequence[ChainPart],
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
        names = [f"{part.name}.{end}" for part in parts for end in ("weight", "bias")]
        self.all_gradients, self.gradients = in_one({name: params[name] for name in names})
        self._classes = parts[-1].after
        self._is_dense = parts[0].image is None
        self.links = [self._link(part) for part in parts]

    def arranged(self, inputs: torch.Tensor) -> tuple[torch.Tensor, tuple[int, ...]]:
        """Return inputs as the first layer reads them, and their strides."""
        if not self._is_dense:
            return inputs, inputs.stride()
        inputs = inputs.flatten(1).contiguous()
        # Flat inputs have no rows and columns to stride over
        return inputs, (*inputs.stride(), 0, 0)

    def takes(self, inputs: torch.Tensor) -> bool:
        """Return whether the kernels can read the inputs: no address may lead outside of them."""
        return (
            is_plain(inputs) and 0 < len(inputs) <= self._room and inputs.shape[1:] == self._shape
        )

    def takes_targets(self, targets: torch.Tensor, count: int) -> bool:
        """Return whether these are labels, or soft targets of float32, of so many samples."""
        if targets.dim() == 1:
            return targets.dtype == torch.int64 and len(targets) == count and _is_here(targets)
        return targets.shape == (count, self._classes) and is_plain(targets)

    def _link(self, part: ChainPart) -> kernels.ChainLink:
        """Return a layer with its addresses."""
        weight, bias = (f"{part.name}.{end}" for end in ("weight", "bias"))
        dense = part.image is None
        # Rounded up: the turned rows consist of whole blocks of samples
        turned = -(-self._rows // kernels.SAMPLES) * kernels.SAMPLES
        return kernels.ChainLink(
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


def in_one(like: Params) -> tuple[torch.Tensor, Params]:
    """Return a vector of zeros and its parts, contiguous and aligned, with these shapes."""
    sizes = [-(-part.numel() // _ALIGNED) * _ALIGNED for part in like.values()]
    vector = torch.zeros(sum(sizes))
    pieces = torch.split(vector, sizes)
    named = zip(like.items(), pieces, strict=True)
    return vector, {name: piece[: part.numel()].view(part.shape) for (name, part), piece in named}


def _is_here(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is in this machine's memory."""
    return tensor.device.type == "cpu" and tensor.layout == torch.strided
