"""Final digests of two-round runs: every algorithm, wrapper, codec, merge and way of sharing.

A change that should not alter results is checked by two calls: ``--write FILE`` before it and
``--compare FILE`` after it, on the same machine, because floating-point results depend on the
processor and on torch. ``benchmarks/final_digests.json`` is such a file. Privacy noise, which
comes from the operating system otherwise, derives from the run's seed here. A run's accuracy and
loss stand beside its digest, because fine-tuning and personal weights change only these.

    python -m benchmarks.final_digests [--write FILE | --compare FILE] [--only NAME]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from edgefed.algorithms.composed.registry import built_in
from edgefed.config.fleet.settings import default_state_folder
from edgefed.config.recipes.recipe import Recipe, SimulationSection
from edgefed.data.base.types import Shard
from edgefed.errors import EdgeFedError
from edgefed.process.clock import SystemClock
from edgefed.seeds import derive
from edgefed.sharing.random_words import RandomWords, generator_words
from edgefed.simulator.executors import Executor, Sequential
from edgefed.simulator.run import Simulation
from edgefed.simulator.stacked_executor import StackedExecutor
from edgefed.wire.messages import Task

BASE: Mapping[str, Any] = {
    "rounds": {"count": 2},
    "simulation": {"devices": 8, "workers": 1, "engine": "sequential"},
}

ALGORITHM_CASES: Mapping[str, Mapping[str, Any]] = {
    "pfnm": {"model": {"name": "mlp", "hidden": [24]}},
    "fedma": {"model": {"name": "mlp", "hidden": [24, 16]}},
    "fedmoe": {"algorithm": {"experts": 2}},
}

MIXES: Mapping[str, Any] = {"count": 8, "mix_share": 0.5, "noise": "white"}
STACKED: Mapping[str, Any] = {**BASE["simulation"], "engine": "stacked", "chunk": 3}
PRIVATE: Mapping[str, Any] = {"noise_multiplier": 0.5, "clip": 0.5}

SETTING_CASES: Mapping[str, Mapping[str, Any]] = {
    "server-momentum": {"algorithm": {"name": "fedavg", "server": "momentum"}},
    "server-yogi": {"algorithm": {"name": "fedopt", "server": "yogi"}},
    "server-adagrad": {"algorithm": {"name": "fedopt", "server": "adagrad"}},
    "uniform-weighting": {"algorithm": {"name": "fedavg", "weighting": "uniform"}},
    "fedlc-margin": {"algorithm": {"name": "fedlc", "absent": "margin", "exclude_true": True}},
    "fedrs-proportional": {"algorithm": {"name": "fedrs", "mode": "proportional"}},
    "ensemble-independent": {"algorithm": {"name": "ensemble", "initial": "independent"}},
    "fedmix-bf16": {"algorithm": {"name": "fedmix", "packing": "bf16", "group_size": 8}},
    "fedmix-fp32": {"algorithm": {"name": "fedmix", "packing": "fp32", "merge_entries": 2}},
    "fedmix-split": {"algorithm": {"name": "fedmix", "split": 1}},
    "fedmix-noise": {"algorithm": {"name": "fedmix", "noise": 0.1}},
    "fedmix-same-class": {"algorithm": {"name": "fedmix", "same_class": True, "exclude_own": True}},
    "fedmix-own-entries": {"algorithm": {"name": "fedmix", "entries": "own"}},
    "fedmix-random-entries": {"algorithm": {"name": "fedmix", "entries": "random"}},
    "some-share-means": {
        "algorithm": {"name": "fedmix"},
        "simulation": {**BASE["simulation"], "sharing": 0.5},
    },
    "moe-updates": {"algorithm": {"name": "fedmoe", "experts": 2, "start": "updates"}},
    "moe-gates": {
        "algorithm": {"name": "fedmoe", "experts": 2, "gates": "averaged", "collect_gates": True}
    },
    "moe-densities": {
        "algorithm": {"name": "fedmoe", "experts": 2, "collect_densities": True},
        "evaluation": {"on": "both"},
    },
    "moe-pruned": {
        "algorithm": {"name": "fedmoe", "experts": 3, "prune": 0.2, "reseed_dead": 1},
    },
    "pfnm-map": {
        "model": {"name": "mlp", "hidden": [24]},
        "algorithm": {"name": "pfnm", "average": "map", "initial": "independent"},
    },
    "fedma-cnn": {"model": {"name": "cnn"}, "algorithm": {"name": "fedma"}},
    "fedma-fp32": {
        "model": {"name": "mlp", "hidden": [24, 16]},
        "algorithm": {"name": "fedma", "layer_codec": "fp32", "last_layer": "uniform"},
    },
}
"""Other settings of algorithms, which take other ways through them."""

CASES: Mapping[str, Mapping[str, Any]] = {
    **SETTING_CASES,
    "codec-fp32": {"wire": {"downlink": "fp32", "uplink": "fp32"}},
    "codec-int8": {"wire": {"downlink": "int8", "uplink": "int8"}},
    "codec-without-feedback": {"wire": {"uplink": "int8", "error_feedback": False}},
    "labels": {"labels": {"count": 8, "mix_share": 0.0, "noise": "spectrum"}},
    "labels-oriented": {"labels": {"count": 4, "mix_share": 0.0, "noise": "oriented"}},
    "labels-fedlc": {
        "labels": {"count": 8, "mix_share": 0.0, "noise": "white"},
        "algorithm": {"name": "fedlc"},
    },
    "labels-fedmix": {
        "labels": {"count": 8, "mix_share": 0.0, "noise": "white"},
        "algorithm": {"name": "fedmix"},
    },
    "labels-mixes": {"labels": MIXES},
    "labels-mixes-only": {"labels": {**MIXES, "mix_share": 1.0, "noise": "none"}},
    "labels-mixes-other": {"labels": {**MIXES, "others": "other_classes", "width": 2}},
    "labels-mixes-global": {"labels": {**MIXES, "others": "global"}},
    "labels-mixes-counted": {
        "labels": {**MIXES, "fewer_than": 4, "count_supplements": True},
        "algorithm": {"name": "fedlc"},
    },
    "labels-mixes-ifca": {"labels": MIXES, "algorithm": {"name": "ifca"}},
    "labels-mixes-personal": {"labels": MIXES, "personal": {"preset": "fedper"}},
    "labels-mixes-secure": {
        "labels": MIXES,
        "secure_aggregation": {"enabled": True},
        "wire": {"uplink": "fp32"},
    },
    "personal-fedper": {"personal": {"preset": "fedper", "fine_tune_epochs": 1}},
    "personal-lg": {"personal": {"preset": "lg"}},
    "personal-biased": {"personal": {"preset": "biased"}, "evaluation": {"on": "devices"}},
    "personal-fedmix": {"personal": {"preset": "fedper"}, "algorithm": {"name": "fedmix"}},
    "personal-secure": {
        "personal": {"preset": "fedper"},
        "secure_aggregation": {"enabled": True},
        "wire": {"uplink": "fp32"},
    },
    "privacy-central": {"privacy": {**PRIVATE, "mechanism": "central"}},
    "privacy-central-adaptive": {
        "privacy": {**PRIVATE, "mechanism": "central", "adaptive": True, "population": 8},
        "rounds": {"count": 2, "cohort": 4},
    },
    "privacy-central-fedopt": {
        "privacy": {**PRIVATE, "mechanism": "central"},
        "algorithm": {"name": "fedopt"},
    },
    "privacy-local": {"privacy": {**PRIVATE, "mechanism": "local"}},
    "privacy-local-personal": {
        "privacy": {**PRIVATE, "mechanism": "local"},
        "personal": {"preset": "fedper"},
    },
    "secure": {"secure_aggregation": {"enabled": True}, "wire": {"uplink": "fp32"}},
    "secure-16-bits": {
        "secure_aggregation": {"enabled": True, "grid_bits": 16},
        "wire": {"uplink": "fp32"},
    },
    "secure-fedprox": {
        "secure_aggregation": {"enabled": True},
        "algorithm": {"name": "fedprox", "mu": 0.1},
        "wire": {"uplink": "fp32"},
    },
    "secure-fedopt": {
        "secure_aggregation": {"enabled": True},
        "algorithm": {"name": "fedopt"},
        "wire": {"uplink": "fp32"},
    },
    "cohort": {"rounds": {"count": 2, "cohort": 2}},
    "checks": {"checks": {"norm_factor": 3.0, "samples_factor": 5.0}},
    "stacked": {"simulation": STACKED},
    "stacked-fedmix": {"simulation": STACKED, "algorithm": {"name": "fedmix"}},
    "stacked-fedmoe": {"simulation": STACKED, "algorithm": {"name": "fedmoe", "experts": 2}},
    "stacked-labels": {"simulation": STACKED, "labels": MIXES},
    "stacked-private": {"simulation": STACKED, "privacy": {**PRIVATE, "mechanism": "local"}},
    "tests-on-devices": {"evaluation": {"on": "both"}},
    "momentum-augmented": {"training": {"momentum": 0.9, "crop": 1, "flip": True}},
    "adamw-cosine": {"training": {"optimizer": "adamw", "schedule": "cosine"}},
    "dropout": {"model": {"name": "mlp", "dropout": 0.2}},
    "batch-norm": {"model": {"name": "resnet20"}, "training": {"max_steps": 2}},
    "batch-norm-fedbn": {
        "model": {"name": "resnet20"},
        "training": {"max_steps": 2},
        "personal": {"preset": "fedbn"},
    },
    **{
        f"merging-{rule}": {"merging": {"rule": rule, "malicious": 0}}
        for rule in ("median", "trimmed_mean", "krum", "multi_krum", "geometric_median")
    },
    "merging-norm_clipping": {"merging": {"rule": "norm_clipping"}},
    "merging-fixed-clip": {"merging": {"rule": "norm_clipping", "clip_norm": 0.1}},
    "merging-median-private": {
        "merging": {"rule": "median"},
        "privacy": {**PRIVATE, "mechanism": "local"},
    },
}


def cases() -> dict[str, dict[str, Any]]:
    """Return each run's recipe by its name: all algorithms, then the other parts."""
    algorithms: dict[str, Mapping[str, Any]] = {}
    for name in sorted(built_in()):
        extra = ALGORITHM_CASES.get(name, {})
        algorithms[name] = {**extra, "algorithm": {**extra.get("algorithm", {}), "name": name}}
    return {name: {**BASE, **tables} for name, tables in {**algorithms, **CASES}.items()}


