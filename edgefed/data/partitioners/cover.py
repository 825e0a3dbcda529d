"""Check a partition: which samples its parts may share, and which they may leave out."""

from __future__ import annotations

from enum import Enum

import numpy as np

from edgefed.data.base.types import Indices
from edgefed.errors import DataError

Parts = tuple[Indices, ...]
"""One array of positions for each device."""


class Cover(Enum):
    """The samples that the parts of a partition hold together."""

    ALL = "every sample once"
    LABELS = "every sample of each label that is held, once"
    GROUPS = "every sample of each writer or role that is held, once and in one part"
    SOME = "some samples, once"
    SHARED = "some samples, at most once in a part"


def check_parts(
    parts: Parts, labels: Indices, cover: Cover = Cover.LABELS, groups: Indices | None = None
) -> None:
    """Check that the parts hold the samples that the partition guarantees.

    Raises:
        ValueError: a partitioner has a bug; no user input may lead here.
    """
    together = np.concatenate(parts)
    if len(together) and not 0 <= together.min() <= together.max() < len(labels):
        raise ValueError("a sample is not one of the data's")
    if any(len(np.unique(part)) != len(part) for part in parts):
        raise ValueError("a sample is twice in a part")
    if cover is Cover.SHARED:
        return
    times = np.bincount(together, minlength=len(labels))
    if times.max() > 1:
        raise ValueError("a sample is in two parts")
    if cover is Cover.ALL and not times.all():
        raise ValueError("a sample is left out")
    if cover is Cover.LABELS:
        _check_whole(times, labels)
    if cover is Cover.GROUPS and groups is not None:
        _check_whole(times, groups)
        owned = np.concatenate([np.unique(groups[part]) for part in parts])
        if len(np.unique(owned)) != len(owned):
            raise ValueError("samples of one group are in different parts")


def _check_whole(times: Indices, kinds: Indices) -> None:
    held = np.isin(kinds, np.unique(kinds[times > 0]))
    if not times[held].all():
        raise ValueError("a sample is left out, but others of its kind are not")


def too_few(message: str, hint: str) -> DataError:
    """Return the error for data that cannot be partitioned as requested."""
    return DataError(message, code="data.partition", hint=hint)
