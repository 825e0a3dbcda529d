"""The choice of a processor, threads, and agreement between GPU and CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgefed.errors import UsageError
from edgefed.learn.base.processors import pick_device, repeatable, set_threads
from edgefed.learn.base.types import Schedule
from edgefed.learn.training.trainer import Trainer
from tests.learn import worlds

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def test_the_gpu_is_taken_where_there_is_one() -> None:
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert pick_device().type == pick_device("auto").type == expected
    assert pick_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize("wanted", ["gpu", "cuda:99", "meta", "cpu:x"])
def test_a_device_that_is_not_there_is_a_usage_error(wanted: str) -> None:
    with pytest.raises(UsageError, match=wanted) as caught:
        pick_device(wanted)
    assert caught.value.code == "device.unavailable"


def test_threads_are_set_and_checked() -> None:
    before = torch.get_num_threads()
    try:
        set_threads(1)
        assert torch.get_num_threads() == 1
        with pytest.raises(UsageError, match="at least one"):
            set_threads(0)
    finally:
        torch.set_num_threads(before)


def test_a_repeatable_block_draws_from_its_seed_and_puts_the_generator_back() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    with repeatable(torch.device("cpu"), seed=8):
        inside = torch.rand(2)
    assert torch.equal(torch.rand(2), expected)
    assert torch.equal(inside, torch.rand(2, generator=torch.Generator().manual_seed(8)))


@needs_cuda
@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_a_gpu_trains_as_a_cpu_does(name: str) -> None:
    data = worlds.samples(60)
    job = worlds.job(worlds.model(name), Schedule(2, 16, momentum=0.9, weight_decay=1e-3))
    on_cpu = Trainer(worlds.model(name), "cpu").train(job, data)
    on_gpu = Trainer(worlds.model(name), "cuda").train(job, data)
    assert on_gpu.loss == pytest.approx(on_cpu.loss, rel=1e-4)
    for key, array in on_cpu.weights.items():
        np.testing.assert_allclose(on_gpu.weights[key], array, rtol=1e-3, atol=1e-4)
    scores = [
        Trainer(worlds.model(name), place).evaluate(on_cpu.weights, data)
        for place in ("cpu", "cuda")
    ]
    assert scores[0].loss == pytest.approx(scores[1].loss, rel=1e-5)


@needs_cuda
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_gpu_repeats_itself_bit_for_bit_and_leaves_global_state(precision: str) -> None:
    data = worlds.samples(200)
    model = worlds.model("cnn", dropout=0.5)
    job = worlds.job(model, Schedule(3, 16, momentum=0.9, precision=precision))
    trainer = Trainer(model, "cuda")
    tf32, state = torch.backends.cudnn.allow_tf32, torch.cuda.get_rng_state()
    first = trainer.train(job, data)
    assert torch.equal(torch.cuda.get_rng_state(), state)
    assert torch.backends.cudnn.allow_tf32 == tf32
    torch.cuda.manual_seed(77)
    second = trainer.train(job, data)
    assert all(np.array_equal(first.weights[key], second.weights[key]) for key in first.weights)


@needs_cuda
def test_divergence_on_a_gpu_is_noticed() -> None:
    from edgefed.errors import DataError

    model = worlds.model()
    job = worlds.job(model, Schedule(50, 4, learning_rate=1e30))
    with pytest.raises(DataError, match="diverged"):
        Trainer(model, "cuda").train(job, worlds.samples(20))
