"""Values of settings for display, without secrets in addresses."""

from __future__ import annotations

from typing import Any

from edgefed.config.fleet.alert_settings import without_path
from edgefed.config.loading.load import Effective
from edgefed.config.values.address import without_password

_HIDES = {"broker": without_password, "alerts.webhook": without_path}


def shown_value(one: Effective) -> Any:
    """Return the value of a setting without passwords, and without the path of a webhook."""
    hide = _HIDES.get(one.key)
    return hide(one.value) if hide and one.value else one.value
