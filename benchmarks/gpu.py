"""Training many devices at once on a GPU, against one after another: client updates per second.

Complete rounds of the real engine: planning, encoding, training, merging, storing. The workloads:
LeNet-5 on 28x28 inputs with 62 classes, 100 clients of 230 samples, 10 per round, batches of 20 (as
in docs/performance.md, which compares simulators); VGG-9 with dropout as in FedMix; ResNet-18 with
batch normalisation. Inputs are noise; fp32 in both directions, one local epoch, no evaluation. Each
measurement has its own process, so that its memory is measured separately and a small board never
runs two at once.

    python -m benchmarks.gpu [--models lenet5 …] [--rounds 20] [--chunk 32] [--json]
    python -m benchmarks.gpu --cpu [--small]

pfl (Apple, pip install pfl) does the same work beside, if it is installed; ``--no-pfl`` leaves it
out. ``--cpu`` measures on the CPU. Transfers between host and GPU are counted for each round.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import SUPPRESS, Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.shared.harness import parser, printed_by, show, told
from edgefed.config.recipes.recipe import ModelSection, Recipe, SimulationSection
from edgefed.data.base.types import Shard
from edgefed.errors import EdgeFedError
from edgefed.events.base.model import Event
from edgefed.learn.base.processors import pick_device, repeatable, set_threads
from edgefed.learn.base.transfers import COUNTS, TransferCounts
from edgefed.learn.base.types import Array
from edgefed.learn.modeling.model_building import build
from edgefed.process.clock import SystemClock
from edgefed.simulator.executors import Executor, Sequential
from edgefed.simulator.run import Simulation
from edgefed.simulator.stacked_executor import StackedExecutor
from edgefed.worker.trainer_cache import TrainerCache

WAYS = ("sequential", "stacked")
WARM = 2
"""Rounds at the beginning that are not counted."""


@dataclass(frozen=True)
class Work:
    """What is trained in a round.

    Attributes:
        model: the recipe's table.
        clients, samples: devices, and samples of each.
        cohort: devices in a round.
        max_steps: SGD steps of a device in a round; 0 for one epoch.
    """

    model: dict[str, Any]
    shape: tuple[int, ...]
    classes: int
    clients: int
    samples: int
    batch: int
    cohort: int = 10
    max_steps: int = 0


WORKS = {
    "lenet5": Work({"name": "lenet5"}, (1, 28, 28), 62, 100, 230, 20),
    "vgg9": Work({"name": "vgg9", "dropout_layout": "fedmix"}, (3, 32, 32), 10, 40, 100, 10),
    "resnet18": Work({"name": "resnet18", "norm": "batch"}, (3, 32, 32), 10, 40, 100, 20),
}


@dataclass(frozen=True)
class Measurement:
    """One way of doing one work; what ``--json`` prints a row of.

    Attributes:
        round_s: median seconds of a round.
        gpu_mb: most memory that torch reserved on the GPU; 0 on a CPU.
        resident_mb: most resident memory of the process.
        ratio: client-updates/s over those of ``sequential``.
        over_pfl: client-updates/s over those of pfl; 0 where it was not measured.
        transfers, transfer_mb: between host and GPU in a counted round, in both directions; those
            of pfl are not counted.
        failed: why there are no figures.
    """

    model: str
    way: str
    round_s: float = 0.0
    updates_per_s: float = 0.0
    gpu_mb: float = 0.0
    resident_mb: float = 0.0
    ratio: float = 0.0
    over_pfl: float = 0.0
    transfers: float = 0.0
    transfer_mb: float = 0.0
    failed: str = ""


def work_of(name: str, small: bool) -> Work:
    """Return a work, or what is left of it when only the way through shall be tried."""
    work = WORKS[name]
    if not small:
        return work
    return replace(work, clients=3, samples=8, cohort=2, batch=4, max_steps=2)


def noise(work: Work) -> tuple[Array, Array]:
    """Return inputs (clients, samples, …) float32 and labels (clients, samples)."""
    rng = np.random.default_rng(1)
    size = (work.clients, work.samples)
    inputs = rng.standard_normal((*size, *work.shape), dtype=np.float32)
    return inputs, rng.integers(0, work.classes, size)


# -- one measurement, in a process of its own -----------------------------------------------------


def measure_ours(
    work: Work, way: str, device: str, rounds: int, chunk: int
) -> tuple[list[float], float, float]:
    """Return the seconds of each counted round of EdgeFed, and its transfers and their bytes."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        inputs, labels = noise(work)
        flat = inputs.reshape(-1, *work.shape)
        # With no test set, the last round would ask the devices for a test.
        np.savez(
            folder / "data.npz",
            x_train=flat,
            y_train=labels.ravel(),
            x_test=flat[:2],
            y_test=labels.ravel()[:2],
            classes=work.classes,
        )
        recipe = _recipe(work, folder / "data.npz", rounds + WARM + 1)

        def make(
            shards: Sequence[Shard], settings: SimulationSection, tell: Callable[[str], None]
        ) -> tuple[Executor, str]:
            trainers = TrainerCache(device)
            if way == "stacked":
                return StackedExecutor(shards, chunk, tell, trainers), ""
            return Sequential(shards, trainers), ""

        simulation = Simulation(recipe, folder / "state", SystemClock(), executors=make)
        begun: list[float] = []
        moved: list[TransferCounts] = []

        def hear(event: Event, _: int) -> None:
            if event.kind == "round":
                begun.append(time.perf_counter())
                moved.append(COUNTS.copy())

        simulation.journal.listen(hear)
        record = simulation.run().record
    if record.status != "finished":
        raise EdgeFedError(record.reason)
    pairs = list(zip(begun[WARM:], begun[WARM + 1 :], strict=False))
    made = moved[-1].since(moved[WARM])
    calls, size = (sum(counts.values()) / len(pairs) for counts in (made.calls, made.bytes))
    return [after - before for before, after in pairs], calls, size


