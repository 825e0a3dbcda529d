"""The local objective of a mixture of experts, against formulas written out in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgefed.learn.base.types import Batch, Context, Params
from edgefed.learn.modeling.model import Model
from edgefed.learn.objectives.expert_mixture import (
    CONDITIONS,
    FREQUENCIES,
    GATE_BIAS,
    GATE_WEIGHT,
    PERSONAL_BIAS,
    SHARES,
    TABLE,
    ExpertMixture,
    check_conditions,
    expert_name,
)

K, C, WIDTH, INPUTS, N = 3, 4, 5, 6, 8
NUMBERS = np.random.default_rng(8)
DTYPE = torch.float64


def model() -> Model:
    torch.manual_seed(2)
    layers = nn.Sequential(nn.Linear(INPUTS, WIDTH), nn.Tanh(), nn.Linear(WIDTH, C))
    return Model(layers.to(DTYPE), (INPUTS,), C)


MODEL = model()


def draw(*shape: int) -> torch.Tensor:
    return torch.tensor(NUMBERS.normal(0, 1, shape), dtype=DTYPE)


def weights() -> Params:
    return {name: draw(*array.shape) for name, array in MODEL.weights().items()}


EXPERTS = [weights() for _ in range(K)]
LABELS = torch.tensor([0, 1, 1, 3, 0, 1, 0, 3])
ROWS = torch.arange(N)
BATCH = Batch(draw(N, INPUTS), LABELS, ROWS)
FREQUENCY = torch.bincount(LABELS, minlength=C).to(DTYPE) / N


def given(kept: tuple[int, ...] = tuple(range(K))) -> Params:
    """Return all parameters of an objective with these experts."""
    rng = np.random.default_rng(1)
    own = {TABLE: rng.normal(0, 1, (C, K)), GATE_WEIGHT: rng.normal(0, 1, (WIDTH, K)),
           GATE_BIAS: rng.normal(0, 1, K)}  # fmt: skip
    others = {expert_name(k, n): t for k in kept[1:] for n, t in EXPERTS[k].items()}
    found = {**EXPERTS[kept[0]], **others, **{n: torch.tensor(a) for n, a in own.items()}}
    return {name: tensor.clone().requires_grad_() for name, tensor in found.items()}


def objective(kept: tuple[int, ...] = tuple(range(K)), **changes: Any) -> ExpertMixture:
    return ExpertMixture(MODEL, K, kept, **changes)


def loss(
    of: ExpertMixture, params: Params, batch: Batch = BATCH, **extra: torch.Tensor
) -> torch.Tensor:
    return of(MODEL.forward, params, batch, Context({}, {FREQUENCIES: FREQUENCY, **extra}))


@dataclass(frozen=True)
class Literal:
    """What the formulas are made of, expert by expert and sample by sample.

    Attributes:
        right: p_z(y_b|x_b), (N, K).
        gate: p_theta(z|x_b, s), (N, K).
        shares: q(z|y_b), (N, K).
        mixture: q(z|s), (K,).
    """

    right: torch.Tensor
    gate: torch.Tensor
    shares: torch.Tensor
    mixture: torch.Tensor


def literal(
    params: Params, kept: tuple[int, ...] = tuple(range(K)), eta: float = 0.0, bias: float = 0.0
) -> Literal:
    """Return the parts, by loops and powers of e; the experts not kept have p = 1 and h = 0."""
    phi = params[TABLE]
    table = torch.stack([torch.exp(row) / torch.exp(row).sum() for row in phi])
    mixture = sum((FREQUENCY[c] * table[c] for c in range(C)), torch.zeros(K, dtype=DTYPE))
    used = [k for k in kept if mixture[k] >= eta / K]
    mass = sum(mixture[k] for k in used)
    right, hidden = torch.ones(N, K, dtype=DTYPE), torch.zeros(N, WIDTH, dtype=DTYPE)
    for place, k in enumerate(kept):
        own = {n: params[n if place == 0 else expert_name(k, n)] for n in EXPERTS[k]}
        features = torch.tanh(BATCH.inputs @ own["0.weight"].T + own["0.bias"])
        logits = features @ own["2.weight"].T + own["2.bias"] + bias
        probability = torch.exp(logits) / torch.exp(logits).sum(1, keepdim=True)
        right = torch.cat(
            [right[:, :k], probability[ROWS, LABELS].unsqueeze(1), right[:, k + 1 :]], 1
        )
        if k in used:
            hidden = hidden + (mixture[k] / mass).detach() * features
    scores = hidden @ params[GATE_WEIGHT] + params[GATE_BIAS]
    gate = torch.exp(scores) / torch.exp(scores).sum(1, keepdim=True)
    return Literal(right, gate, table[LABELS], mixture)


def close(one: torch.Tensor, other: torch.Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def gradients(value: torch.Tensor, params: Params) -> dict[str, torch.Tensor]:
    found = torch.autograd.grad(value, list(params.values()), materialize_grads=True,
                                allow_unused=True)  # fmt: skip
    return dict(zip(params, found, strict=True))


# -- the objective ------------------------------------------------------------------------------


@pytest.mark.parametrize("prunes_gate", [False, True])
@pytest.mark.parametrize(("kept", "eta"), [((0, 1, 2), 0.0), ((0, 1, 2), 0.8), ((0, 2), 0.0)])
def test_value_and_gradients_are_those_of_the_formula(
    kept: tuple[int, ...], eta: float, prunes_gate: bool
) -> None:
    params = given(kept)
    parts = literal(params, kept, eta)
    used = [k for k in kept if parts.mixture[k] >= eta / K]
    if eta:
        assert 0 < len(used) < K
    primed = torch.stack([q[used] / q[used].sum() for q in parts.shares])
    expected = -(primed * torch.log(parts.right[:, used])).sum(1).mean()
    if prunes_gate:
        expected = expected - (primed * torch.log(parts.gate[:, used])).sum(1).mean()
    else:
        expected = expected - (parts.shares * torch.log(parts.gate)).sum(1).mean()
    found = loss(objective(kept, threshold=eta, prunes_gate=prunes_gate), params)
    close(found, expected)
    mine, theirs = gradients(found, params), gradients(expected, params)
    for name, gradient in mine.items():
        close(gradient, theirs[name])
    assert any(gradient.abs().max() > 1e-3 for gradient in mine.values())


def test_a_pruned_experts_gradient_is_exactly_zero() -> None:
    params = given()
    low = literal(params).mixture.detach()
    weakest, eta = int(low.argmin()), float(K * (low.min() + 1e-6))
    found = gradients(loss(objective(threshold=eta), params), params)
    for name in MODEL.names:
        own = name if weakest == 0 else expert_name(weakest, name)
        assert not found[own].any()
    assert found[GATE_WEIGHT].abs().max() > 0


def test_gradients_of_the_gate_reach_the_experts_unless_detached() -> None:
    params = given()
    flowing = gradients(loss(objective(), params), params)
    stopped = gradients(loss(objective(detaches=True), params), params)
    close(flowing[GATE_WEIGHT], stopped[GATE_WEIGHT])
    close(flowing["2.weight"], stopped["2.weight"])
    assert (flowing["0.weight"] - stopped["0.weight"]).abs().max() > 1e-3


def test_a_personal_bias_is_added_to_every_expert() -> None:
    params = {**given(), PERSONAL_BIAS: draw(C)}
    parts = literal(params, bias=params[PERSONAL_BIAS])  # type: ignore[arg-type]
    expected = -(parts.shares * torch.log(parts.right * parts.gate)).sum(1).mean()
    close(loss(objective(has_bias=True), params), expected)
    assert (loss(objective(), params) - expected).abs() > 1e-2


def test_soft_targets_that_are_labels_give_the_labels_loss() -> None:
    params = given()
    soft = Batch(BATCH.inputs, nn.functional.one_hot(LABELS, C).to(DTYPE), ROWS)
    close(loss(objective(), params, soft), loss(objective(), params))


def test_soft_targets_take_the_mean_of_their_labels_shares() -> None:
    params = given()
    mixed = torch.tensor([[0.3, 0.7, 0.0, 0.0]] * N, dtype=DTYPE)
    found = loss(objective(), params, Batch(BATCH.inputs, mixed, ROWS))
    parts = []
    for label in (0, 1):
        same = Batch(BATCH.inputs, torch.full((N,), label), ROWS)
        table = torch.softmax(params[TABLE], 1)
        shares = (0.3 * table[0] + 0.7 * table[1]).expand(N, K)
        right, _ = objective()._experts(params, same, None)
        parts.append((shares * right).sum(1))
    gate = torch.log(literal(params).gate)
    expected = -(0.3 * parts[0] + 0.7 * parts[1] + (shares * gate).sum(1)).mean()
    close(found, expected)


def test_a_column_takes_the_place_of_the_label() -> None:
    params, column = given(), torch.tensor([9, 9, 2, 0, 1, 1, 2, 0, 2, 1])[2:] % 3
    table = draw(3, K)
    here = {**params, TABLE: table}
    order = torch.tensor([5, 0, 3])
    batch = Batch(BATCH.inputs[order], LABELS[order], order)
    frequency = torch.bincount(column, minlength=3).to(DTYPE) / N
    found = loss(objective(), here, batch, **{CONDITIONS: column, FREQUENCIES: frequency})
    right, features = objective()._experts(here, batch, None)
    shares = torch.softmax(table, 1)
    hidden = torch.einsum("k,knf->nf", frequency @ shares, features)
    gate = torch.log_softmax(hidden @ here[GATE_WEIGHT] + here[GATE_BIAS], 1)
    close(found, -(shares[column[order]] * (right + gate)).sum(1).mean())


@pytest.mark.parametrize(("values", "good"), [([0, 2], True), ([], True), ([0, 3], False),
                                              ([-1, 0], False)])  # fmt: skip
def test_conditions_are_numbers_below_their_count(values: list[int], good: bool) -> None:
    assert check_conditions(np.array(values, np.int64), 3) is good


# -- the bounds ---------------------------------------------------------------------------------


def test_equation_3_is_above_5_which_is_above_the_map_objective_for_every_sample() -> None:
    params = given()
    for row in range(N):
        one = Batch(BATCH.inputs[row : row + 1], LABELS[row : row + 1], ROWS[row : row + 1])
        direct = -loss(objective(entropy="direct"), params, one)
        bound = -loss(objective(entropy="local"), params, one)
        plain = -loss(objective(), params, one)
        assert direct > bound > plain
        entropy = torch.special.entr(torch.softmax(params[TABLE], 1)[LABELS[row]]).sum()
        close(bound - plain, entropy)


def test_direct_is_the_likelihood_of_the_mixture() -> None:
    params = given()
    parts = literal(params)
    expected = -torch.log((parts.gate * parts.right).sum(1)).mean()
    close(loss(objective(entropy="direct"), params), expected)


def test_equations_3_and_5_are_equal_at_the_exact_posterior() -> None:
    params = given()
    one = Batch(BATCH.inputs[:1], LABELS[:1], ROWS[:1])
    for _ in range(60):  # the gate's input depends on q: a fixed point
        parts = literal(params)
        joint = (parts.right * parts.gate)[0]
        posterior = torch.log(joint / joint.sum()).detach()
        params[TABLE] = posterior.expand(C, K).clone()
    direct = loss(objective(entropy="direct"), params, one)
    close(loss(objective(entropy="local"), params, one), direct)


# -- shares of a device -------------------------------------------------------------------------


def stepped(
    own: torch.Tensor, right: torch.Tensor, kept: tuple[int, ...] = (0, 1, 2), damping: float = 0.75
) -> torch.Tensor:
    return objective(kept, by_device=True, damping=damping)._stepped(own, right)


def test_equation_13_by_hand() -> None:
    joint = torch.log(torch.tensor([0.5, 0.25, 0.125], dtype=DTYPE))  # 4 : 2 : 1
    own = torch.tensor([0.2, 0.2, 0.6], dtype=DTYPE)
    expected = 0.75 * own + 0.25 * torch.tensor([4 / 7, 2 / 7, 1 / 7], dtype=DTYPE)
    close(stepped(own, joint), expected)
    close(stepped(own, joint + 123.0), expected)  # a constant changes nothing
    close(stepped(own, joint, damping=0.0), torch.tensor([4 / 7, 2 / 7, 1 / 7], dtype=DTYPE))


def test_equation_11_maximises_equation_10() -> None:
    """pi = softmax of the means is where sum pi a - sum pi log pi is largest."""
    joint = draw(K)
    best = stepped(torch.full((K,), 1 / K, dtype=DTYPE), joint, damping=0.0)

    def bound(shares: torch.Tensor) -> torch.Tensor:
        value: torch.Tensor = (shares * joint).sum() + torch.special.entr(shares).sum()
        return value

    others = torch.softmax(torch.log(best) + 0.3 * draw(200, K), 1)
    assert all(bound(best) > bound(each) for each in others)


def test_experts_that_are_not_here_keep_their_shares() -> None:
    own = torch.tensor([0.2, 0.5, 0.3], dtype=DTYPE)
    after = stepped(own, torch.log(torch.tensor([0.9, 1.0, 0.1], dtype=DTYPE)), (0, 2))
    close(after, torch.tensor([0.75 * 0.2 + 0.25 * 0.45, 0.5, 0.75 * 0.3 + 0.25 * 0.05],
                              dtype=DTYPE))  # fmt: skip
    close(after.sum(), torch.tensor(1.0, dtype=DTYPE))


def test_shares_of_a_device_step_by_the_batch() -> None:
    own = torch.tensor([0.5, 0.3, 0.2], dtype=DTYPE)
    params = {**given(), SHARES: own}
    of = objective(by_device=True)
    value, after = of.loss_and_values(MODEL.forward, params, BATCH, Context({}))
    right, features = of._experts(params, BATCH, None)
    hidden = torch.einsum("k,knf->nf", own, features)
    gate = torch.log_softmax(hidden @ params[GATE_WEIGHT] + params[GATE_BIAS], 1)
    close(value, -(own * (right + gate)).sum(1).mean())
    found = torch.softmax((right + gate).mean(0), 0)
    close(after[SHARES], 0.75 * own + 0.25 * found)
    assert of.assigned == (SHARES,)
    assert objective().assigned == ()
