"""Transfers of tensors between the host's memory and a processor's, each of which is counted.

No other module of the product moves a tensor. On a CPU nothing is copied, but calls are counted
alike, so that the number of transfers can be tested without a GPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import torch

Kind = Literal[
    "model",
    "weights",
    "samples",
    "scales",
    "extras",
    "plan",
    "losses",
    "outputs",
    "results",
    "statistics",
]
"""What is moved: ``plan`` is an epoch's order with all draws, ``outputs`` those of tests."""

Direction = Literal["up", "down"]


@dataclass
class TransferCounts:
    """Transfers by direction and kind; ``up`` is from the host to the processor.

    Attributes:
        calls: their number.
        bytes: their bytes.
    """

    calls: Counter[tuple[Direction, Kind]] = field(default_factory=Counter)
    bytes: Counter[tuple[Direction, Kind]] = field(default_factory=Counter)

    def since(self, before: TransferCounts) -> TransferCounts:
        """Return the transfers after an earlier copy of these counts."""
        return TransferCounts(self.calls - before.calls, self.bytes - before.bytes)

    def copy(self) -> TransferCounts:
        """Return the counts as they are now."""
        return TransferCounts(self.calls.copy(), self.bytes.copy())


COUNTS = TransferCounts()
"""All transfers of this process."""

_LOCAL_TYPES = {"cpu"}
"""Types of processors that compute in the host's memory."""


@contextmanager
def every_processor_is_remote() -> Iterator[None]:
    """Let a CPU take the code paths of a GPU; for tests, one at a time in a process."""
    _LOCAL_TYPES.clear()
    try:
        yield
    finally:
        _LOCAL_TYPES.add("cpu")


def is_remote(device: torch.device) -> bool:
    """Return whether a processor has a memory of its own, so that transfers take time."""
    return device.type not in _LOCAL_TYPES


def upload(
    tensor: torch.Tensor, device: torch.device, kind: Kind, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Return a tensor of the host on a processor; on a CPU the same one, if the dtype is."""
    return _move(tensor, device, "up", kind, dtype)


def download(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """Return a processor's tensor on the host, detached; a CPU's shares its memory."""
    return _move(tensor.detach(), torch.device("cpu"), "down", kind, None)


def upload_all(
    tensors: Sequence[torch.Tensor], device: torch.device, kind: Kind
) -> list[torch.Tensor]:
    """Return tensors of the host on a processor, moved in one transfer for each dtype."""
    return _move_all(tensors, device, "up", kind)


def download_all(tensors: Sequence[torch.Tensor], kind: Kind) -> list[torch.Tensor]:
    """Return a processor's tensors on the host, moved in one transfer for each dtype."""
    parts = [tensor.detach() for tensor in tensors]
    return _move_all(parts, torch.device("cpu"), "down", kind)


def place_module(module: torch.nn.Module, device: torch.device) -> None:
    """Move a module's parameters and buffers to a processor, in place."""
    for tensor in (*module.parameters(), *module.buffers()):
        _count(tensor, "up" if device.type != "cpu" else "down", "model")
    module.to(device)


def _move_all(
    tensors: Sequence[torch.Tensor], device: torch.device, direction: Direction, kind: Kind
) -> list[torch.Tensor]:
    if not tensors:
        return []
    if not is_remote(device) and not is_remote(tensors[0].device):
        for tensor in tensors:
            _count(tensor, direction, kind)
        return list(tensors)
    moved = list(tensors)
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        places = [place for place, tensor in enumerate(tensors) if tensor.dtype == dtype]
        flat = torch.cat([tensors[place].reshape(-1) for place in places])
        parts = torch.split(
            _move(flat, device, direction, kind, None),
            [tensors[place].numel() for place in places],
        )
        for place, part in zip(places, parts, strict=True):
            moved[place] = part.view(tensors[place].shape)
    return moved


def _move(
    tensor: torch.Tensor,
    device: torch.device,
    direction: Direction,
    kind: Kind,
    dtype: torch.dtype | None,
) -> torch.Tensor:
    """Move a tensor; every transfer of tensors passes this function."""
    _count(tensor, direction, kind)
    return tensor.to(device, dtype)


def _count(tensor: torch.Tensor, direction: Direction, kind: Kind) -> None:
    COUNTS.calls[direction, kind] += 1
    COUNTS.bytes[direction, kind] += tensor.nbytes