def _recipe(work: Work, data: Path, rounds: int) -> Recipe:
    return Recipe.model_validate(
        {
            "model": work.model,
            "data": {"name": "npz", "path": str(data), "partition": "iid"},
            "training": {
                "batch_size": work.batch,
                "learning_rate": 0.05 if work.model["name"] == "lenet5" else 0.01,
                "max_steps": work.max_steps,
            },
            "rounds": {"count": rounds, "cohort": work.cohort},
            "wire": {"downlink": "fp32", "uplink": "fp32"},
            "evaluation": {"every": 0},
            "simulation": {"devices": work.clients},
        }
    )


def measure_pfl(work: Work, device: str, rounds: int) -> list[float]:
    """Return the seconds of each counted round of pfl, which picks the GPU itself.

    It differs in two things that it does not let go of: batches are cut once and not shuffled
    anew, and users are drawn with replacement.
    """
    load = importlib.import_module
    if torch.device(device).type == "cpu" and torch.cuda.is_available():
        raise EdgeFedError("pfl takes the GPU wherever there is one")
    base, averaging = load("pfl.algorithm.base"), load("pfl.algorithm.federated_averaging")
    callbacks, metrics = load("pfl.callback.base"), load("pfl.metrics").Metrics
    samplers, datasets = load("pfl.data.sampling"), load("pfl.data.federated_dataset")
    hyper, wrapper = load("pfl.hyperparam"), load("pfl.model.pytorch")
    begun: list[float] = []

    class Laps(callbacks.TrainingProcessCallback):  # type: ignore[name-defined, misc]
        """Takes the time after every round."""

        def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Any]:
            begun.append(time.perf_counter())
            return False, metrics()

    inputs, labels = (torch.from_numpy(array).to(device) for array in noise(work))
    steps = work.max_steps * work.batch or work.samples
    users = {k: [inputs[k][:steps], labels[k][:steps]] for k in range(work.clients)}
    sampler = samplers.get_user_sampler("random", list(users))
    dataset = datasets.FederatedDataset.from_slices(users, sampler)
    module = _pfl_module(work).to(device)
    central = torch.optim.SGD(module.parameters(), 1.0)
    model = wrapper.PyTorchModel(module, torch.optim.SGD, central)
    weighting = load("pfl.aggregate.weighting").WeightByDatapoints()
    simulated = load("pfl.aggregate.simulate").SimulatedBackend
    averaging.FederatedAveraging().run(
        algorithm_params=base.NNAlgorithmParams(
            central_num_iterations=rounds + WARM,
            evaluation_frequency=10**9,
            train_cohort_size=work.cohort,
            val_cohort_size=None,
        ),
        backend=simulated(dataset, dataset, postprocessors=[weighting]),
        model=model,
        model_train_params=hyper.NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=0.01, local_batch_size=work.batch
        ),
        callbacks=[Laps()],
        send_metrics_to_platform=False,
    )
    return [after - before for before, after in zip(begun[WARM - 1 :], begun[WARM:], strict=False)]


