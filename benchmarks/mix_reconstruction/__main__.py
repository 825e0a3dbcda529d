"""Attack published mixes of a label: name the record in them, and restore it.

Devices hold records of a public set, and the attacker knows that set, the settings of the mixes and
the label of each. Mixes are 8-bit, as they are released. Three attacks, at several noise scales:

- ``nearest``: of candidates of the mix's label, one of them the dominant record, the attacker names
  the one that is closest, by distance or by correlation once the mean image is subtracted; for
  ``member``, it tells from the best correlation whether the record is among the candidates at all,
  with the area under the ROC curve as result.
- ``repeated``: T mixes with the same dominant record are averaged. Results are how often the
  average's best correlation names the record, and the PSNR of the record that is restored from the
  average and from what is known of the label, of other samples and of the noise; its chance is that
  of the label's mean image.
- ``linear``: the attacker knows all records of the device and finds the weights, at least 0 with
  a sum of 1, that come closest to the mix.

    python -m benchmarks.mix_reconstruction [--set digits] [--data DIR] [--seeds 5] [--width 4]
        [--low 0.5] [--high 0.75] [--device 200] [--mixes 300] [--records 100] [--json]

DIR holds ``mnist/mnist.npz`` and ``cifar10/cifar10_jpeg.npz``; digits need no files. Draws are
seeded, so that results can be repeated; on a device they are not.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.mix_reconstruction.mix_estimates import (
    Moments,
    by_correlation,
    by_distance,
    candidate_sets,
    named,
    psnr,
    restored,
    told_apart,
    weights_of,
)
from benchmarks.shared.harness import parser, show, table
from benchmarks.studies.data import read
from edgefed.data.sets.digits import DigitsOptions, load_digits
from edgefed.report.mix_sheet import scale_in_words
from edgefed.sharing.label_mixes import (
    Ingredients,
    MixSettings,
    draw_ingredients,
    mixes_of,
    quantised,
)
from edgefed.sharing.types import Array, Indices
from edgefed.simulator.sweep.statistics import Spread
from edgefed.terminal.units import counted

SCALES = (0.0, 8 / 255, 16 / 255, 64 / 255)
CANDIDATES = (10, 100, 1000)
REPEATS = (1, 4, 16, 64)
IMAGES = 12_000
"""Of the larger sets; enough for 1000 candidates of each label."""


@dataclass(frozen=True, eq=False)
class Records:
    """The public set: pixels (n, values) from 0 to 1, and labels."""

    pixels: Array
    labels: Indices

    @cached_property
    def moments(self) -> Moments:
        """Those of all records."""
        return Moments.of(self.pixels)

    @cached_property
    def label_moments(self) -> dict[int, Moments]:
        """Those of each label's records."""
        return {
            int(label): Moments.of(self.pixels[self.labels == label])
            for label in np.unique(self.labels)
        }


@dataclass(frozen=True)
class Size:
    """How much is attacked.

    Attributes:
        device: records of a device.
        mixes: that are attacked one by one.
        records: that are attacked with repeated mixes.
    """

    device: int = 200
    mixes: int = 300
    records: int = 100


@dataclass(frozen=True)
class Result:
    """One result of one seed.

    Attributes:
        attack: ``nearest``, ``repeated`` or ``linear``.
        setting: such as the number of candidates.
        measure: what is measured; a rate, an area or a PSNR in dB.
        value: the attacker's.
        chance: of an attacker who sees no mix.
    """

    attack: str
    scale: float
    setting: str
    measure: str
    value: float
    chance: float


def load(name: str, folder: Path | None) -> Records:
    """Return a set's records."""
    if name == "digits":
        whole = load_digits(DigitsOptions(), None)
        parts = (whole.train, whole.test)
        pixels = np.concatenate([part.inputs for part in parts])
        labels = np.concatenate([part.targets for part in parts])
    elif folder is None:
        raise SystemExit(f"{name} needs --data DIR")
    else:
        file = {"mnist": "mnist/mnist.npz", "cifar10": "cifar10/cifar10_jpeg.npz"}[name]
        with tempfile.TemporaryDirectory() as cache:
            arrays = read(folder / file, Path(cache))
        pixels = arrays["x_train"][:IMAGES] / np.float32(255)
        labels = arrays["y_train"][:IMAGES].astype(np.int64)
    return Records(pixels.reshape(len(pixels), -1), labels)


# -- attacks --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Published:
    """Mixes of a device and what they are made of, as positions in the public set."""

    mixes: Array
    made: Ingredients


def publish(
    records: Records,
    device: Indices,
    count: int,
    settings: MixSettings,
    generator: np.random.Generator,
) -> Published:
    """Return mixes of random labels of a device, as pixels from 0 to 1."""
    pixels, labels = records.pixels[device], records.labels[device]
    drawn = [
        draw_ingredients(labels, int(label), 1, settings, generator)
        for label in generator.choice(np.unique(labels), count)
    ]
    made = Ingredients(
        np.concatenate([each.targets for each in drawn]),
        np.concatenate([each.others for each in drawn]),
        np.concatenate([each.weights for each in drawn]),
    )
    mixes = quantised(mixes_of(made, pixels, pixels, settings, generator)) / 255
    return Published(mixes, Ingredients(device[made.targets], device[made.others], made.weights))


def nearest(
    records: Records, seen: Published, scale: float, generator: np.random.Generator
) -> Iterator[Result]:
    """Attack each mix with candidates of its label."""
    ways = {"distance": by_distance, "correlation": by_correlation}
    scores = {name: way(seen.mixes, records.pixels) for name, way in ways.items()}
    for size in sizes(records):
        sets = candidate_sets(records.labels, seen.made.targets, size, generator)
        setting = f"{size} candidates"
        for name, found in scores.items():
            yield Result("nearest", scale, setting, name, named(found, sets[:, :-1]), 1 / size)
        area = told_apart(scores["correlation"], sets)
        yield Result("nearest", scale, setting, "member", area, 0.5)


