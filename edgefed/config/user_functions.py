"""Names of users' own functions, as recipes write them: ``package.module:function``."""

from __future__ import annotations

import re

METRIC_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
"""What a metric of a user may be called: its name becomes one of the wire with a beginning."""


def metric_name(name: str) -> str:
    """Return the name under which a metric is told: the function's own."""
    return name.rpartition(":")[2].rpartition(".")[2]
