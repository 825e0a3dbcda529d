"""Requirements of image transforms on their inputs."""

from __future__ import annotations

from edgefed.data.base.types import Array
from edgefed.errors import DataError


def require_images(inputs: Array, transform: str, channels: int = 0) -> None:
    """Raise a `DataError` unless the inputs are images (n, channels, height, width).

    Args:
        inputs: of some samples.
        transform: its name, for the error.
        channels: required number; 0 for any.
    """
    if inputs.dtype.kind in "fu" and inputs.ndim == 4 and channels in (0, inputs.shape[1]):
        return
    what = f"images of {channels} channels" if channels else "images"
    raise DataError(
        f"The transform '{transform}' needs {what}, but one input has shape {inputs.shape[1:]}.",
        code="data.transform",
        hint='set transform = "none", or name another data set',
    )
