"""An agent's memory is bounded: by a task's model, and by cached trainers."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefed.config.recipes.images_section import ImagesSection
from edgefed.config.recipes.recipe import ModelSection
from edgefed.files.samples import Samples
from edgefed.learn.modeling.model_building import build
from edgefed.learn.modeling.model_memory import COPIES
from edgefed.wire.tensors import pack
from edgefed.worker.trainer_cache import MAX_ALGORITHMS, TrainerCache
from edgefed.worker.worker import read_blob
from tests.memory_limit import bounded
from tests.run_fixture import CLASSES, SHAPE
from tests.worker.tasks import task, work, worker

HUGE = {"name": "mlp", "hidden": [65536, 65536]}

PREPARE = """
import json
from edgefed.learn.base.processors import set_threads
set_threads(1)
from edgefed.worker.trainer_cache import TrainerCache
from edgefed.worker.worker import Worker
from tests.worker.tasks import task, work, worker
work(task(), worker())  # whatever torch takes once
given = json.loads(sys.argv[1])
"""


def test_without_a_setting_half_of_what_is_free_is_the_limit() -> None:
    layers = {"name": "mlp", "hidden": [65536] * 64}  # ten tebibytes
    outcome = work(task(model=layers), worker(trainers=TrainerCache("cpu")))
    assert outcome.status == "refused"
    assert "are available here" in outcome.reason


MANY = """
def ask(count):
    whom = worker(trainers=TrainerCache("cpu", memory=120 * 2**20))
    refused = work(task(model=given), whom)
    print(refused.status, refused.reason)
    for number in range(count):
        model = {"name": "mlp", "hidden": [1500, 1500 + number]}
        outcome = work(task(model=model, question="evaluate"), whom)
        # The task's weights are another model's, which shows only once this one is built.
        assert "weights are not this model's" in outcome.reason, outcome
"""


def test_a_huge_model_is_not_built_and_forty_models_hold_no_more_than_allowed() -> None:
    ended = bounded(PREPARE + MANY, "ask(40)", json.dumps(HUGE), megabytes=256)
    assert ended.trouble == ""
    assert ended.said.startswith("refused Training the model mlp takes about 1")
    assert "120.0 MiB (125829120 bytes) are available here" in ended.said
    assert "try: choose a smaller model, or raise memory" in ended.said
    assert ended.said.endswith("\nok")


TWO = """
def build(hidden):
    model = {"name": "mlp", "hidden": [hidden, hidden]}
    trainers.trainer(model, (1,), 2)

