"""Convolution, pooling and ReLU in one: the kernels against torch, and where torch is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.overrides import TorchFunctionMode

from edgefed.learn.networks import plain_conv, small_conv
from edgefed.learn.networks.blocks import ConvPoolReLU, conv_pool_relu, conv_pool_relu_dual
from edgefed.native.library import native

needs_kernels = pytest.mark.skipif(native().library is None, reason=native().reason or "built")

Tensors = tuple[torch.Tensor, ...]
Sizes = tuple[int, int, int, int, int, int, int]


@st.composite
def layers(draw: st.DrawFn) -> Sizes:
    """Draw batch, channels before and after, filter, height, width and padding."""
    kernel, padding = draw(st.sampled_from([3, 5])), draw(st.integers(0, 3))
    least = max(1, kernel + 1 - 2 * padding)
    height, width = draw(st.integers(least, 14)), draw(st.integers(least, 40))
    before, after = draw(st.integers(1, 20)), draw(st.integers(1, 40))
    return draw(st.integers(1, 3)), before, after, kernel, height, width, padding


def whole(sizes: Sizes, seed: int, channels_last: bool) -> Tensors:
    """Return inputs, tangent, weight and bias: whole numbers, whose sums know no order."""
    batch, before, after, kernel, height, width, _ = sizes
    chance = torch.Generator().manual_seed(seed)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.randint(-3, 4, shape, generator=chance).float()

    inputs, tangent = (numbers(batch, before, height, width) for _ in range(2))
    if channels_last:
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    weight = numbers(after, before, kernel, kernel)
    return inputs, tangent, weight, numbers(after)


def with_gradients(
    layer: Callable[..., Any], tensors: Tensors, padding: int, seeds: Tensors
) -> list[torch.Tensor]:
    """Return a layer's outputs, and the gradients of all tensors."""
    leaves = [each.detach().requires_grad_() for each in tensors]
    outputs = layer(*leaves, padding)
    outputs = (outputs,) if isinstance(outputs, torch.Tensor) else outputs
    given = [seed[: len(outputs[0])] for seed in seeds[: len(outputs)]]
    return [*outputs, *torch.autograd.grad(outputs, leaves, given)]


def seeds_like(output: torch.Tensor) -> Tensors:
    chance = torch.Generator().manual_seed(3)
    one, other = (torch.randint(-3, 4, output.shape, generator=chance).float() for _ in range(2))
    return one, other


@needs_kernels
@settings(max_examples=30, deadline=None)
@given(layers(), st.integers(0, 2**31), st.booleans())
def test_whole_numbers_give_torchs_bits_ties_and_dead_units_included(
    sizes: Sizes, seed: int, channels_last: bool
) -> None:
    inputs, tangent, weight, bias = whole(sizes, seed, channels_last)
    padding = sizes[-1]
    assert small_conv.can_take(inputs, weight, bias, padding)
    seeds = seeds_like(plain_conv.single(inputs, weight, bias, padding))
    alone, both = (inputs, weight, bias), (inputs, tangent, weight, bias)
    for ours, theirs, tensors in (
        (small_conv.single, plain_conv.single, alone),
        (small_conv.dual, plain_conv.dual, both),
    ):
        got = with_gradients(ours, tensors, padding, seeds)
        wanted = with_gradients(theirs, tensors, padding, seeds)
        for one, other in zip(got, wanted, strict=True):
            assert torch.equal(one, other)


@needs_kernels
@pytest.mark.parametrize("sizes", [(20, 1, 6, 5, 28, 28, 0), (16, 16, 32, 3, 14, 15, 1)])
def test_real_numbers_differ_by_rounding_only(sizes: Sizes) -> None:
    torch.manual_seed(1)
    batch, before, after, kernel, height, width, padding = sizes
    inputs = torch.randn(batch, before, height, width)
    weight, bias = torch.randn(after, before, kernel, kernel) * 0.1, torch.randn(after)
    got = small_conv.single(inputs, weight, bias, padding)
    wanted = plain_conv.single(inputs.double(), weight.double(), bias.double(), padding)
    torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=1e-5)


@needs_kernels
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("before", [1, 4])
def test_what_is_no_number_shows_where_it_does_in_torch(value: float, before: int) -> None:
    torch.manual_seed(2)
    inputs, weight, bias = (
        torch.randn(2, before, 11, 9),
        torch.randn(6, before, 3, 3),
        torch.zeros(6),
    )
    inputs[1, 0, 4, 5] = value
    got = small_conv.single(inputs, weight, bias, 1)
    wanted = plain_conv.single(inputs, weight, bias, 1)
    torch.testing.assert_close(got, wanted, equal_nan=True, rtol=1e-5, atol=1e-5)
    assert not torch.isfinite(got).all()


