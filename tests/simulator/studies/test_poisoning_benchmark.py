"""The poisoning benchmark's attackers do what they are named for, and its counts are right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.poisoning.__main__ import Case, run
from benchmarks.poisoning.attackers import TARGET, poisoned, with_pattern
from edgefed.data.base.types import Shard, no_samples
from edgefed.files.samples import Samples

ROUNDS = 4


def shard() -> Shard:
    images = np.random.default_rng(1).random((6, 1, 4, 4)).astype(np.float32)
    return Shard(Samples(images, np.arange(6)), no_samples((1, 4, 4)), 10)


def test_what_attackers_train_on() -> None:
    flipped = poisoned(shard(), "label-flip").train
    assert flipped.targets.tolist() == [9, 8, 7, 6, 5, 4]
    marked = poisoned(shard(), "backdoor").train
    assert marked.targets.tolist() == [TARGET, 1, TARGET, 3, TARGET, 5]
    same = shard().train.inputs
    assert np.array_equal(marked.inputs[1::2], same[1::2])
    assert (marked.inputs[::2, :, -2:, -2:] == same[::2].max()).all()
    assert np.array_equal(with_pattern(same)[..., :2, :], same[..., :2, :])
    assert np.array_equal(poisoned(shard(), "sign-flip").train.inputs, same)


@pytest.mark.parametrize(
    ("attack", "defence", "refused", "quarantined"),
    [
        ("none", "mean, checks", 0, ()),
        ("nan", "mean", 2 * ROUNDS, ()),
        ("scaling", "mean, checks", 6, ("device-03", "device-07")),
        ("sign-flip", "krum", 0, ()),
    ],
)
def test_attackers_are_refused_and_nobody_else(
    tmp_path: Path, attack: str, defence: str, refused: int, quarantined: tuple[str, ...]
) -> None:
    found = run(Case(attack, defence, 1, ROUNDS, "iid"), tmp_path)
    assert (found.refused, found.wronged, found.quarantined) == (refused, 0, quarantined)
    assert 0.5 < found.accuracy <= 1


def test_a_scaled_update_ruins_a_mean(tmp_path: Path) -> None:
    assert run(Case("scaling", "mean", 1, ROUNDS, "iid"), tmp_path).accuracy < 0.5
