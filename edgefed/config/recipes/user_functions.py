"""Names of users' own functions, as recipes write them: ``package.module:function``."""

from __future__ import annotations

import re

METRIC_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
"""The pattern of a metric's name: with a prefix, it becomes a name on the wire."""


def metric_name(name: str) -> str:
    """Return the reported name of a metric: that of its function."""
    return name.rpartition(":")[2].rpartition(".")[2]
