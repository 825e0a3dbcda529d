"""The model files of a run, as ``edgefed run show`` prints them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edgefed.units import counted


def model_rows(models: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each row: the last model, the best one, the checkpoints."""
    checkpoints = [each for each in models if "/" in each["file"]]
    for each in models:
        if "/" in each["file"]:
            continue
        told = f"{each['file']}, after round {each['round']}"
        if each["file"].startswith("best"):
            score = f", {each['metric']} {each['score']:.4f}" if "score" in each else ""
            yield "best", told + score
        else:
            yield "last", told
    if checkpoints:
        count = counted(len(checkpoints), "model")
        last = checkpoints[-1]["file"]
        yield "checkpoints", f"{count}, the last is {last}"
