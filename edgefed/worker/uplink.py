"""Encode the arrays that a device sends, and keep the encoding error.

Error feedback (Seide et al. 2014; Karimireddy et al. 2019): with C the lossy code and e the memory,

    sent_t = C(delta_t + e_{t-1})        e_t = delta_t + e_{t-1} - sent_t
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgefed.algorithms.interface.answer import Group
from edgefed.learn.base.types import Tensors
from edgefed.seeds import generator
from edgefed.wire.codecs import CODECS, decode
from edgefed.wire.tensors import specs_of

FEEDBACK = "feedback/"
"""Prefix of the private state with the encoding errors, by role."""


def encode_groups(
    groups: Mapping[str, Group],
    codec: str,
    seed: int,
    memory: Mapping[str, Tensors] | None,
) -> tuple[dict[str, bytes], dict[str, Tensors]]:
    """Return the encoded groups by role, and the new memory.

    Args:
        groups: of the algorithm's answer.
        codec: the task's codec, for groups that name none.
        seed: of the task; stochastic rounding draws from it.
        memory: encoding errors so far, or None where the recipe has no error feedback.
    """
    blobs: dict[str, bytes] = {}
    dropped: dict[str, Tensors] = {}
    for role, group in groups.items():
        name = group.codec or codec
        feed_back = memory is not None and group.codec is None and name != "fp32"
        before = (memory or {}).get(FEEDBACK + role) if feed_back else None
        wanted = _plus(group.arrays, before)
        blobs[role] = CODECS[name].encode(wanted, generator(seed, "uplink", role))
        if feed_back:
            sent = decode(blobs[role], specs_of(wanted))
            dropped[FEEDBACK + role] = _floats_minus(wanted, sent)
    return blobs, dropped


def _plus(arrays: Tensors, before: Tensors | None) -> Tensors:
    """Add the earlier encoding errors; a memory of other shapes belongs to another model."""
    if before is None or any(
        name not in arrays or arrays[name].shape != old.shape for name, old in before.items()
    ):
        return arrays
    return {
        name: array + before[name] if name in before else array for name, array in arrays.items()
    }


def _floats_minus(wanted: Tensors, sent: Tensors) -> Tensors:
    return {
        name: array - sent[name]
        for name, array in wanted.items()
        if np.issubdtype(array.dtype, np.floating)
    }
