"""Attacks on mixes: what they compute, that they succeed without noise, and fail with too much."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.mix_reconstruction.__main__ import (
    Records,
    Result,
    Size,
    attack,
    by_scale,
    load,
    sizes,
    summary,
)
from benchmarks.mix_reconstruction.mix_estimates import (
    Moments,
    by_correlation,
    by_distance,
    candidate_sets,
    named,
    restored,
    spread_of_weights,
    told_apart,
    without_clipping,
)
from benchmarks.shared.harness import table
from edgefed.sharing.label_mixes import MixSettings, draw_ingredients

SIZE = Size(device=40, mixes=300, records=20)


def drawn(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def public(values: int = 64) -> Records:
    """Twelve records of each of ten labels, which resemble nothing."""
    return Records(drawn(9).random((120, values)), np.arange(120) % 10)


def test_closeness_by_hand() -> None:
    records = np.array([[1.0, 0], [3, 4]])
    assert by_distance(np.zeros((1, 2)), records).tolist() == [[-1, -25]]
    # Their mean is (1, 0): one lies to its left, the other to its right.
    records = np.array([[0.0, 0], [2, 0]])
    assert by_correlation(np.array([[3.0, 0], [1, 5]]), records).tolist() == [[-1, 1], [0, 0]]


def test_candidates_are_other_records_of_the_label() -> None:
    labels = np.arange(120) % 10
    truths = np.array([3, 17, 119])
    sets = candidate_sets(labels, truths, 11, drawn())
    assert sets.shape == (3, 12)
    assert sets[:, 0].tolist() == truths.tolist()
    for truth, found in zip(truths, sets, strict=True):
        assert sorted(found.tolist()) == np.flatnonzero(labels == labels[truth]).tolist()


def test_only_a_strictly_best_candidate_is_named() -> None:
    scores = np.array([[3.0, 2, 1], [1, 2, 3], [2, 2, 1], [5, 1, 4]])
    sets = np.array([[0, 1, 2], [0, 1, 2], [0, 1, 2], [2, 1, 0]])
    assert named(scores, sets) == 0.25


def test_presence_is_told_from_the_best_score() -> None:
    sets = np.array([[0, 1, 2]] * 2)
    # With the truth 9 and 8, without it 1 and 2: always higher.
    assert told_apart(np.array([[9.0, 1, 0], [8, 1, 2]]), sets) == 1
    assert told_apart(np.array([[1.0, 1, 1], [1, 1, 1]]), sets) == 0.5
    # With it 1 and 3, without it 2 and 2: one of both is higher.
    assert told_apart(np.array([[1.0, 0, 2], [3, 0, 2]]), sets) == 0.5
    # With it 1 and 1, without it 2 and 2.
    assert told_apart(np.array([[1.0, 0, 2], [1, 0, 2]]), sets) == 0


@pytest.mark.parametrize("scale", [8 / 255, 64 / 255])
def test_clipping_is_undone(scale: float) -> None:
    true = np.array([0.0, 0.1, 0.5, 0.85, 1.0])
    noise = drawn().laplace(scale=scale, size=(200_000, 5))
    mean = np.clip(true + noise, 0, 1).mean(axis=0)
    # Laplace noise is above 0 in half of the cases, and then σ on average.
    assert mean[0] == pytest.approx(scale / 2 * (1 - np.exp(-1 / scale)), rel=0.02)
    assert without_clipping(mean, scale) == pytest.approx(true, abs=0.01)


def test_the_spread_of_weights() -> None:
    assert spread_of_weights(MixSettings(width=1)) == 0
    # The second of two weights is always 0.4.
    assert spread_of_weights(MixSettings(2, 0.6, 0.6)) == pytest.approx(0.16)
    settings = MixSettings(5, 0.5, 0.9)
    weights = draw_ingredients(np.zeros(50, np.int64), 0, 50_000, settings, drawn()).weights
    expected = weights[:, 0].var() + (weights[:, 1:] ** 2).sum(axis=1).mean()
    assert spread_of_weights(settings) == pytest.approx(expected, rel=0.02)


def test_an_estimate_by_hand() -> None:
    # The label: mean 0.5, variance 0.04. All: mean 0.3, variance 0.16. A mix is 0.5 of each.
    same, everything = (
        Moments.of(np.array(values)[:, None]) for values in ([0.3, 0.7], [-0.1, 0.7])
    )
    settings = MixSettings(2, 0.5, 0.5, noise_scale=0)
    # Expected are 0.4; four mixes of 0.5 have variance 0.25 * 0.04 + 0.25 * 0.16 / 4 = 0.02, and
    # the gain is 0.5 * 0.04 / 0.02 = 1: the estimate is 0.5 + 1 * (0.5 - 0.4).
    made = restored(np.full((4, 1), 0.5), same, everything, settings)
    assert made == pytest.approx([0.6])
    noisy = MixSettings(2, 0.5, 0.5, noise_scale=0.1, clip=False)
    # Noise adds 2 * 0.01 / 4 = 0.005: the gain is 0.02 / 0.025.
    made = restored(np.full((4, 1), 0.5), same, everything, noisy)
    assert made == pytest.approx([0.5 + 0.8 * 0.1])


def by_name(results: list[Result]) -> dict[tuple[str, str], Result]:
    return {(each.attack, each.measure): each for each in results}


def test_every_attack_succeeds_without_noise() -> None:
    results = by_name(attack(public(), MixSettings(), SIZE, 1, [0.0]))
    for measure in ("distance", "correlation", "member"):
        assert results["nearest", measure].value > 0.99
    assert results["repeated", "named of 10"].value == 1
    assert results["repeated", "PSNR"].value > results["repeated", "PSNR"].chance + 10
    assert results["linear", "dominant"].value == 1
    assert results["linear", "all samples"].value > 0.9


def test_every_attack_fails_with_far_too_much_noise() -> None:
    for result in attack(public(), MixSettings(), SIZE, 1, [1000.0]):
        margin = {"PSNR": 0.3, "member": 0.08, "named of 10": 0.2}.get(result.measure, 0.06)
        assert result.value == pytest.approx(result.chance, abs=margin), result


def test_records_come_from_files_or_from_the_digits(tmp_path: Path) -> None:
    digits = load("digits", None)
    assert digits.pixels.shape == (1797, 64)
    assert (digits.pixels.min(), digits.pixels.max()) == (0, 1)
    (tmp_path / "mnist").mkdir()
    images = drawn().integers(0, 256, (30, 28, 28)).astype(np.uint8)
    images[0, 0, 0] = 255
    np.savez(tmp_path / "mnist" / "mnist.npz", x_train=images, y_train=np.arange(30) % 10)
    made = load("mnist", tmp_path)
    assert made.pixels.shape == (30, 784)
    assert made.pixels[0, 0] == 1
    assert made.labels.tolist() == (np.arange(30) % 10).tolist()


def test_sets_of_candidates_need_enough_records_of_each_label() -> None:
    assert sizes(public()) == [10]
    assert sizes(Records(np.zeros((202, 1)), np.arange(202) % 2)) == [10, 100]
    assert sizes(Records(np.zeros((200, 1)), np.arange(200) % 2)) == [10]


def test_seeds_are_summarised() -> None:
    runs = [[Result("linear", 16 / 255, "9 records", "dominant", value, 1 / 9)] for value in (1, 2)]
    (row,) = summary(runs)
    assert (row["mean"], row["chance"]) == (1.5, 1 / 9)
    assert row["deviation"] == pytest.approx(0.5**0.5)
    head, line = table(by_scale([row])).splitlines()
    assert head.split() == ["attack", "setting", "measure", "chance", "16/255"]
    assert line.split() == ["linear", "9", "records", "dominant", "0.1111", "1.5", "±", "0.7071"]
    assert summary(runs[:1])[0]["deviation"] is None
