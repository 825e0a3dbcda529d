"""The contract of a partition: the requirements on a package's own partitioner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgefed.config.recipes.recipe import DataSection
from edgefed.data.base.types import Array, Indices
from edgefed.data.partitioners.cover import Parts, check_parts
from edgefed.data.partitioners.options import PartitionOptions
from edgefed.data.partitioners.registry import Partitioner, PartitionRequest
from edgefed.errors import DataError
from edgefed.testing.common import called, check_settings, other_global_seeds, pure, require
from edgefed.testing.play import bits

SIZES = ((60, 3), (200, 4), (201, 7))
"""How many samples are divided among how many devices."""

CLASSES = 4
GROUPS = 10
LEAST = 5
"""The ``min_samples`` that is asked for."""


def check_partitioner(
    partitioner: Partitioner,
    settings: Mapping[str, Any] | None = None,
    *,
    keeps_min_samples: bool = False,
) -> None:
    """Check a partition by dividing labels of several sizes with several seeds.

    Args:
        partitioner: the object that a package offers under ``edgefed.partitioners``.
        settings: its own keys of the recipe's ``[data]`` table.
        keeps_min_samples: whether it gives every device the ``min_samples`` of the recipe.

    Raises:
        AssertionError: it breaks the contract; the text describes how.
    """
    values = dict(settings or {})
    if partitioner.options is not None:
        check_settings(partitioner.options, values, "the partition")
    for samples, devices in SIZES:
        for seed in (1, 2, 3):
            request = _request(partitioner, values, samples, devices, seed)
            _check_split(partitioner, request, seed, keeps_min_samples)
    _check_draws(partitioner, values)
    _check_scarce(partitioner, values)


def _request(
    partitioner: Partitioner, values: Mapping[str, Any], samples: int, devices: int, seed: int
) -> PartitionRequest:
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(CLASSES), rng.integers(0, CLASSES, samples - CLASSES)])
    own = None if partitioner.options is None else partitioner.options(**values)
    return PartitionRequest(
        section=DataSection(classes_per_device=2, alpha=5.0),
        options=PartitionOptions(min_samples=LEAST, merge_groups=True),
        labels=labels.astype(np.int64),
        devices=devices,
        groups=np.arange(samples, dtype=np.int64) % GROUPS,
        coarse=np.arange(CLASSES, dtype=np.int64) // 2,
        own=own,
        inputs=_inputs(samples, rng) if partitioner.by_inputs else None,
    )


def _inputs(samples: int, rng: np.random.Generator) -> Array:
    inputs = rng.normal(size=(samples, 3)).astype(np.float32)
    inputs.flags.writeable = False
    return inputs


def _check_split(
    partitioner: Partitioner, request: PartitionRequest, seed: int, keeps_min_samples: bool
) -> None:
    what = f"dividing {len(request.labels)} samples among {request.devices} devices"
    given = {"the labels": request.labels, "the groups": request.groups}
    with pure(what, given):
        parts = called(what, lambda: _split(partitioner, request, seed))
    require(len(parts) == request.devices, f"{what} gives {len(parts)} parts")
    whole = all(isinstance(part, np.ndarray) and part.dtype.kind in "iu" for part in parts)
    require(whole, f"{what} gives parts that are no arrays of whole numbers")
    require(all(len(part) for part in parts), f"{what} leaves a device without samples")
    try:
        check_parts(parts, request.labels, partitioner.cover, request.groups)
    except ValueError as error:
        cover = f"Cover.{partitioner.cover.name} ({partitioner.cover.value})"
        raise AssertionError(f"{what} breaks {cover}: {error}") from error
    fewest = min(len(part) for part in parts)
    if keeps_min_samples:
        require(fewest >= LEAST, f"{what} gives a device {fewest} samples, below min_samples")
    with other_global_seeds():
        again = _split(partitioner, request, seed)
    require(bits(again) == bits(parts), f"{what} twice with the same seed gives other parts")
    if not partitioner.by_label:
        _check_label_free(partitioner, request, parts, seed)


def _check_label_free(
    partitioner: Partitioner, request: PartitionRequest, parts: Parts, seed: int
) -> None:
    """Check that parts do not depend on labels, which may also be numbers."""
    numbers: Indices = np.zeros((len(request.labels), 2), np.float32)
    other = PartitionRequest(
        request.section,
        request.options,
        numbers,
        request.devices,
        request.groups,
        request.coarse,
        request.own,
        request.inputs,
    )
    what = "dividing samples whose targets are numbers, as by_label = False allows,"
    divided = called(what, lambda: _split(partitioner, other, seed))
    require(bits(divided) == bits(parts), "the parts depend on labels, but by_label is False")


def _check_draws(partitioner: Partitioner, values: Mapping[str, Any]) -> None:
    """Check that the order or the choice of a device's samples depends on the seed."""
    request = _request(partitioner, values, *SIZES[1], 1)
    parts = {str(bits(_split(partitioner, request, seed))) for seed in range(5)}
    require(len(parts) > 1, "five seeds give the same parts; draw from the generator that is given")


def _check_scarce(partitioner: Partitioner, values: Mapping[str, Any]) -> None:
    """Check that too few samples are an error of EdgeFed's, or divided all the same."""
    request = _request(partitioner, values, 8, 8, 1)
    try:
        parts = _split(partitioner, request, 1)
    except DataError:
        return
    except Exception as error:
        raise AssertionError(
            f"with too few samples it raises {type(error).__name__}: {error}; raise DataError, such"
            " as edgefed.data.partitioners.cover.too_few"
        ) from error
    require(len(parts) == 8, f"8 samples for 8 devices give {len(parts)} parts")


def _split(partitioner: Partitioner, request: PartitionRequest, seed: int) -> Parts:
    return tuple(partitioner.split(request, np.random.default_rng(seed)))
