"""The entries of a job's extras that mixing uses: averaged data of others, or raw samples.

Extras are ``inputs`` (entries, …) and ``targets`` (entries, classes), float32. Inputs may be uint8
codes instead, with ``scale`` and ``offset`` (entries,); a value is then offset + scale · code.
Only the entries that a step uses are unpacked, to save memory. ``kept``, if present, lists the
entries to draw from, so that clients which exclude different entries share one array.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from edgefed.errors import DataError, UsageError
from edgefed.learn.base.types import Array, Context, Params

DRAWN = "entry"
"""The draw that says which entries a step takes: int64, (1,) for a batch or (batch,)."""

KEPT = "kept"
"""The extra that says of each entry whether it may be drawn: bool (entries,); absent for all."""


@dataclass(frozen=True)
class AveragedEntries:
    """Entries of one step, on the training device: inputs (n, …) and targets (n, classes)."""

    inputs: torch.Tensor
    targets: torch.Tensor


def draw_entries(
    generator: np.random.Generator, count: int, extra: Mapping[str, Array]
) -> dict[str, Array]:
    """Return which ``count`` entries a step takes, drawn uniformly from those that are kept."""
    if KEPT not in extra:
        return {DRAWN: generator.integers(len(extra["inputs"]), size=count)}
    kept = np.flatnonzero(extra[KEPT])
    return {DRAWN: kept[generator.integers(len(kept), size=count)]}


def entries(context: Context, like: torch.Tensor) -> AveragedEntries:
    """Return the entries that were drawn for this step, in ``like``'s kind of number."""
    which, extra = context.draws[DRAWN], context.extra
    targets = extra["targets"].index_select(0, which).to(like.dtype)
    return AveragedEntries(unpacked(extra, which).to(like.dtype), targets)


def unpacked(extra: Mapping[str, torch.Tensor] | Params, which: torch.Tensor) -> torch.Tensor:
    """Return some of the inputs, unpacked if they are packed."""
    inputs = extra["inputs"].index_select(0, which)
    if "scale" not in extra:
        return inputs
    shape = (-1, *[1] * (inputs.dim() - 1))
    scale, offset = (
        extra[name].index_select(0, which).reshape(shape) for name in ("scale", "offset")
    )
    return offset + scale * inputs.to(scale.dtype)


def check_entries(
    what: str, extra: Mapping[str, Array], shape: tuple[int, ...], classes: int
) -> None:
    """Check that extras hold entries of this shape, and at least one.

    Args:
        what: name of the objective that needs them, for the error.
        extra: a job's extras.
        shape: of one entry's inputs.
        classes: of one entry's targets.

    Raises:
        DataError: ``train.entries``.
    """
    missing = [name for name in ("inputs", "targets") if not len(extra.get(name, ()))]
    if missing:
        raise _refused(what, "there are none to mix with")
    inputs, targets = extra["inputs"], extra["targets"]
    packed = inputs.dtype == np.uint8
    if any((name in extra) != packed for name in ("scale", "offset")):
        raise _refused(what, "scale and offset belong to inputs of type uint8, and to no others")
    for name in ("scale", "offset"):
        if name in extra and extra[name].shape != (len(inputs),):
            raise _refused(what, f"there is no {name} for each")
    if tuple(inputs.shape[1:]) != shape:
        raise _refused(what, f"their inputs are {inputs.shape[1:]}, not {shape}")
    if targets.shape != (len(inputs), classes):
        raise _refused(what, f"their targets are {targets.shape}, not {(len(inputs), classes)}")
    kept = extra.get(KEPT)
    if kept is not None and kept.shape != (len(inputs),):
        raise _refused(what, f"{KEPT} says of {len(kept)} entries, not of {len(inputs)}")
    if kept is not None and not kept.any():
        raise _refused(what, "there are none to mix with, as all are left out")


def check_ratio(what: str, name: str, ratio: float) -> None:
    """Check a share that is mixed in.

    Raises:
        UsageError: it is not between 0 and 1.
    """
    if not 0 <= ratio <= 1:
        raise UsageError(
            f"{what} cannot mix with {name} = {ratio}.",
            code="train.mixup",
            hint=f"choose a {name} from 0 to 1",
        )


def check_alpha(what: str, alpha: float) -> None:
    """Check the parameter of a Beta distribution.

    Raises:
        UsageError: it is not a positive number.
    """
    if not 0 < alpha < float("inf"):
        raise UsageError(
            f"{what} cannot draw a share with alpha = {alpha}.",
            code="train.mixup",
            hint="choose an alpha above 0; 1 draws all ratios with equal probability",
        )


def check_real(what: str, vocabulary: int | None) -> None:
    """Check that a model's inputs can be mixed.

    Raises:
        DataError: they are tokens.
    """
    if vocabulary is not None:
        raise DataError(
            f"{what} mixes inputs, but this model's inputs are tokens, which have no mean.",
            code="train.tokens",
            hint="mix after the embedding, with split = 1",
        )


def _refused(what: str, why: str) -> DataError:
    """Return the error of extras that cannot be mixed with."""
    return DataError(
        f"{what} cannot mix with these entries: {why}.",
        code="train.entries",
        hint="share averaged data of this run's devices and model",
    )