def of_task(task: Task) -> np.random.Generator:
    """Return the generator of a device's privacy noise, derived from the task."""
    return np.random.default_rng([task.index, task.seed])


def of_round(number: int, purpose: str) -> RandomWords:
    """Return the random words of a round's privacy noise, derived from its number."""
    return generator_words(np.random.default_rng(derive(9, purpose, number)))


def seeded(
    shards: Sequence[Shard], section: SimulationSection, tell: object
) -> tuple[Executor, str]:
    """Return the executor of a recipe, with seeded privacy noise."""
    if section.engine == "stacked":
        return StackedExecutor(shards, section.chunk, private_randomness=of_task), ""
    return Sequential(shards, private_randomness=of_task), ""


def digest_of(recipe: Mapping[str, Any]) -> str:
    """Return a run's digest of final weights, accuracy and loss, or the code of its error."""
    try:
        with TemporaryDirectory() as folder:
            run = Simulation(
                Recipe.model_validate(recipe),
                Path(folder),
                SystemClock(),
                default_state_folder() / "data",
                executors=seeded,
                randomness=of_round,
            )
            record = run.run().record
    except EdgeFedError as error:
        return f"refused: {error.code}"
    if record.status != "finished":
        return f"{record.status}: {record.error}"
    return f"{record.weights_digest} {record.accuracy} {record.loss}"


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return a line for each run whose digest differs, or that only one side has."""
    names = [*before, *(name for name in after if name not in before)]
    return [
        f"{name}: {before.get(name, 'absent')} before, {after.get(name, 'absent')} after"
        for name in names
        if before.get(name) != after.get(name)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the digests; return 1 if one differs from the file to compare with."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.final_digests", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("--write", type=Path, metavar="FILE")
    parser.add_argument("--compare", type=Path, metavar="FILE")
    parser.add_argument("--only", metavar="NAME", help="one run")
    options = parser.parse_args(arguments)
    digests = {}
    for name, recipe in cases().items():
        if options.only in {None, name}:
            digests[name] = digest_of(recipe)
            print(f"{name:26} {digests[name]}", flush=True)
    if options.write:
        options.write.write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")
    if not options.compare:
        return 0
    before = json.loads(options.compare.read_text(encoding="utf-8"))
    wanted = before if options.only is None else {options.only: before.get(options.only, "absent")}
    found = differences(wanted, digests)
    print("\n".join(found) or "no difference")
    return int(bool(found))


if __name__ == "__main__":
    raise SystemExit(main())
