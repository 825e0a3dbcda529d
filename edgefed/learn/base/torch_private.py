"""The private names of torch that EdgeFed uses; a new version of torch may change or remove them.

No other module of the product uses one, except for the functions ``torch._foreach_*``. A test uses
each of them. ``edgefed.version.TESTED_TORCH`` is the newest version for which the tests passed.
"""

from __future__ import annotations

import torch
from torch import nn
from torch._C import _len_torch_dispatch_stack
from torch._C._functorch import (
    get_unwrapped,
    is_functorch_wrapped_tensor,
    maybe_get_bdim,
    peek_interpreter_stack,
)
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.autograd import forward_ad
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm
from torch.nn.modules.batchnorm import _NormBase as BatchOrInstanceNorm
from torch.nn.modules.dropout import _DropoutNd as Dropout

__all__ = [
    "BatchNorm",
    "BatchOrInstanceNorm",
    "Dropout",
    "get_unwrapped",
    "has_hooks",
    "is_functorch_wrapped_tensor",
    "is_watched",
    "maybe_get_bdim",
    "peek_interpreter_stack",
    "temporarily_clear_interpreter_stack",
]


def is_watched() -> bool:
    """Return whether torch's own operations are observed, or autocast changes their inputs."""
    return (
        peek_interpreter_stack() is not None
        or forward_ad._current_level >= 0
        or _is_autocast()
        or torch.compiler.is_compiling()
        or _len_torch_dispatch_stack() > 0
    )


def _is_autocast() -> bool:
    """Return whether operations on the CPU cast their inputs."""
    if hasattr(torch.amp, "is_autocast_available"):
        return torch.is_autocast_enabled("cpu")
    return torch.is_autocast_cpu_enabled()


def has_hooks(module: nn.Module) -> bool:
    """Return whether the calls of a module's layers are observed."""
    return any(
        part._forward_hooks or part._forward_pre_hooks or part._backward_hooks
        for part in module.modules()
    )
