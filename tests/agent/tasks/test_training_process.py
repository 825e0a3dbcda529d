"""A training process that dies, hangs or is idle costs a task at most an attempt."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from device_agent.daemon.own_data import load_data
from device_agent.tasks.device_store import DeviceStore
from device_agent.tasks.training_messages import Progressed, TrainingDone
from device_agent.tasks.training_process import TrainingProcess
from edgefed.config.fleet.settings import AgentSettings
from edgefed.process.clock import SystemClock
from edgefed.wire.messages import BlobRef, Task
from edgefed.wire.tensors import pack
from tests.agent.agent_harness import CLASSES, SAMPLES, SHAPE, write_data
from tests.complete_task import complete
from tests.forked_training import forked_training
from tests.processes import PATIENCE

MODEL = {"name": "mlp", "hidden": [8]}


@dataclass
class Device:
    """A device whose training processes are forked; torch is imported already."""

    folder: Path
    store: DeviceStore
    training: TrainingProcess
    reports: queue.SimpleQueue[Progressed | TrainingDone]
    seen: list[int] = field(default_factory=list)

    def begin(self, exchange: str, epochs: int = 2) -> None:
        draws = np.random.default_rng(1)
        sizes = (int(np.prod(SHAPE)), 8, CLASSES)
        weights = pack(
            {
                name: draws.standard_normal(shape).astype(np.float32)
                for layer, (ins, outs) in enumerate(zip(sizes, sizes[1:], strict=False))
                for name, shape in (
                    (f"layers.{layer}.weight", (outs, ins)),
                    (f"layers.{layer}.bias", (outs,)),
                )
            }
        )
        ref = BlobRef(digest=self.store.cache.put(weights), size=len(weights))
        fields: dict[str, Any] = {
            "run": "r-1",
            "exchange": exchange,
            "index": 0,
            "round": 0,
            "question": "fit",
            "device": "board",
            "deadline": 60.0,
            "seed": 1,
            "algorithm": "fedavg",
            "settings": {},
            "model": MODEL,
            "shape": SHAPE,
            "classes": CLASSES,
            "training": {"epochs": epochs, "batch_size": 4},
            "codec": "fp32",
            "samples": SAMPLES,
            "blobs": {"weights": ref},
            "params": {},
        }
        self.training.begin(self.store.order(Task(**complete(fields))))

    def done(self) -> TrainingDone:
        while True:
            item = self.reports.get(timeout=PATIENCE)
            if isinstance(item, TrainingDone):
                return item