trainers = TrainerCache("cpu", memory=20 * 10**8)
build(6500)  # 169 MB
"""


def test_room_is_made_before_the_next_model_is_built() -> None:
    # The process has the first one already; beside it a second one would not fit.
    ended = bounded(PREPARE + TWO, "build(6600)", "0", megabytes=100)
    assert (ended.said, ended.trouble) == ("ok", "")


def model(hidden: int) -> dict[str, Any]:
    return {"name": "mlp", "hidden": [hidden]}


def weight_bytes(hidden: int) -> int:
    return 4 * (int(np.prod(SHAPE)) * hidden + hidden + hidden * CLASSES + CLASSES)


def test_the_least_recently_used_goes_first() -> None:
    one = weight_bytes(100)
    trainers = TrainerCache("cpu", memory=COPIES * one + 2 * one)
    first, second = (trainers.trainer(model(100), SHAPE, CLASSES + n) for n in (0, -1))
    assert trainers.trainer(model(100), SHAPE, CLASSES) is first
    trainers.trainer(model(99), SHAPE, CLASSES)
    trainers.trainer(model(98), SHAPE, CLASSES)
    assert trainers.trainer(model(100), SHAPE, CLASSES) is first
    assert trainers.trainer(model(100), SHAPE, CLASSES - 1) is not second


def test_a_model_used_again_makes_room_for_its_training() -> None:
    large, small = weight_bytes(100), weight_bytes(10)
    trainers = TrainerCache("cpu", memory=COPIES * large)
    first = trainers.trainer(model(10), SHAPE, CLASSES)
    great = trainers.trainer(model(100), SHAPE, CLASSES)
    assert trainers.trainer(model(100), SHAPE, CLASSES) is great
    assert trainers.trainer(model(10), SHAPE, CLASSES) is not first
    assert COPIES * small + large < COPIES * large
    assert trainers.trainer(model(100), SHAPE, CLASSES) is great


def test_copies_of_samples_count() -> None:
    one = weight_bytes(100)
    frozen = np.zeros((50_000, *SHAPE), np.float32)
    frozen.flags.writeable = False  # so that the trainer keeps a copy
    given = Samples(frozen, np.zeros(50_000, np.int64))
    trainers = TrainerCache("cpu", memory=COPIES * one + 3 * one)
    first = trainers.trainer(model(100), SHAPE, CLASSES)
    weights = first.model.weights()
    second = trainers.trainer(model(99), SHAPE, CLASSES)
    assert trainers.trainer(model(100), SHAPE, CLASSES) is first
    first.evaluate(weights, given)
    assert trainers.trainer(model(99), SHAPE, CLASSES) is second
    assert trainers.trainer(model(100), SHAPE, CLASSES) is not first


def test_algorithms_that_stay_warm_are_few() -> None:
    trainers = TrainerCache("cpu")
    first = trainers.algorithm(task(training={"learning_rate": 1.0}))
    for number in range(MAX_ALGORITHMS - 1):
        trainers.algorithm(task(training={"learning_rate": 0.5 + number / 100}))
    assert trainers.algorithm(task(training={"learning_rate": 1.0})) is first
    trainers.algorithm(task(training={"learning_rate": 0.01}))
    assert trainers.algorithm(task(training={"learning_rate": 1.0})) is first
    for number in range(MAX_ALGORITHMS):
        trainers.algorithm(task(training={"learning_rate": 0.02 + number / 1000}))
    assert trainers.algorithm(task(training={"learning_rate": 1.0})) is not first


def test_an_algorithm_is_another_one_where_images_are_augmented() -> None:
    trainers = TrainerCache("cpu")
    images = ImagesSection(flip=True)
    plain, flipped = task(), task(images=images.model_dump(mode="json"))
    assert trainers.algorithm(plain).images == ImagesSection()
    assert trainers.algorithm(flipped).images == images
    assert trainers.algorithm(plain) is not trainers.algorithm(flipped)


PEAK = """
import json, resource, sys, tempfile
from pathlib import Path
from edgefed.learn.base.processors import set_threads
from edgefed.wire.messages import BlobRef
from edgefed.wire.tensors import digest
from edgefed.worker.trainer_cache import TrainerCache
from edgefed.worker.worker import Worker, read_blob
from tests.worker.tasks import task, work, worker
from tests.run_fixture import samples

def peak():
    # Not getrusage, whose peak a process inherits from the one that started it.
    (line,) = (each for each in open("/proc/self/status") if each.startswith("VmHWM"))
    return int(line.split()[1]) * 1024

set_threads(1)
model = json.loads(sys.argv[2])
work(task(), worker())
device = Worker(TrainerCache("cpu"), samples(9, 1), samples(5, 2))
file = Path(sys.argv[1])
with file.open("rb") as opened:
    name, size = digest(opened.read()), file.stat().st_size
before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
given = task(
    model=model, algorithm="fedprox", codec="int8", error_feedback=True,
    training={"batch_size": 4, "learning_rate": 0.01, "optimizer": "adam"},
    blobs={"weights": BlobRef(digest=name, size=size)},
)
outcome = device.work(given, lambda role: read_blob(file.read_bytes()), {})
assert outcome.status == "ok", outcome.reason
print((peak() - before) / size)
"""


LARGE = {"name": "mlp", "hidden": [3072, 3072]}


@pytest.mark.slow
def test_what_is_counted_is_what_a_task_takes(tmp_path: Path) -> None:
    """The weights are of another process than the measured one."""
    file = tmp_path / "weights"
    built = build(ModelSection.model_validate(LARGE), SHAPE, CLASSES, 3)
    file.write_bytes(pack(built.weights()))
    words = (PEAK, str(file), json.dumps(LARGE))
    ended = subprocess.run(
        [sys.executable, "-c", *words], capture_output=True, text=True, check=True
    )
    assert COPIES / 2 < float(ended.stdout) <= COPIES


@pytest.mark.parametrize(("code", "most"), [("fp32", 2.6), ("int8", 3.2)])
def test_an_answer_is_encoded_without_the_weights_that_it_is_the_difference_of(
    code: str, most: float
) -> None:
    # Weights and delta; then the delta and its code, with int8 the errors of both rounds too.
    sizes = {"name": "mlp", "hidden": [700, 700, 700]}
    section = ModelSection.model_validate(sizes)
    packed = pack(build(section, SHAPE, CLASSES, 3).weights())
    asked, device = task(model=sizes, codec=code, error_feedback=True), worker()
    private = device.work(asked, lambda role: read_blob(packed), {}).private
    tracemalloc.start()
    try:
        outcome = device.work(asked, lambda role: read_blob(packed), private)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert outcome.status == "ok", outcome.reason
    assert peak < most * len(packed)
