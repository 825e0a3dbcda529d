"""The outcome of a run that has ended: the object of ``--json``, or its error."""

from __future__ import annotations

from typing import Any

from edgefed.errors import EdgeFedError, TimeLimitError
from edgefed.events.base.snapshot import TEST_COUNTS


def result_of(record: dict[str, Any], model: str) -> dict[str, Any]:
    """Return the object that ``--json`` prints about a run that has ended."""
    return {
        "run": record["run"],
        "name": record["name"],
        "status": record["status"],
        "algorithm": record["algorithm"],
        "seed": record["seed"],
        "rounds": record["round"],
        "devices": record["devices"],
        "accuracy": record["accuracy"],
        **{name: record.get(name, 0) for name in TEST_COUNTS},
        "loss": record["loss"],
        "weights_digest": record["weights_digest"],
        "bytes_up": record["bytes_up"],
        "bytes_down": record["bytes_down"],
        "seconds": round(record["seconds"], 3),
        "model": model,
    }


def failure_of(record: dict[str, Any], show: str = "") -> EdgeFedError | None:
    """Return the error that a run ended in, or None when it finished.

    Args:
        record: the run's row.
        show: the command that shows the run, where it is not the usual one.
    """
    if record["status"] == "finished":
        return None
    code = record.get("error") or f"run.{record['status']}"
    kind = TimeLimitError if code in ("round.quorum", "run.devices") else EdgeFedError
    reason = record.get("reason") or "no reason given"
    hint = record.get("hint") or show or f"edgefed run show {record['run']}"
    text = reason if reason.endswith(".") else f"Run {record['run']} {record['status']}: {reason}."
    return kind(text, code=code, hint=hint)
