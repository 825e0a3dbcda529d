"""Gradient clipping: torch's factor, never a longer gradient, and each client of a stack alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from edgefed.learn.steps.gradient_clipping import clipped, clipped_each

SHAPES = [(5, 7), (7,), (2, 3, 2), ()]


def gradients(
    seed: int, kind: torch.dtype = torch.float64, size: float = 1.0
) -> list[torch.Tensor]:
    numbers = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=numbers, dtype=kind) * size for shape in SHAPES]


def norm(parts: list[torch.Tensor]) -> float:
    return float(torch.cat([part.reshape(-1) for part in parts]).norm())


@pytest.mark.parametrize("limit", [1e-3, 0.5, 5.0, 1000.0])
@pytest.mark.parametrize(("kind", "error"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
def test_it_is_torchs_clipping(limit: float, kind: torch.dtype, error: float) -> None:
    theirs = [torch.zeros(shape, dtype=kind, requires_grad=True) for shape in SHAPES]
    for weight, gradient in zip(theirs, gradients(1, kind), strict=True):
        weight.grad = gradient.clone()
    torch.nn.utils.clip_grad_norm_(theirs, limit)
    for ours, weight in zip(clipped(gradients(1, kind), limit), theirs, strict=True):
        torch.testing.assert_close(ours, weight.grad, rtol=error, atol=error)


@given(st.integers(0, 1000), st.floats(1e-3, 1e3), st.floats(0, 1e3))
def test_no_gradient_gets_longer_than_it_was_or_than_the_limit(
    seed: int, limit: float, size: float
) -> None:
    before = gradients(seed, size=size)
    after = norm(clipped(before, limit))
    assert after <= min(norm(before), limit) * (1 + 1e-9)


def test_without_a_limit_gradients_stay_the_same_tensors() -> None:
    before = gradients(2)
    assert clipped(before, 0.0) is before
    assert clipped_each(before, 0.0) is before


def test_clients_of_a_stack_are_clipped_as_each_alone() -> None:
    each = [gradients(seed, size=size) for seed, size in enumerate((0.01, 1.0, 30.0))]
    stacked = clipped_each([torch.stack(parts) for parts in zip(*each, strict=True)], 2.0)
    for number, alone in enumerate(each):
        for ours, theirs in zip(stacked, clipped(alone, 2.0), strict=True):
            torch.testing.assert_close(ours[number], theirs, rtol=1e-12, atol=0)


def test_gradients_of_zero_stay_zero() -> None:
    assert norm(clipped([torch.zeros(3)], 0.1)) == 0
