"""Names of users' own functions, as recipes write them: ``package.module:function``."""

from __future__ import annotations


def metric_name(name: str) -> str:
    """Return the name under which a metric is told: the function's own."""
    return name.rpartition(":")[2].rpartition(".")[2]
