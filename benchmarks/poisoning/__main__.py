"""Model poisoning on digits: what 2 of 10 malicious devices do to each rule of ``[merging]``.

Ten virtual devices train a small network on scikit-learn's digits; devices 3 and 7 attack as in
``benchmarks.poisoning.attackers``. For each attack and each defence the table has the accuracy on
the coordinator's test samples after the last round, in percent, as mean and standard deviation over
the seeds; for backdoors also the share of test images of other labels that the pattern turns into
the attackers' label.

    python -m benchmarks.poisoning [--seeds 3] [--rounds 30] [--partition iid] [--work DIR]
        [--only DEFENCE …] [--json]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from benchmarks.poisoning.attackers import ATTACKS, TARGET, Attacking, with_pattern
from benchmarks.shared.harness import parser, show, table
from benchmarks.studies.trials import Tables, merged, read_tables
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.models.run_model import load_dataset
from edgefed.data.base.types import Shard
from edgefed.events.base.model import Event
from edgefed.files.samples import Samples
from edgefed.learn.base.types import Array, Tensors
from edgefed.process.clock import SystemClock
from edgefed.simulator.executors import Executor
from edgefed.simulator.run import Simulation
from edgefed.simulator.sweep.statistics import spread

MALICIOUS = frozenset({3, 7})
TABLES = read_tables(__file__)
DEFENCES: Mapping[str, Tables] = TABLES["defences"]


@dataclass(frozen=True)
class Case:
    """One run.

    Attributes:
        partition: how the samples are dealt out.
    """

    attack: str
    defence: str
    seed: int
    rounds: int
    partition: str

    def recipe(self) -> Recipe:
        """Return what is run."""
        own = {
            "seed": self.seed,
            "data": {"partition": self.partition},
            "rounds": {"count": self.rounds},
        }
        tables = merged(TABLES["recipe"], DEFENCES[self.defence], own)
        return Recipe.model_validate(tables)


@dataclass(frozen=True)
class Found:
    """What a run ended in.

    Attributes:
        accuracy: on the test samples; 0 for a run that failed.
        backdoor: share of test images of other labels that the pattern turns into the target.
        refused: replies of malicious devices that were refused.
        wronged: replies of honest devices that were refused.
        quarantined: names of devices.
    """

    accuracy: float
    backdoor: float
    refused: int
    wronged: int
    quarantined: tuple[str, ...]


def run(case: Case, folder: Path) -> Found:
    """Run a case and return what became of the model."""
    recipe = case.recipe()
    refused: list[str] = []

    def executor(shards: Sequence[Shard], *_: Any) -> tuple[Executor, str]:
        return Attacking(shards, MALICIOUS, case.attack), ""

    def hear(event: Event, _: int) -> None:
        if event.kind == "reply" and event.fields["outcome"] != "accepted":
            refused.append(event.fields["device"])

    simulation = Simulation(recipe, folder, SystemClock(), executors=executor)
    simulation.journal.listen(hear)
    result = simulation.run()
    if result.record.status != "finished":
        return Found(0.0, 0.0, 0, 0, ())
    weights = load_file(result.folder / "model.safetensors")
    test = load_dataset(recipe, folder).test
    bad = {f"device-{number:02d}" for number in MALICIOUS}
    views = simulation.journal.snapshot.devices
    return Found(
        accuracy=float((predicted(weights, test.inputs) == test.targets).mean()),
        backdoor=backdoor_rate(weights, test),
        refused=sum(device in bad for device in refused),
        wronged=sum(device not in bad for device in refused),
        quarantined=tuple(each.device for each in views if each.standing == "quarantined"),
    )


def predicted(weights: Tensors, images: Array) -> Array:
    """Return the labels that the network gives."""
    hidden = images.reshape(len(images), -1) @ weights["fc1.weight"].T + weights["fc1.bias"]
    outputs = np.maximum(hidden, 0) @ weights["out.weight"].T + weights["out.bias"]
    return np.asarray(outputs.argmax(axis=1))


def backdoor_rate(weights: Tensors, test: Samples) -> float:
    """Return the share of images of other labels that the pattern turns into the target."""
    others = test.inputs[test.targets != TARGET]
    return float((predicted(weights, with_pattern(others)) == TARGET).mean())


def cells(attack: str, found: Sequence[Found]) -> dict[str, Any]:
    """Return what the table shows of the runs of one attack against one defence, in percent."""
    accuracy = {"accuracy": spread([100 * each.accuracy for each in found])}
    if not attack.startswith("backdoor"):
        return accuracy
    return {**accuracy, "backdoor": 100 * statistics.mean(each.backdoor for each in found)}


def main() -> None:
    """Run all cases and print the table."""
    lists = {"only": DEFENCES, "attacks": ATTACKS}
    command = parser("poisoning", __doc__, seeds=3, rounds=30, partition="iid", **lists)
    command.add_argument("--work", type=Path)
    options = command.parse_args()
    found: dict[tuple[str, str], list[Found]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.work or Path(temporary)
        for attack, defence in product(options.attacks, options.only):
            cases = (
                Case(attack, defence, seed, options.rounds, options.partition)
                for seed in range(1, options.seeds + 1)
            )
            found[attack, defence] = [run(case, folder) for case in cases]
            print(f"{attack}, {defence}: done", file=sys.stderr)
    rows = [
        {"attack": attack, "defence": defence, "runs": runs}
        for (attack, defence), runs in found.items()
    ]
    lines = [
        {"defence": defence, "attack": attack, **cells(attack, found[attack, defence])}
        for defence in options.only
        for attack in options.attacks
    ]
    show(options, rows, table(lines), indent=1)


if __name__ == "__main__":
    main()
