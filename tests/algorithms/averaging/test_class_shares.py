"""The shares of classes: label counts where owners allow them, samples where they do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgefed.algorithms.averaging.class_shares import (
    LABELS,
    class_shares,
    label_counts_of,
    wrong_counts,
)
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceView
from edgefed.files.samples import Samples
from edgefed.sharing.policy import ANYTHING, Policy
from tests.algorithms.play import trainer


def answer(device: str, samples: int, *counts: int) -> Answer:
    groups = {LABELS: Group({LABELS: np.array(counts, np.int64)})} if counts else {}
    return Answer(device, samples, groups)


def test_a_class_is_shared_by_its_samples_and_one_without_any_equally() -> None:
    answers = [answer("a", 10, 8, 2, 0), answer("b", 4, 2, 2, 0)]
    shares = class_shares(answers, {"a": 10, "b": 4}, 3, "classes")
    np.testing.assert_allclose(shares, [[0.8, 0.5, 0.5], [0.2, 0.5, 0.5]])


def test_a_device_that_does_not_tell_has_all_classes_alike() -> None:
    answers = [answer("a", 9, 8, 1, 0), answer("b", 6)]
    shares = class_shares(answers, {"a": 9, "b": 6}, 3, "classes")
    np.testing.assert_allclose(shares, [[0.8, 1 / 3, 0], [0.2, 2 / 3, 1]])


def test_nobody_counts_for_more_than_it_announced() -> None:
    answers = [answer("a", 10**9, 6 * 10**9, 2 * 10**9), answer("b", 10**9)]
    shares = class_shares(answers, {"a": 8, "b": 4}, 2, "classes")
    np.testing.assert_allclose(shares, [[0.75, 0.5], [0.25, 0.5]])


def test_samples_and_equal_shares() -> None:
    answers = [answer("a", 6, 0, 6), answer("b", 2, 2, 0)]
    announced = {"a": 6, "b": 2}
    by_samples = class_shares(answers, announced, 2, "samples")
    np.testing.assert_allclose(by_samples, [[0.75, 0.75], [0.25, 0.25]])
    uniform = class_shares(answers, announced, 2, "uniform")
    np.testing.assert_allclose(uniform, 0.5)


def test_negative_counts_are_rejected() -> None:
    assert wrong_counts(answer("a", 4, 5, -1)) == "it counts -1 samples of a label"
    assert wrong_counts(answer("a", 4, 4, 0)) == ""
    assert wrong_counts(answer("a", 4)) == ""


def test_labels_are_told_with_the_owners_leave_and_recorded() -> None:
    own = Samples(np.zeros((5, 8), np.float32), np.array([2, 2, 0, 2, 0]))
    task = DeviceTask("fit", 4, "a", 1, {}, {})
    view = DeviceView(own, own, {}, ANYTHING, trainer().model)
    groups, ledger = label_counts_of(task, view)
    assert groups[LABELS].arrays[LABELS].tolist() == [2, 0, 3]
    (entry,) = ledger
    assert (entry["kind"], entry["round"], entry["records"], entry["labels"]) == ("labels", 4, 5, 2)
    assert label_counts_of(task, replace(view, policy=Policy(share_labels=False))) == ({}, ())
    mixed = Samples(own.inputs, np.full((5, 3), 1 / 3, np.float32))
    assert label_counts_of(task, replace(view, train=mixed)) == ({}, ())


def test_a_class_of_few_devices_weighs_by_samples() -> None:
    answers = [answer("a", 4, 4, 0), answer("b", 6, 3, 3), answer("c", 2, 2, 0)]
    announced = {"a": 4, "b": 6, "c": 2}
    shares = class_shares(answers, announced, 2, "classes", least_holders=0.5)
    np.testing.assert_allclose(shares, [[4 / 9, 4 / 12], [3 / 9, 6 / 12], [2 / 9, 2 / 12]])
    strict = class_shares(answers, announced, 2, "classes")
    np.testing.assert_allclose(strict[:, 1], [0, 1, 0])
