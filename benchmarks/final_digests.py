"""Final digests of two-round runs: every algorithm, wrapper, codec, merge and way of sharing.

A change that should not alter results is checked by two calls: ``--write FILE`` before it and
``--compare FILE`` after it, on the same machine, because floating-point results depend on the
processor and on torch. Runs with differential privacy and with mixes of labels are left out:
their noise comes from the operating system.

    python -m benchmarks.final_digests [--write FILE | --compare FILE] [--only NAME]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgefed.algorithms.registry import built_in
from edgefed.api.simulate import simulate
from edgefed.errors import EdgeFedError

BASE: Mapping[str, Any] = {
    "rounds": {"count": 2},
    "simulation": {"devices": 8, "workers": 1, "engine": "sequential"},
}

ALGORITHM_CASES: Mapping[str, Mapping[str, Any]] = {
    "pfnm": {"model": {"name": "mlp", "hidden": [24]}},
    "fedma": {"model": {"name": "mlp", "hidden": [24, 16]}},
    "fedmoe": {"algorithm": {"experts": 2}},
}

CASES: Mapping[str, Mapping[str, Any]] = {
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
    "personal-fedper": {"personal": {"preset": "fedper", "fine_tune_epochs": 1}},
    "personal-lg": {"personal": {"preset": "lg"}},
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
    "cohort": {"rounds": {"count": 2, "cohort": 2}},
    "server-momentum": {"algorithm": {"name": "fedavg", "server": "momentum"}},
    "fedmix-bf16": {"algorithm": {"name": "fedmix", "packing": "bf16", "group_size": 8}},
    "fedmix-split": {"algorithm": {"name": "fedmix", "split": 1}},
    "moe-updates": {"algorithm": {"name": "fedmoe", "experts": 2, "start": "updates"}},
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
}


def cases() -> dict[str, dict[str, Any]]:
    """Return each run's recipe by its name: all algorithms, then the other parts."""
    algorithms: dict[str, Mapping[str, Any]] = {}
    for name in sorted(built_in()):
        extra = ALGORITHM_CASES.get(name, {})
        algorithms[name] = {**extra, "algorithm": {**extra.get("algorithm", {}), "name": name}}
    return {name: {**BASE, **tables} for name, tables in {**algorithms, **CASES}.items()}


def digest_of(recipe: Mapping[str, Any]) -> str:
    """Return the digest of a run's final weights, or the code of the error that refuses it."""
    try:
        return simulate(dict(recipe)).weights_digest
    except EdgeFedError as error:
        return f"refused: {error.code}"


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
            print(f"{name:24} {digests[name]}", flush=True)
    if options.write:
        options.write.write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")
    if not options.compare:
        return 0
    before = json.loads(options.compare.read_text(encoding="utf-8"))
    found = differences({name: before[name] for name in before if name in digests}, digests)
    print("\n".join(found) or "no difference")
    return int(bool(found))


if __name__ == "__main__":
    raise SystemExit(main())
