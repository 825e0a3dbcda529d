"""Patches: encoded differences between weights that a receiver holds and newer ones.

The codec of a patch may be lossy, so its sender applies the patch too and uses the result as the
new weights. Applying the same patch to the same base gives the same bits everywhere, because it is
one addition per value, whose result IEEE 754 defines exactly.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgefed.wire.tensors import Array, TensorSpec, check_spec, malformed, specs_of


def difference(base: Mapping[str, Array] | None, weights: Mapping[str, Array]) -> dict[str, Array]:
    """Return the patch from ``base`` to ``weights``, in the order of ``weights``.

    Args:
        base: the weights that the receiver holds; None stands for zeros.
        weights: the target weights.

    Returns:
        ``weights - base`` for float tensors, in their own precision; other tensors as they are.

    Raises:
        WireError: ``wire.tensor`` when the two differ in a name, dtype or shape.
    """
    _check_base(base, specs_of(weights))
    return {
        name: array - base[name] if base is not None and array.dtype.kind == "f" else array.copy()
        for name, array in weights.items()
    }


def apply_patch(
    base: Mapping[str, Array] | None,
    patch: Mapping[str, Array],
    specs: Mapping[str, TensorSpec] | None = None,
    *,
    in_place: bool = False,
) -> dict[str, Array]:
    """Return the weights that a patch leads to.

    Args:
        base: the weights to add to; None stands for zeros.
        patch: the decoded difference. Float tensors are added in their own precision (float32 for
            a model's weights); any other tensor replaces the base's.
        specs: dtypes and shapes of base, patch and result, and the result's order; None takes
            them from the base, or from the patch where there is no base.
        in_place: whether the arrays of base and patch become those of the result; otherwise they
            stay as they are.

    Raises:
        WireError: ``wire.tensor`` when base or patch differ from ``specs``.
    """
    if specs is None:
        specs = specs_of(patch if base is None else base)
    _check_base(patch, specs)
    _check_base(base, specs)
    after = {}
    for name in specs:
        change = patch[name]
        if base is not None and change.dtype.kind == "f":
            out = base[name] if in_place else np.empty_like(base[name])
            after[name] = np.add(base[name], change, out=out)
        else:
            after[name] = change if in_place else change.copy()
    return after


def _check_base(arrays: Mapping[str, Array] | None, specs: Mapping[str, TensorSpec]) -> None:
    """Check that ``arrays`` fit ``specs`` exactly."""
    if arrays is None:
        return
    for name, spec in specs_of(arrays).items():
        check_spec(name, spec, specs.get(name))
    for name in specs:
        if name not in arrays:
            raise malformed(f"the tensor {name!r} is missing")
