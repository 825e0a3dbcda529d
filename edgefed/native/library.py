"""Load the compiled kernels, if they were built and this processor supports them.

The library is optional: every caller has an alternative that gives the same result up to rounding.
``EDGEFED_NATIVE=0`` disables it. It is called through ctypes, which releases Python's global lock.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from ctypes import c_double, c_int, c_int64, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

VARIABLE = "EDGEFED_NATIVE"
OFF = frozenset({"0", "false", "no", "off"})

ABI = 4
"""The kernels' ``ABI`` that this package calls."""

Signature = tuple[type, ...]

CALLS: Mapping[str, Signature] = {
    "edgefed_abi": (),
    "edgefed_lanes": (),
    "edgefed_forward": (c_void_p,) * 7,
    "edgefed_weights_gradient": (c_void_p,) * 8,
    "edgefed_inputs_gradient": (c_void_p,) * 6,
    "edgefed_tangent": (c_void_p,) * 6,
    "edgefed_gradients": (c_void_p, c_int64, c_int64, *(c_void_p,) * 4),
    "edgefed_mixed_gradients": (
        *(c_void_p, c_int64, c_int64, *(c_void_p,) * 6),
        *(c_int64, c_double, c_void_p, c_void_p, c_double, c_void_p),
    ),
    "edgefed_expert_gradients": (c_void_p, c_int64, c_int64, *(c_void_p,) * 7),
    "edgefed_merge_floats": (c_void_p, c_void_p, c_int64, c_double, c_uint64, c_double),
    "edgefed_merge_doubles": (c_void_p, c_void_p, c_int64, c_double, c_uint64, c_double),
    "edgefed_pink_means": (c_void_p, c_void_p, c_double, c_void_p, c_void_p, c_int64, c_void_p),
    "edgefed_noise_image": (c_void_p, c_int64, c_void_p, c_void_p, c_void_p, c_void_p),
}
"""The functions that the library exports, with their arguments; all return an int."""


@dataclass(frozen=True)
class Native:
    """The kernels of this process.

    Attributes:
        library: the loaded library; None where it is not used.
        lanes: floats in a vector of this processor.
        reason: why they are not used; empty when they are.
    """

    library: ctypes.CDLL | None
    lanes: int = 0
    reason: str = ""


@cache
def native() -> Native:
    """Return this process's kernels, loaded at the first call."""
    return load(find(Path(__file__).parent), os.environ)


def find(folder: Path, name: str = "_kernels") -> Path | None:
    """Return the library in a folder, as this Python names it; None if there is none."""
    paths = (folder / f"{name}{suffix}" for suffix in EXTENSION_SUFFIXES)
    return next((path for path in paths if path.exists()), None)


def load(path: Path | None, environment: Mapping[str, str]) -> Native:
    """Return the kernels of a file, or why they are not used; nothing is raised.

    Args:
        path: the library; None if it was not built.
        environment: in which ``EDGEFED_NATIVE`` may disable it.
    """
    if environment.get(VARIABLE, "").strip().lower() in OFF:
        return Native(None, reason=f"{VARIABLE}={environment[VARIABLE]}")
    if path is None:
        return Native(None, reason="not built")
    try:
        library = ctypes.CDLL(str(path))
        for name, signature in CALLS.items():
            function = getattr(library, name)
            function.argtypes, function.restype = signature, c_int
    except (OSError, AttributeError) as error:
        return Native(None, reason=f"{path.name} cannot be used: {error}")
    if library.edgefed_abi() != ABI:
        return Native(None, reason=f"{path.name} is of another version of EdgeFed")
    lanes = library.edgefed_lanes()
    if not lanes:
        return Native(None, reason="this processor lacks AVX2")
    return Native(library, lanes)
