"""An algorithm that notes what it releases, installed as a package: FedAvg, with a count and noise.

Its metrics say what the device had when the task began: releases that its state counts, and entries
of its ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.plugin_package import importable, write_package

NAME = "releasing"
MODULE = "releasing_package"

SOURCE = """
from dataclasses import replace

import numpy as np

from edgefed.extension import FedAvg, Group


class Releasing(FedAvg):
    name = "releasing"
    summary = "FedAvg that keeps a ledger"
    paper = "none"

    def answer(self, task, device, result):
        made = super().answer(task, device, result)
        count = device.device_state.get("releases", {"count": np.zeros(1, np.int64)})["count"]
        noise = device.private_generator.standard_normal(3)
        return replace(
            made,
            groups={**made.groups, "noise": Group({"noise": noise.astype(np.float32)}, "fp32")},
            metrics={
                **made.metrics,
                "before": float(count[0]),
                "entries": float(len(device.ledger)),
            },
            device_state={
                "releases": {"count": count + 1},
                f"round-{task.round}": {"noise": noise},
                f"round-{task.round - 1}": {},
            },
            ledger=({"round": task.round, "noise": noise.tolist(), "shape": (1, 2)},),
        )
"""


@contextmanager
def installed(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the algorithm for this process and those that it starts."""
    write_package(root, MODULE, {NAME: f"{MODULE}:Releasing"})
    (root / f"{MODULE}.py").write_text(SOURCE)
    with importable(root, monkeypatch):
        yield
