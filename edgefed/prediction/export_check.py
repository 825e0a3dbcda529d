"""Check that the outputs of an exported program equal those of its model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from edgefed.errors import CheckFailedError
from edgefed.prediction.inputs import Array
from edgefed.prediction.loaded_model import LoadedModel
from edgefed.seeds import generator

TOLERANCE = 1e-4
"""Largest difference of a probability; of another number, relative to its size above 1."""

COUNTS = (1, 3)
"""Inputs at a time."""

Run: TypeAlias = Callable[[Array], Array]
"""Inputs of an exported program to its outputs."""


def check_export(model: LoadedModel, run: Run, *, resize: bool) -> None:
    """Check an exported program on random inputs.

    Args:
        model: the exported model.
        run: executes it.
        resize: whether it takes images of any size.

    Raises:
        CheckFailedError: ``export.differs``.
    """
    worst = 0.0
    for inputs in _examples(model, resize):
        right = model.predict(inputs).outputs
        try:
            actual = run(inputs)
        # The runtime of another program may fail in ways of its own.
        except Exception as error:
            raise _differs(f"it fails on inputs {inputs.shape}: {str(error)[:200]}") from error
        if actual.shape != right.shape:
            raise _differs(f"it returns {actual.shape} for inputs {inputs.shape}")
        difference = np.abs(actual - right) / np.maximum(1, np.abs(right))
        worst = max(worst, float(difference.max()) if np.isfinite(actual).all() else np.inf)
    if worst > TOLERANCE:
        raise _differs(f"its outputs differ by up to {worst:.2g}, more than {TOLERANCE:g}")


def _examples(model: LoadedModel, resize: bool) -> Iterator[Array]:
    """Yield inputs of several numbers and sizes."""
    rng = generator(0, "export")
    for count in COUNTS:
        if not model.takes_images:
            shape = (count, *model.shape)
            if model.vocabulary is not None:
                yield rng.integers(0, min(model.vocabulary, 2**31), shape)
            else:
                yield rng.standard_normal(shape, np.float32)
            continue
        channels, height, width = model.shape
        sides = [(height, width)]
        if resize:
            sides += [(2 * height + 1, width + 3), (height // 2 + 1, 3 * width)]
        for side in sides:
            yield rng.integers(0, 256, (count, *side, channels), np.uint8)


def _differs(what: str) -> CheckFailedError:
    return CheckFailedError(
        f"The exported model is not equal to the one in torch: {what}. Nothing was written.",
        code="export.differs",
        hint="try another --format, or another version of torch, onnx and onnxruntime",
    )
