"""Tasks and devices for the worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgefed.config.recipes.recipe import ModelSection
from edgefed.learn.base.types import Tensors
from edgefed.learn.modeling.model_building import build
from edgefed.wire.messages import BlobRef, Task
from edgefed.wire.tensors import digest, pack
from edgefed.worker.outcomes import Outcome
from edgefed.worker.trainer_cache import TrainerCache
from edgefed.worker.worker import Worker, read_blob
from tests.complete_task import complete
from tests.run_fixture import CLASSES, SHAPE, samples

MODEL = {"name": "mlp", "hidden": [4]}


def weights() -> Tensors:
    return build(ModelSection.model_validate(MODEL), SHAPE, CLASSES, 3).weights()


def task(**changes: Any) -> Task:
    packed = pack(weights())
    values: dict[str, Any] = {
        "run": "r-0001-0000",
        "exchange": "r-0001-0000-4",
        "index": 4,
        "round": 2,
        "question": "fit",
        "device": "device-00",
        "deadline": 60.0,
        "seed": 5,
        "algorithm": "fedavg",
        "settings": {},
        "model": MODEL,
        "shape": SHAPE,
        "classes": CLASSES,
        "training": {"batch_size": 4, "learning_rate": 0.1},
        "codec": "fp32",
        "samples": 9,
        "blobs": {"weights": BlobRef(digest=digest(packed), size=len(packed))},
        "params": {},
    }
    return Task(**complete({**values, **changes}))


def worker(train: int = 9, test: int = 5, trainers: TrainerCache | None = None) -> Worker:
    return Worker(trainers or TrainerCache("cpu"), samples(train, 1), samples(test, 2))


def read(role: str) -> Tensors:
    assert role == "weights"
    return read_blob(pack(weights()))


def work(
    given: Task, whom: Worker | None = None, private: Mapping[str, Tensors] | None = None
) -> Outcome:
    return (whom or worker()).work(given, read, private or {})
