"""Read a device's own samples before importing torch, so that problems are reported at once."""

from __future__ import annotations

from edgefed.config.settings import AgentSettings
from edgefed.data.sources import load_device
from edgefed.data.types import DeviceData
from edgefed.errors import UsageError


def load_data(settings: AgentSettings) -> DeviceData:
    """Return the device's samples.

    Raises:
        UsageError: no data is named.
        DataError: it cannot be trained on.
    """
    if not settings.data:
        raise UsageError(
            "This device has no data to train on.",
            code="data.unset",
            hint="name it with --data npz:FILE or --data folder:FOLDER",
        )
    return load_device(settings.data, settings.holdout, settings.state / "data")