def _pfl_module(work: Work) -> torch.nn.Module:
    """Return our network with the two methods that pfl calls."""
    section = ModelSection.model_validate(work.model)
    net = build(section, work.shape, work.classes, 1).module

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def loss(self, inputs: Any, labels: Any, eval: bool = False) -> torch.Tensor:  # noqa: A002
            del eval
            return torch.nn.functional.cross_entropy(self.net(inputs), labels)

        def metrics(self, *_: Any, **__: Any) -> dict[str, float]:
            return {}

    return Net()


def measured(options: Namespace, name: str, way: str) -> Measurement:
    """Do one work in this process."""
    set_threads(1)
    work, device = work_of(name, options.small), pick_device(options.device)
    calls, moved = 0.0, 0.0
    with repeatable(device):
        if way == "pfl":
            seconds = measure_pfl(work, str(device), options.rounds)
        else:
            seconds, calls, moved = measure_ours(
                work, way, str(device), options.rounds, options.chunk
            )
    gpu = torch.cuda.max_memory_reserved(device) if device.type == "cuda" else 0
    middle = statistics.median(seconds)
    return Measurement(
        name,
        way,
        middle,
        work.cohort / middle,
        gpu / 1e6,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        transfers=calls,
        transfer_mb=moved / 1e6,
    )


# -- all of them ----------------------------------------------------------------------------------


def apart(options: Sequence[str], name: str, way: str) -> Measurement:
    """Measure in another process; what goes wrong there is a row too."""
    try:
        printed = printed_by("gpu", *options, "--one", name, way)
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or [f"exit code {error.returncode}"])[-1]
        return Measurement(name, way, failed=last[:200])
    return Measurement(**json.loads(printed.splitlines()[-1]))


def with_ratio(row: Measurement, rows: Sequence[Measurement]) -> Measurement:
    """Return a row with its client-updates/s over those of the same model's other ways."""
    rates = {other.way: other.updates_per_s for other in rows if other.model == row.model}
    plain, pfl = rates.get("sequential", 0.0), rates.get("pfl", 0.0)
    return replace(
        row,
        ratio=row.updates_per_s / plain if plain else row.ratio,
        over_pfl=row.updates_per_s / pfl if pfl else 0.0,
    )


def main() -> None:
    """Measure and print."""
    command = parser("gpu", __doc__, device="cuda", models=WORKS, rounds=20, chunk=32)
    command.add_argument("--small", action="store_true", help="tiny works, to try the way through")
    command.add_argument("--no-pfl", dest="pfl", action="store_false", help="leave pfl out")
    command.add_argument(
        "--cpu", dest="device", action="store_const", const="cpu", help="the same as --device cpu"
    )
    command.add_argument("--one", nargs=2, metavar=("MODEL", "WAY"), help=SUPPRESS)
    options = command.parse_args()
    try:
        device = pick_device(options.device)
        if options.one:
            print(json.dumps(asdict(measured(options, *options.one))))
            return
    except EdgeFedError as error:
        print(f"{error.message} Without a GPU: --cpu --small", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    ways = list(WAYS)
    if options.pfl and importlib.util.find_spec("pfl") is None:
        print("pfl is not installed and left out: pip install pfl", file=sys.stderr)
    elif options.pfl:
        ways.append("pfl")
    words = [f"--device={device}", f"--rounds={options.rounds}", f"--chunk={options.chunk}"]
    words += ["--small"] * options.small
    rows = [apart(words, name, way) for name in options.models for way in ways]
    rows = [with_ratio(row, rows) for row in rows]
    title = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    found = {"device": title, "rows": [asdict(row) for row in rows]}
    show(options, found, told({"torch": torch.__version__, **found}))
    if any(row.failed for row in rows):
        raise SystemExit(7)


if __name__ == "__main__":
    main()
