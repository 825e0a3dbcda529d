"""Choose the processor that torch uses, and make its results reproducible."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from edgefed.errors import UsageError


def pick_device(wanted: str | None = None) -> torch.device:
    """Return the processor to compute on.

    Args:
        wanted: a torch device such as ``cpu`` or ``cuda:0``; None or ``auto`` for the GPU where
            there is one, and otherwise the CPU.

    Raises:
        UsageError: this machine or its torch has no such device.
    """
    if wanted is None or wanted == "auto":
        return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError as error:
        raise _no_device(wanted, "it is not the name of a torch device") from error
    if device.type == "cpu":
        return torch.device("cpu")
    if device.type != "cuda":
        raise _no_device(wanted, "training runs on cpu or cuda")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    index = device.index or 0
    if index >= count:
        raise _no_device(wanted, f"torch sees {count} CUDA devices")
    return torch.device("cuda", index)


def set_threads(count: int) -> None:
    """Let one torch operation use ``count`` CPU threads, in this process.

    Sums are split among threads, so a run repeats bit for bit only with the same count; with many
    small models on one board, 1 is also the fastest.

    Raises:
        UsageError: ``count`` is below 1.
    """
    if count < 1:
        raise UsageError(f"Torch needs at least one thread, not {count}.", hint="set threads = 1")
    torch.set_num_threads(count)


@contextmanager
def repeatable(device: torch.device, seed: int | None = None) -> Iterator[None]:
    """Compute so that the same work gives the same bits, and restore the global state.

    Inside, cuDNN uses deterministic algorithms and full float32 instead of TF32, whose 10 bits of
    mantissa would make a GPU's results differ from a CPU's. Torch's global generators, from which
    dropout draws, are seeded if a seed is given. All of this is restored at the end.
    """
    with ExitStack() as stack:
        gpus = [device.index or 0] if device.type == "cuda" else []
        if gpus:
            stack.enter_context(
                torch.backends.cudnn.flags(
                    enabled=True, benchmark=False, deterministic=True, allow_tf32=False
                )
            )
        if seed is not None:
            stack.enter_context(torch.random.fork_rng(devices=gpus))
            torch.default_generator.manual_seed(seed)
            for index in gpus:
                torch.cuda.default_generators[index].manual_seed(seed)
        yield


def _no_device(wanted: str, reason: str) -> UsageError:
    return UsageError(
        f"Cannot compute on {wanted!r}: {reason}.",
        code="device.unavailable",
        hint="do not set the device; the GPU is then used if there is one",
    )