@needs_kernels
def test_a_layer_without_bias_and_a_strided_gradient() -> None:
    inputs, _, weight, _ = whole((2, 3, 5, 3, 9, 9, 1), 5, channels_last=False)
    got, wanted = (
        torch.autograd.grad(layer(inputs, leaf, None, 1).sum(), leaf)[0]
        for layer in (small_conv.single, plain_conv.single)
        for leaf in [weight.detach().clone().requires_grad_()]
    )
    assert torch.equal(got, wanted)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")
def test_the_tangent_is_forward_mode_s() -> None:
    torch.manual_seed(4)
    primal, tangent = (torch.randn(3, 2, 9, 8, dtype=torch.float64) for _ in range(2))
    weight, bias = torch.randn(4, 2, 3, 3, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    wanted = torch.func.jvp(lambda x: conv_pool_relu(x, weight, bias, 1), (primal,), (tangent,))
    got = conv_pool_relu_dual(primal, tangent, weight, bias, 1)
    torch.testing.assert_close(got, wanted)


def test_a_tangent_that_all_samples_share_need_not_be_copied() -> None:
    primal, tangent, weight, bias = whole((3, 2, 4, 3, 8, 8, 0), 6, channels_last=False)
    shared = tangent[:1].expand_as(primal)
    got = conv_pool_relu_dual(primal, shared, weight, bias, 0)
    wanted = plain_conv.dual(primal, shared, weight, bias, 0)
    assert all(torch.equal(one, other) for one, other in zip(got, wanted, strict=True))


def test_derivatives_of_gradients() -> None:
    inputs, tangent, weight, bias = whole((2, 2, 3, 3, 8, 8, 1), 7, channels_last=False)

    def length(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        return torch.cat([each.flatten() for each in tensors]).square().sum()

    def penalty(layer: Callable[..., Any], *tensors: torch.Tensor) -> list[torch.Tensor]:
        leaves = [each.detach().requires_grad_() for each in tensors]
        outputs = layer(*leaves, 1)
        total = length([outputs] if isinstance(outputs, torch.Tensor) else outputs)
        first = torch.autograd.grad(total, leaves, create_graph=True)
        return list(torch.autograd.grad(length(first), leaves))

    for ours, theirs, tensors in (
        (conv_pool_relu, plain_conv.single, (inputs, weight, bias)),
        (conv_pool_relu_dual, plain_conv.dual, (inputs, tangent, weight, bias)),
    ):
        for got, wanted in zip(penalty(ours, *tensors), penalty(theirs, *tensors), strict=True):
            torch.testing.assert_close(got, wanted)


def test_function_transforms_see_torchs_own_operations() -> None:
    inputs, _, weight, bias = whole((4, 1, 3, 3, 8, 8, 1), 8, channels_last=False)
    weights = torch.stack([weight, weight + 1])
    got = torch.func.vmap(lambda w: conv_pool_relu(inputs, w, bias, 1))(weights)
    wanted = torch.stack([plain_conv.single(inputs, each, bias, 1) for each in weights])
    assert torch.equal(got, wanted)
    slope = torch.func.grad(lambda w: conv_pool_relu(inputs, w, bias, 1).sum())(weight)
    assert slope.shape == weight.shape
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert conv_pool_relu(inputs, weight, bias, 1).dtype == torch.bfloat16


def test_a_mode_sees_one_operation() -> None:
    seen = []

    class Watch(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    layer, inputs = ConvPoolReLU(1, 2, 3), torch.zeros(1, 1, 6, 6)
    with Watch():
        layer(inputs)
    assert conv_pool_relu in seen
    assert torch.conv2d not in seen


def test_what_does_not_fit_is_torchs_error() -> None:
    layer = ConvPoolReLU(3, 2, 3)
    with pytest.raises(RuntimeError, match="channels"):
        layer(torch.zeros(1, 2, 8, 8))
    with pytest.raises(RuntimeError):
        layer(torch.zeros(1, 3, 3, 3))


@needs_kernels
def test_threads_do_not_disturb_each_other() -> None:
    work = [whole((8, 2, 6, 5, 20, 20, 0), seed, channels_last=False) for seed in range(8)]

    def one(tensors: Tensors) -> list[torch.Tensor]:
        inputs, _, weight, bias = tensors
        seeds = seeds_like(plain_conv.single(inputs, weight, bias, 0))
        return with_gradients(small_conv.single, (inputs, weight, bias), 0, seeds)

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(one, work))
    for got, tensors in zip(together, work, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(got, one(tensors), strict=True))
