"""FedLC's and FedRS's losses: by hand, their limits, their gradients, and in every trainer."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from edgefed.errors import DataError, UsageError
from edgefed.learn.base.types import Batch, Context, Job, Objective, Params, Samples, Schedule
from edgefed.learn.modeling.model import Model
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.label_counts import COUNTS, check_counts, label_counts
from edgefed.learn.objectives.logit_calibration import LogitCalibration
from edgefed.learn.objectives.proximal import Proximal
from edgefed.learn.objectives.restricted_softmax import RestrictedSoftmax, classifier_bias
from edgefed.learn.training.trainer import Trainer
from tests.learn import worlds
from tests.learn.training.test_stacked import assert_alike


def outputs(params: Params, inputs: torch.Tensor) -> torch.Tensor:
    """The logits are the parameter itself."""
    del inputs
    return params["f"]


def loss_of(
    objective: Objective, logits: list[list[float]], targets: Any, counts: list[float]
) -> tuple[float, torch.Tensor]:
    """Return a loss and its gradient with respect to the logits."""
    f = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    context = Context({}, {COUNTS: torch.tensor(counts)})
    wanted = torch.tensor(targets)
    if wanted.is_floating_point():
        wanted = wanted.double()
    batch = Batch(torch.zeros(len(logits)), wanted)
    value = objective(outputs, {"f": f}, batch, context)
    (slope,) = torch.autograd.grad(value, f)
    return value.item(), slope


LOGITS = [[0.3, -1.2, 2.0, 0.1], [1.5, 0.2, -0.4, 0.0], [0.0, 0.7, 0.1, -2.0]]
LABELS = [0, 2, 1]
COUNT = [16.0, 1.0, 81.0, 256.0]
MARGIN = np.array([1 / 2, 1, 1 / 3, 1 / 4])


def cross_entropy(logits: Any, targets: Any = LABELS) -> tuple[float, torch.Tensor]:
    return loss_of(CrossEntropy(), np.asarray(logits).tolist(), targets, COUNT)


# -- FedLC --------------------------------------------------------------------------------------


@pytest.mark.parametrize("tau", [0.5, 1.0, 3.0])
def test_fedlc_is_cross_entropy_of_lowered_logits(tau: float) -> None:
    value, slope = loss_of(LogitCalibration(tau), LOGITS, LABELS, COUNT)
    lowered = np.array(LOGITS) - tau * MARGIN
    expected, _ = cross_entropy(lowered)
    assert value == pytest.approx(expected, rel=1e-6)
    chances = np.exp(lowered) / np.exp(lowered).sum(axis=1, keepdims=True)
    assert slope.numpy() == pytest.approx((chances - np.eye(4)[LABELS]) / 3, rel=1e-5, abs=1e-7)


def test_fedlc_without_the_true_label_is_the_papers_form() -> None:
    value, slope = loss_of(LogitCalibration(2.0, exclude_true=True), LOGITS, LABELS, COUNT)
    lowered = np.array(LOGITS) - 2 * MARGIN
    each = []
    for row, label in zip(lowered, LABELS, strict=True):
        others = sum(exp(z) for c, z in enumerate(row) if c != label)
        each.append(log(others) - row[label])
    assert value == pytest.approx(np.mean(each), rel=1e-6)
    assert slope.sum(dim=1).numpy() == pytest.approx(np.zeros(3), abs=1e-9)
    assert [slope[place, label].item() for place, label in enumerate(LABELS)] == pytest.approx(
        [-1 / 3] * 3
    )


def test_fedlc_of_equal_counts_or_without_tau_is_cross_entropy() -> None:
    expected, slope = cross_entropy(LOGITS)
    for objective, counts in (
        (LogitCalibration(1.7), [9.0] * 4),
        (LogitCalibration(0.0), COUNT),
        (LogitCalibration(0.0), [0.0, 0.0, 5.0, 0.0]),
        (LogitCalibration(0.0, absent="margin"), [0.0, 0.0, 5.0, 0.0]),
    ):
        value, found = loss_of(objective, LOGITS, LABELS, counts)
        assert value == pytest.approx(expected, rel=1e-6)
        assert torch.allclose(found, slope, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("exclude_true", [False, True])
def test_fedlc_takes_absent_labels_out_of_the_sum(exclude_true: bool) -> None:
    counts = [16.0, 1.0, 81.0, 0.0]
    objective = LogitCalibration(exclude_true=exclude_true)
    value, slope = loss_of(objective, LOGITS, LABELS, counts)
    without, rest = loss_of(objective, np.array(LOGITS)[:, :3].tolist(), LABELS, counts[:3])
    assert value == pytest.approx(without, rel=1e-6)
    assert (slope[:, 3] == 0).all()
    assert torch.allclose(slope[:, :3], rest)


def test_fedlc_keeps_the_label_of_a_sample_that_is_not_counted() -> None:
    value, slope = loss_of(LogitCalibration(), LOGITS, [3, 0, 0], [16.0, 1.0, 81.0, 0.0])
    rows = [np.array(LOGITS[0]) - [0.5, 1, 1 / 3, 1.0], *(np.array(LOGITS[1:]) - MARGIN)[:, :3]]
    each = [log(np.exp(row).sum()) - row[label] for row, label in zip(rows, [3, 0, 0], strict=True)]
    assert value == pytest.approx(np.mean(each), rel=1e-6)
    assert slope[0, 3] < 0
    assert (slope[1:, 3] == 0).all()


def test_fedlc_may_give_absent_labels_the_margin_of_hardly_any_samples() -> None:
    counts = [16.0, 1.0, 81.0, 0.0]
    value, slope = loss_of(LogitCalibration(absent="margin"), LOGITS, LABELS, counts)
    expected, _ = cross_entropy(np.array(LOGITS) - [0.5, 1, 1 / 3, 100])
    assert value == pytest.approx(expected, rel=1e-6)
    assert 0 < slope[0, 3] < 1e-40


@pytest.mark.parametrize("exclude_true", [False, True])
def test_fedlc_of_shares_of_labels_is_the_mixture(exclude_true: bool) -> None:
    objective = LogitCalibration(exclude_true=exclude_true)
    counts = [16.0, 1.0, 81.0, 0.0]
    shares = [[0.25, 0.75, 0.0, 0.0]]
    value, _ = loss_of(objective, LOGITS[:1], shares, counts)
    first, second = (loss_of(objective, LOGITS[:1], [label], counts)[0] for label in (0, 1))
    assert value == pytest.approx(0.25 * first + 0.75 * second, rel=1e-6)


def test_fedlc_without_the_true_label_needs_another_one() -> None:
    model, counts = worlds.model(), {COUNTS: np.array([5, 0, 0], np.float32)}
    for fine in (LogitCalibration(), LogitCalibration(1, True, "margin")):
        fine.check(model, counts)
    LogitCalibration(0.0, exclude_true=True).check(model, counts)
    with pytest.raises(DataError, match="second label") as caught:
        LogitCalibration(exclude_true=True).check(model, counts)
    assert caught.value.code == "train.label_counts"


# -- FedRS --------------------------------------------------------------------------------------


class Linear(nn.Module):
    """A classifier of four labels, with or without a bias."""

    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.head = nn.Linear(5, 4, bias=bias, dtype=torch.float64)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(inputs)
        return logits


HIDDEN = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
TARGETS = torch.tensor([0, 2, 2, 0, 2, 0])
HELD = [3.0, 0.0, 12.0, 0.0]


def restricted(
    objective: RestrictedSoftmax, bias: bool = True
) -> tuple[torch.Tensor, dict[str, torch.Tensor], Params]:
    """Return the loss, the gradients of the classifier, and its weights."""
    torch.manual_seed(3)
    model = Model(Linear(bias), (5,), 4)
    (phase,) = objective.phases(model, model.parameter_names)
    params = {name: torch.tensor(part) for name, part in model.weights().items()}
    for part in params.values():
        part.requires_grad_()
    context = Context({}, {COUNTS: torch.tensor(HELD)})
    loss = phase.objective(model.forward, params, Batch(HIDDEN, TARGETS), context)
    slopes = torch.autograd.grad(loss, list(params.values()), allow_unused=True)
    names = zip(params, slopes, strict=True)
    return loss, {n: s if s is not None else torch.zeros(4) for n, s in names}, params


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.9])
def test_fedrs_restricts_the_gradient_of_absent_labels_rows(alpha: float) -> None:
    loss, slopes, params = restricted(RestrictedSoftmax(alpha), bias=False)
    scales = torch.tensor([1, alpha, 1, alpha], dtype=torch.float64)
    logits = scales * (HIDDEN @ params["head.weight"].T)
    assert torch.allclose(loss, functional.cross_entropy(logits, TARGETS))
    chances = functional.softmax(logits, dim=1).detach()
    for label in (1, 3):
        expected = alpha * (chances[:, label, None] * HIDDEN).mean(dim=0)
        assert torch.allclose(slopes["head.weight"][label], expected)
        if alpha == 0:
            assert (slopes["head.weight"][label] == 0).all()


def test_fedrs_of_alpha_one_is_cross_entropy() -> None:
    for mode in ("binary", "proportional"):
        for bias in ("scaled", "unscaled"):
            objective = RestrictedSoftmax(1.0, mode, bias)
            loss, _, params = restricted(objective)
            logits = HIDDEN @ params["head.weight"].T + params["head.bias"]
            assert torch.allclose(loss, functional.cross_entropy(logits, TARGETS), atol=1e-15)


def test_fedrs_may_scale_labels_by_their_share_of_the_largest() -> None:
    scales = RestrictedSoftmax(0.2, "proportional").scales(torch.tensor(HELD))
    assert scales.tolist() == pytest.approx([0.2 + 0.8 / 4, 0.2, 1, 0.2])
    assert RestrictedSoftmax(0.2).scales(torch.tensor(HELD)).tolist() == pytest.approx(
        [1, 0.2, 1, 0.2]
    )


def test_fedrs_treats_the_classifiers_bias_as_it_is_told() -> None:
    scales = torch.tensor([1, 0.5, 1, 0.5], dtype=torch.float64)
    for bias in ("scaled", "unscaled", "none"):
        loss, slopes, params = restricted(RestrictedSoftmax(0.5, bias=bias))
        plain, offset = HIDDEN @ params["head.weight"].T, params["head.bias"]
        logits = {
            "scaled": scales * (plain + offset),
            "unscaled": scales * plain + offset,
            "none": scales * plain,
        }[bias]
        assert torch.allclose(loss, functional.cross_entropy(logits, TARGETS))
        assert bool(slopes["head.bias"].abs().max() < 1e-12) == (bias == "none")


def test_the_classifiers_bias_is_that_of_the_last_layer_of_the_classes() -> None:
    assert classifier_bias(worlds.model("mlp")) == "out.bias"
    assert classifier_bias(Model(Linear(bias=False), (5,), 4)) == ""
    assert classifier_bias(Model(nn.Linear(5, 4), (5,), 4)) == "bias"
    twice = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 4))
    assert classifier_bias(Model(twice, (5,), 4)) == "2.bias"


# -- counts and settings ------------------------------------------------------------------------


def test_counts_are_of_the_samples_or_of_the_real_ones_among_them() -> None:
    samples = Samples(np.zeros((6, 1)), np.array([2, 2, 0, 1, 1, 1]))
    assert label_counts(samples, 4).tolist() == [1, 3, 2, 0]
    assert label_counts(samples, 4, real=3).tolist() == [1, 0, 2, 0]
    shares = Samples(np.zeros((2, 1)), np.array([[0.25, 0.75], [1, 0]], np.float32))
    assert label_counts(shares, 2).tolist() == [1.25, 0.75]
    with pytest.raises(DataError, match="0 to 2"):
        label_counts(samples, 2)


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {COUNTS: np.ones(2, np.float32)},
        {COUNTS: np.zeros(3, np.float32)},
        {COUNTS: np.array([1, -1, 1], np.float32)},
        {COUNTS: np.array([1, np.nan, 1], np.float32)},
    ],
)
@pytest.mark.parametrize("objective", [LogitCalibration(), RestrictedSoftmax()])
def test_a_job_without_counts_is_refused(objective: Any, extra: dict[str, Any]) -> None:
    model = worlds.model()
    with pytest.raises(DataError) as caught:
        Trainer(model, "cpu").train(
            replace(worlds.job(model, objective=objective), extra=extra), worlds.samples(6)
        )
    assert caught.value.code == "train.label_counts"
    with pytest.raises(DataError):
        check_counts(model, extra)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LogitCalibration(-1.0),
        lambda: LogitCalibration(float("inf")),
        lambda: LogitCalibration(absent="drop"),  # type: ignore[arg-type]
        lambda: RestrictedSoftmax(1.1),
        lambda: RestrictedSoftmax(-0.1),
        lambda: RestrictedSoftmax(mode="log"),  # type: ignore[arg-type]
        lambda: RestrictedSoftmax(bias="half"),  # type: ignore[arg-type]
    ],
)
def test_settings_out_of_range_are_refused(make: Any) -> None:
    with pytest.raises(UsageError) as caught:
        make()
    assert caught.value.code == "train.calibration"


# -- trainers -----------------------------------------------------------------------------------

OBJECTIVES: list[Objective] = [
    LogitCalibration(),
    LogitCalibration(2.0, exclude_true=True, absent="margin"),
    RestrictedSoftmax(0.5, bias="unscaled"),
    RestrictedSoftmax(0.5, "proportional", "none"),
    Proximal(LogitCalibration(), 0.1),
    Proximal(RestrictedSoftmax(0.3, bias="none"), 0.1),
]


def skewed(size: int, seed: int) -> Samples:
    """Samples of which few have label 1 and none label 2."""
    own = worlds.samples(size, seed)
    return Samples(own.inputs, (np.arange(size) % 4 == 3).astype(np.int64))


def job_of(model: Model, objective: Objective, samples: Samples, seed: int) -> Job:
    job = worlds.job(model, Schedule(2, 6, 0.1), objective=objective, seed=seed)
    return replace(job, extra={COUNTS: label_counts(samples, worlds.CLASSES)})


@pytest.mark.parametrize("objective", OBJECTIVES[1::2])
def test_a_stack_ends_where_each_client_ends(objective: Objective) -> None:
    model = worlds.model("mlp")
    model.module.double()
    data = [skewed(size, seed) for seed, size in enumerate((13, 8, 20, 13))]
    jobs = [job_of(model, objective, own, seed) for seed, own in enumerate(data)]
    assert_alike(model, jobs, data, error=1e-11)


@pytest.mark.parametrize("objective", [LogitCalibration(), RestrictedSoftmax(0.0, bias="scaled")])
def test_the_classifiers_rows_of_absent_labels_stay(objective: Objective) -> None:
    model, data = worlds.model("mlp"), skewed(20, 1)
    before = model.weights()
    after = Trainer(model, "cpu").train(job_of(model, objective, data, 1), data).weights
    for name in ("out.weight", "out.bias"):
        assert np.array_equal(after[name][2], before[name][2])
        assert not np.array_equal(after[name][:2], before[name][:2])
    usual = Trainer(model, "cpu").train(worlds.job(model, Schedule(2, 6, 0.1)), data).weights
    assert not np.array_equal(usual["out.weight"][2], before["out.weight"][2])


@pytest.mark.parametrize("objective", OBJECTIVES[::2])
def test_training_in_bf16_stays_finite(objective: Objective) -> None:
    model, data = worlds.model("mlp"), skewed(20, 1)
    job = job_of(model, objective, data, 1)
    trained = Trainer(model, "cpu").train(
        replace(job, schedule=replace(job.schedule, precision="bf16")), data
    )
    assert np.isfinite(trained.loss)
