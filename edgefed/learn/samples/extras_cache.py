"""A job's extras on the training device: each array is copied once and kept while it is alive."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from edgefed.learn.base.transfers import upload
from edgefed.learn.base.types import Array, Params


class ExtrasCache:
    """Arrays on a device, by the array's own identity; arrays must not change while they live."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._loaded: dict[int, tuple[weakref.ref[Any], torch.Tensor]] = {}

    def get(self, array: Array) -> torch.Tensor:
        """Return an array on the device, in the same kind of number.

        On a CPU the tensor shares the memory of an array that torch can take as it is.
        """
        if self._device.type == "cpu" and _shareable(array):
            # Nothing is copied, so there is nothing to keep; and kept, it would keep the array.
            return torch.from_numpy(array)
        loaded = self._loaded.get(id(array))
        if loaded is None:
            copy = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
            loaded = (
                self._until_gone(array),
                upload(torch.from_numpy(copy), self._device, "extras"),
            )
            self._loaded[id(array)] = loaded
        return loaded[1]

    def all(self, arrays: Mapping[str, Array]) -> Params:
        """Return named arrays on the device."""
        return {name: self.get(array) for name, array in arrays.items()}

    def _until_gone(self, array: Array) -> weakref.ref[Any]:
        """Return a reference that drops the array's tensor when the array is freed."""
        key, kept = id(array), self._loaded
        return weakref.ref(array, lambda _: kept.pop(key, None))


def _shareable(array: Array) -> bool:
    """Return whether torch can take an array as it lies in memory."""
    return array.flags.c_contiguous and array.flags.writeable and array.dtype.isnative
