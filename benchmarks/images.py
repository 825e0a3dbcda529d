"""A folder of 224x224 JPEG images as normalised batches, beside torchvision's loader; and memory.

torchvision's ``ImageFolder`` with ``DataLoader`` (two workers) decodes every image in every epoch.
EdgeFed decodes a folder once (cold: with the first epoch), and reads uint8 pixels from then on
(warm). Both deliver shuffled float32 batches, normalised by ImageNet's mean and deviation, plain or
after a random crop (16 pixels of padding) and flip. The memory is the peak of a process that trains
mobilenet_v3_small in batches of 16, above what it takes once torch and torchvision are imported.

    python -m benchmarks.images [--images 20000] [--steps 60] [--json]
"""

from __future__ import annotations

import json
import tempfile
import time
from argparse import SUPPRESS
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.shared.harness import parser, printed_by, show

SIDE, CLASSES, BATCH, PADDING = 224, 10, 32, 16
TRAIN_BATCH = 16
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def make_folder(folder: Path, images: int) -> None:
    """Write JPEG images, smooth noise of 20 to 30 kB each, into a folder for each class."""
    for label in range(CLASSES):
        (folder / f"class{label}").mkdir(parents=True)
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(partial(_write, folder), range(images), chunksize=100))


def _write(folder: Path, number: int) -> None:
    import numpy as np
    from PIL import Image

    coarse = np.random.default_rng(number).integers(0, 256, (28, 28, 3), dtype=np.uint8)
    image = Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    image.save(folder / f"class{number % CLASSES}" / f"{number}.jpg", quality=85)


def torchvision_rate(folder: Path, *, augmented: bool) -> float:
    """Return the images that torchvision delivers a second, over an epoch."""
    from torch.utils.data import DataLoader
    from torchvision import datasets, transforms

    crop = [transforms.RandomCrop(SIDE, padding=PADDING), transforms.RandomHorizontalFlip()]
    steps = [*(crop if augmented else []), transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    images = datasets.ImageFolder(str(folder), transforms.Compose(steps))
    return _rate(lambda: (x for x, _ in DataLoader(images, BATCH, shuffle=True, num_workers=2)))


class Ours:
    """A device's loading and delivery of a folder.

    Args:
        folder: of the images.
        state: the device's state folder.
        batch: samples in a batch.
    """

    def __init__(self, folder: Path, state: Path, batch: int = BATCH) -> None:
        from edgefed.data.base.preparation import normalized
        from edgefed.data.base.types import Preparation
        from edgefed.data.devices.sources import load_device
        from edgefed.learn.training.trainer import Trainer

        found = load_device(f"folder:{folder}", 0.0, state)
        self.samples = normalized(found.train, Preparation(MEAN, STD))
        self.trainer = Trainer(_network(), "cpu")
        self._batch = batch

    def job(self, *, augmented: bool = False, steps: int = 0) -> Any:
        """Return a training job of an epoch, or of so many steps."""
        from edgefed.learn.base.augment import Augment
        from edgefed.learn.base.types import Job, Schedule
        from edgefed.learn.objectives.cross_entropy import CrossEntropy

        schedule = Schedule(batch_size=self._batch, learning_rate=0.01, max_steps=steps)
        weights = self.trainer.model.weights()
        augment = Augment(PADDING, "zeros", True) if augmented else None
        return Job(weights, CrossEntropy(), schedule, 1, augment=augment)

    def rate(self, *, augmented: bool) -> float:
        """Return the images that a job's training gets a second, over an epoch."""
        return _rate(lambda: self._epoch(augmented=augmented))

    def _epoch(self, *, augmented: bool) -> Iterable[Any]:
        import torch

        from edgefed.learn.samples.job_batches import JobBatches
        from edgefed.learn.samples.sample_cache import SampleCache
        from edgefed.learn.samples.sample_order import permutations

        job = self.job(augmented=augmented)
        data = SampleCache(self.trainer.model, torch.device("cpu")).get(self.samples)
        batches = JobBatches(job, data)
        (order,) = permutations(len(self.samples), job.schedule, job.seed)
        return (batches.get(index, 0).inputs for index in torch.split(order, self._batch))


def _network() -> Any:
    from edgefed.config.recipes.recipe import ModelSection
    from edgefed.learn.modeling.model_building import build

    section = ModelSection(name="torchvision:mobilenet_v3_small")
    return build(section, (3, SIDE, SIDE), CLASSES, 0)


def _rate(epoch: Callable[[], Iterable[Any]]) -> float:
    """Return the images a second of an epoch's batches."""
    begun = time.perf_counter()
    images = sum(len(batch) for batch in epoch())
    return images / (time.perf_counter() - begun)


def training(folder: Path, state: Path, steps: int) -> dict[str, float]:
    """Return peak memory above the imports, and end-to-end rate, of training in this process."""
    import torch
    import torchvision

    assert torch and torchvision
    from edgefed.learn.base.processors import set_threads

    set_threads(1)  # as an agent has by default
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = _status("VmRSS")
    ours = Ours(folder, state, TRAIN_BATCH)
    begun = time.perf_counter()
    ours.trainer.train(ours.job(steps=steps), ours.samples)
    seconds = time.perf_counter() - begun
    trained = min(steps * TRAIN_BATCH, len(ours.samples))
    return {"rss_mb": (_status("VmHWM") - before) / 1e6, "train_rate": trained / seconds}


def _status(key: str) -> int:
    """Return a size in bytes of what Linux says of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:")) * 1024


def measured(images: int, steps: int) -> dict[str, float]:
    """Return all figures."""
    from edgefed.learn.base.processors import set_threads

    set_threads(1)  # as an agent has by default
    with tempfile.TemporaryDirectory() as name:
        folder, state = Path(name) / "images", Path(name) / "state"
        make_folder(folder, images)
        plain, moved = (torchvision_rate(folder, augmented=each) for each in (False, True))
        begun = time.perf_counter()
        ours = Ours(folder, state)
        ours.rate(augmented=False)
        cold = images / (time.perf_counter() - begun)
        warm, augmented = (ours.rate(augmented=each) for each in (False, True))
        words = ("--train", str(folder), str(state), "--steps", str(steps))
        trained = json.loads(printed_by("images", *words))
    return {
        "torchvision": plain,
        "torchvision_augmented": moved,
        "cold": cold,
        "warm": warm,
        "augmented": augmented,
        "cold_ratio": cold / plain,
        "warm_ratio": warm / plain,
        "augmented_ratio": augmented / moved,
        **trained,
    }


def main() -> None:
    """Measure, and print a table or JSON."""
    command = parser("images", __doc__, images=20_000)
    command.add_argument("--steps", type=int, default=60, help="training steps of the memory's run")
    command.add_argument("--train", nargs=2, type=Path, help=SUPPRESS)
    options = command.parse_args()
    if options.train:
        folder, state = options.train
        print(json.dumps(training(folder, state, options.steps)))
        return
    found = measured(options.images, options.steps)
    show(options, found)


if __name__ == "__main__":
    main()
