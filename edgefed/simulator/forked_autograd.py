"""Whether a forked process can train: autograd refuses to once this process has its threads.

CUDA refuses to once this process has used it.

PyTorch starts threads for autograd at the first backward pass on a GPU, or where backward passes
nest deeply, and then refuses to work in processes that are forked
(https://github.com/pytorch/pytorch/wiki/Autograd-and-Fork). A program that has trained a model of
its own before it simulates a fleet may have started them.
"""

from __future__ import annotations

import os
import warnings

import torch

from edgefed.learn.base.processors import pick_device


def forks_can_train() -> bool:
    """Fork a process that does one backward pass, and return whether it could."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This process .* is multi-threaded")
        child = os.fork()
    if child == 0:
        code = 1
        try:
            ones = torch.ones(1, requires_grad=True, device=pick_device())
            ones.sum().backward()  # type: ignore[no-untyped-call]
            code = 0
        finally:
            # Without the cleanup of an interpreter, which belongs to the parent
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
