"""All executors measure the statistics of batch normalisation to the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgefed.config.recipes.recipe import ModelSection
from edgefed.learn.aggregation.pooled_statistics import MeasuredStatistics, pooled_statistics
from edgefed.learn.modeling.model_building import build
from edgefed.learn.training.batch_statistics import batch_statistics
from edgefed.learn.training.trainer import Trainer
from edgefed.simulator.executors import Executor, Sequential, WorkOrder
from edgefed.simulator.stacked_executor import StackedExecutor
from edgefed.wire.codecs import decode
from edgefed.wire.messages import BlobRef
from edgefed.wire.tensors import digest, pack
from edgefed.worker.outcomes import Outcome
from edgefed.worker.trainer_cache import TrainerCache
from edgefed.worker.worker import Worker, read_blob
from tests.plugin_package import importable, write_package
from tests.simulator import work

pytestmark = pytest.mark.forks

SHAPE = (1, 4, 4)
MODEL = {"name": "resnet20", "norm": "batch", "channels": [2, 3, 4], "inner": [2] * 9}

SOURCE = """
from edgefed.extension import Answer, FedAvg, Group, StatisticsJob
from tests.simulator.work import process_pool


class Remeasured(FedAvg):
    name = "remeasured"

    def prepare(self, task, device):
        return StatisticsJob(task.groups["weights"])

    def answer(self, task, device, result):
        return Answer(task.device, len(device.train), {"statistics": Group(result, "fp32")})
"""


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install an algorithm that only measures."""
    write_package(tmp_path, "remeasured", {"remeasured": "remeasured_package:Remeasured"})
    (tmp_path / "remeasured_package.py").write_text(SOURCE)
    with importable(tmp_path, monkeypatch):
        yield


def orders(count: int) -> tuple[list[WorkOrder], dict[str, bytes]]:
    weights = build(ModelSection.model_validate(MODEL), SHAPE, work.CLASSES, 3).weights()
    packed = pack(weights)
    ref = BlobRef(digest=digest(packed), size=len(packed))
    asked = []
    for order in work.orders(count)[0]:
        changes = {"algorithm": "remeasured", "model": MODEL, "shape": SHAPE}
        task = order.task.model_copy(update={**changes, "blobs": {"weights": ref}})
        asked.append(replace(order, task=task))
    return asked, {ref.digest: packed}


def test_every_executor_measures_the_bits_of_an_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "SHAPE", SHAPE)
    data = work.shards(3)
    asked, blobs = orders(3)
    executors: list[Executor] = [
        Sequential(data),
        StackedExecutor(data),
        work.process_pool(data, 2),
    ]
    found: list[dict[int, Outcome]] = []
    try:
        for each in executors:
            outcomes = each.outcomes(asked, blobs.__getitem__, work.never)
            found.append({order.device: outcome for order, outcome in outcomes})
    finally:
        for each in executors:
            each.close()
    (packed,) = blobs.values()
    answers = {}
    for order in asked:
        shard = data[order.device]
        agent = Worker(TrainerCache("cpu"), shard.train, shard.test)
        wanted = agent.work(order.task, lambda _: read_blob(packed), {})
        assert wanted.status == "ok", wanted.reason
        assert [each[order.device].blobs for each in found] == [wanted.blobs] * len(executors)
        statistics = decode(wanted.blobs["statistics"], None)
        assert len(statistics) == 2 * 19
        answers[order.task.device] = MeasuredStatistics(wanted.samples, statistics)
    model = build(ModelSection.model_validate(MODEL), SHAPE, work.CLASSES, 3)
    everything = np.concatenate([shard.train.inputs for shard in data])
    union = batch_statistics(Trainer(model, "cpu"), model.weights(), everything)
    for name, array in pooled_statistics(answers).items():
        if name.startswith("norm1."):
            np.testing.assert_allclose(array, union[name], rtol=1e-6, atol=1e-6)