def repeated(
    records: Records,
    device: Indices,
    count: int,
    settings: MixSettings,
    generator: np.random.Generator,
) -> Iterator[Result]:
    """Attack records of a device, each with many mixes that it dominates."""
    chosen = generator.choice(len(device), count, replace=False)
    truths, size, scale = device[chosen], sizes(records)[-1], settings.noise_scale
    sets = candidate_sets(records.labels, truths, size, generator)[:, :-1]
    same = [records.label_moments[int(label)] for label in records.labels[truths]]
    pictures = list(records.pixels[truths])
    chance = float(
        np.mean([psnr(own.mean, each) for own, each in zip(same, pictures, strict=True)])
    )
    dominated = [_dominated(records.pixels[device], each, settings, generator) for each in chosen]
    for repeats in REPEATS:
        seen = [mixes[:repeats] / 255 for mixes in dominated]
        guesses = [
            restored(each, own, records.moments, settings)
            for each, own in zip(seen, same, strict=True)
        ]
        scores = by_correlation(np.stack([each.mean(axis=0) for each in seen]), records.pixels)
        setting = counted(repeats, "mix", "mixes")
        ratio = float(np.mean(list(map(psnr, guesses, pictures))))
        yield Result("repeated", scale, setting, "PSNR", ratio, chance)
        yield Result("repeated", scale, setting, f"named of {size}", named(scores, sets), 1 / size)


def _dominated(
    pixels: Array, record: int, settings: MixSettings, generator: np.random.Generator
) -> Array:
    """Return as many mixes as are averaged at most, all of them dominated by one record."""
    alone = (np.arange(len(pixels)) == record).astype(np.int64)  # the only one of its label
    made = draw_ingredients(alone, 1, REPEATS[-1], settings, generator)
    return quantised(mixes_of(made, pixels, pixels, settings, generator))


def linear(
    records: Records, device: Indices, seen: Published, settings: MixSettings
) -> Iterator[Result]:
    """Attack each mix with all records of the device."""
    own = records.pixels[device].astype(np.float64)
    found = device[np.argsort(-weights_of(seen.mixes, own), axis=1)]
    setting, scale = f"{len(device)} records", settings.noise_scale
    first = float((found[:, 0] == seen.made.targets).mean())
    yield Result("linear", scale, setting, "dominant", first, 1 / len(device))
    whole = np.concatenate([seen.made.targets[:, None], seen.made.others], axis=1)
    hits = [
        len(set(guess) & set(made))
        for guess, made in zip(found[:, : settings.width].tolist(), whole.tolist(), strict=True)
    ]
    share = float(np.mean(hits)) / settings.width
    yield Result("linear", scale, setting, "all samples", share, settings.width / len(device))


def sizes(records: Records) -> list[int]:
    """Return the numbers of candidates that each label has enough records for."""
    least = int(np.unique(records.labels, return_counts=True)[1].min())
    return [size for size in CANDIDATES if size + 1 <= least]


def attack(
    records: Records, settings: MixSettings, size: Size, seed: int, scales: Sequence[float] = SCALES
) -> list[Result]:
    """Return the results of all attacks with one seed."""
    results: list[Result] = []
    for scale in scales:
        generator = np.random.default_rng(seed)
        device = generator.choice(len(records.labels), size.device, replace=False)
        noisy = replace(settings, noise_scale=scale)
        seen = publish(records, device, size.mixes, noisy, generator)
        results += nearest(records, seen, scale, generator)
        results += repeated(records, device, size.records, noisy, generator)
        results += linear(records, device, seen, noisy)
    return results


# -- output ---------------------------------------------------------------------------------------


def summary(runs: Sequence[Sequence[Result]]) -> list[dict[str, Any]]:
    """Return the mean and the standard deviation of each result over the seeds."""
    rows = []
    for results in zip(*runs, strict=True):
        values = [each.value for each in results]
        rows.append(
            {
                "attack": results[0].attack,
                "noise_scale": results[0].scale,
                "setting": results[0].setting,
                "measure": results[0].measure,
                "mean": float(np.mean(values)),
                "deviation": float(np.std(values, ddof=1)) if len(values) > 1 else None,
                "chance": float(np.mean([each.chance for each in results])),
            }
        )
    return rows


def by_scale(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each attack, with a column for each noise scale."""
    lines: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        head = {key: row[key] for key in ("attack", "setting", "measure", "chance")}
        line = lines.setdefault((row["attack"], row["setting"], row["measure"]), head)
        found = Spread(row["mean"], row["deviation"], 0)
        line[scale_in_words(row["noise_scale"])] = found
    return list(lines.values())


def main() -> None:
    """Attack and print."""
    weights = {key: getattr(MixSettings, key) for key in ("width", "low", "high")}
    sizes_of = {key: getattr(Size, key) for key in ("device", "mixes", "records")}
    command = parser("mix_reconstruction", __doc__, seeds=5, **weights, **sizes_of)
    command.add_argument("--set", choices=("digits", "mnist", "cifar10"), default="digits")
    command.add_argument("--data", type=Path)
    options = command.parse_args()
    records = load(options.set, options.data)
    settings = MixSettings(*(getattr(options, key) for key in weights))
    size = Size(*(getattr(options, key) for key in sizes_of))
    rows = summary([attack(records, settings, size, 1 + seed) for seed in range(options.seeds)])
    show(options, rows, table(by_scale(rows)), indent=2)


if __name__ == "__main__":
    main()
