"""The objectives, against numbers derived by hand."""

from __future__ import annotations

from math import log

import pytest
import torch

from edgefed.errors import DataError
from edgefed.learn.base.types import Batch, Context, Params
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.losses import soft
from edgefed.learn.objectives.proximal import Proximal
from edgefed.learn.objectives.squared_error import SquaredError


def logits(params: Params, inputs: torch.Tensor) -> torch.Tensor:
    """Return two logits: 0, and the input times the only weight."""
    answer = inputs * params["w"]
    return torch.cat([torch.zeros_like(answer), answer], dim=1)


def params(w: float) -> Params:
    return {"w": torch.tensor(w, requires_grad=True)}


INPUTS = torch.tensor([[1.0], [2.0]])
HARD = Batch(INPUTS, torch.tensor([1, 0]))
NOWHERE = Context({})


def test_cross_entropy_of_labels() -> None:
    w = log(3)
    loss = CrossEntropy()(logits, params(w), HARD, NOWHERE)
    # Softmax gives label 1 of the first 3/4, and label 0 of the second 1/10.
    assert loss.item() == pytest.approx((log(4 / 3) + log(10)) / 2)


def test_cross_entropy_of_soft_targets_is_their_mixture() -> None:
    soft = Batch(INPUTS, torch.tensor([[0.25, 0.75], [1.0, 0.0]]))
    loss = CrossEntropy()(logits, params(log(3)), soft, NOWHERE)
    expected = (0.25 * log(4) + 0.75 * log(4 / 3) + log(10)) / 2
    assert loss.item() == pytest.approx(expected)


def test_the_slope_of_cross_entropy_is_what_softmax_gives_too_much() -> None:
    """Softmax is (1/4, 3/4) and (1/10, 9/10); a target that sums to 3/2 counts 3/2 times."""
    outputs = logits(params(log(3)), INPUTS).detach()
    slope = CrossEntropy().slope(outputs, HARD.targets)
    assert slope.tolist() == [pytest.approx([1 / 8, -1 / 8]), pytest.approx([-9 / 20, 9 / 20])]
    slope = CrossEntropy().slope(outputs[:1], torch.tensor([[0.5, 1.0]]))
    assert slope.tolist() == [pytest.approx([-1 / 8, 1 / 8])]


@pytest.mark.parametrize("shape", [(), (2,), (2, 3)])
def test_labels_of_any_shape_become_one_hot(shape: tuple[int, ...]) -> None:
    labels = torch.full(shape, 2)
    found = soft(labels, torch.zeros((*shape, 4), dtype=torch.float64))
    assert found.dtype == torch.float64
    assert torch.equal(found, torch.tensor([0.0, 0, 1, 0], dtype=torch.float64).expand(*shape, 4))


def test_labels_become_one_hot_where_they_are() -> None:
    labels = torch.zeros(2, dtype=torch.int64, device="meta")
    assert soft(labels, torch.zeros((2, 3), device="meta")).device == labels.device


def test_squared_error_is_the_mean_over_batch_and_outputs() -> None:
    batch = Batch(INPUTS, torch.tensor([[0.0, 1.0], [1.0, 6.0]]))
    loss = SquaredError()(logits, params(2.0), batch, NOWHERE)
    assert loss.item() == pytest.approx((0 + 1 + 1 + 4) / 4)


def test_squared_error_refuses_labels() -> None:
    with pytest.raises(DataError, match="target for every output") as caught:
        SquaredError()(logits, params(2.0), HARD, NOWHERE)
    assert caught.value.code == "data.targets"
    assert caught.value.hint
    with pytest.raises(DataError, match="target for every output"):
        SquaredError().slope(logits(params(2.0), INPUTS), HARD.targets)


def test_the_proximal_term_is_half_mu_times_the_squared_distance() -> None:
    at = params(2.5)
    context = Context({"w": torch.tensor(1.0)})
    inner = CrossEntropy()(logits, at, HARD, context)
    loss = Proximal(CrossEntropy(), mu=0.4)(logits, at, HARD, context)
    assert (loss - inner).item() == pytest.approx(0.2 * 1.5**2, rel=1e-5)
    (pull,) = torch.autograd.grad(loss - inner, [at["w"]])
    assert pull.item() == pytest.approx(0.4 * 1.5, rel=1e-5)


def test_the_proximal_term_leaves_alone_what_has_no_anchor() -> None:
    at = {**params(2.0), "running": torch.tensor(50.0)}
    loss = Proximal(SquaredError(), mu=2.0)(
        logits,
        at,
        Batch(INPUTS, torch.tensor([[0.0, 2.0], [0.0, 4.0]])),
        Context({"w": torch.tensor(2.0)}),
    )
    assert loss.item() == 0


def test_mu_zero_is_the_inner_objective_bit_for_bit() -> None:
    at = params(0.7)
    context = Context({"w": torch.tensor(float("inf"))})
    inner = CrossEntropy()(logits, at, HARD, context)
    assert torch.equal(Proximal(CrossEntropy(), mu=0.0)(logits, at, HARD, context), inner)
