"""The compiled gradient of a mixture: torch's numbers up to rounding, and only where it fits."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from edgefed.learn.base.rate_schedule import RateSchedule
from edgefed.learn.base.types import Batch, Context, Job, Params, Schedule
from edgefed.learn.compiled.compiled_experts import CompiledExperts, compiled_experts_of
from edgefed.learn.modeling.model import Model
from edgefed.learn.networks.blocks import ConvPoolReLU
from edgefed.learn.objectives.expert_mixture import (
    CONDITIONS,
    FREQUENCIES,
    GATE_BIAS,
    GATE_WEIGHT,
    TABLE,
)
from edgefed.learn.steps.capabilities import Phase
from edgefed.learn.training.trainer import Trainer
from edgefed.native.library import native
from tests.learn import worlds
from tests.learn.mixtures import Mixture

pytestmark = pytest.mark.skipif(native().library is None, reason=native().reason or "built")


COSINE = RateSchedule("cosine", warm_up=0.25)


def chain_for(mixture: Mixture, params: Params, room: int = 40) -> CompiledExperts | None:
    phase = Phase(mixture.objective, mixture.trained)
    return compiled_experts_of(phase, params, mixture.extras(), "fp32", room)


def check(mixture: Mixture) -> None:
    """Compare loss, gradients and assigned values with torch's, in float64."""
    params, names = mixture.params(), mixture.trained
    chain = chain_for(mixture, params)
    assert chain is not None
    got = chain.gradients(mixture.batch, names, Context({}))
    assert got is not None
    wide, batch = mixture.params(torch.float64), mixture.batch
    targets = batch.targets.double() if batch.targets.is_floating_point() else batch.targets
    mixture.objective.model.module.double()
    exact, values = mixture.objective.loss_and_values(
        mixture.objective.model.forward,
        wide,
        Batch(batch.inputs.double(), targets, batch.rows),
        Context({}, mixture.extras()),
    )
    mixture.objective.model.module.float()
    wanted = torch.autograd.grad(
        exact, [wide[name] for name in names], allow_unused=True, materialize_grads=True
    )
    torch.testing.assert_close(got[0], exact.float(), rtol=1e-5, atol=1e-6)
    for name, one, other in zip(names, got[1], wanted, strict=True):
        near(one, other.float(), name)
    for name, value in values.items():
        near(params[name].detach(), value.detach().float(), name)


def near(found: torch.Tensor, wanted: torch.Tensor, name: str) -> None:
    largest = max(1e-2, float(wanted.abs().max()))
    assert float((found - wanted).abs().max()) <= 1e-4 * largest, name


def cnn() -> Model:
    return worlds.model("cnn", width=3, hidden=9)


def chain_model(before: int, hidden: list[int], classes: int) -> Model:
    widths = [before, *hidden, classes]
    layers: list[nn.Module] = []
    for one, other in pairwise(widths):
        layers += [nn.Linear(one, other), nn.ReLU()]
    return Model(nn.Sequential(*layers[:-1]), (before,), classes)


def bare_model() -> Model:
    """Return a model whose features are a convolution's output."""
    layers = nn.Sequential(ConvPoolReLU(1, 3, 3, 1), nn.Flatten(), nn.Linear(48, 4))
    return Model(layers, (1, 8, 8), 4)


@st.composite
def mixtures(draw: st.DrawFn) -> Mixture:
    flag = st.booleans()
    hidden = draw(st.lists(st.integers(1, 20), max_size=2))
    sizes = st.integers(1, 20), st.integers(2, 12)
    model = draw(
        st.sampled_from([cnn, bare_model])
        | st.builds(lambda a, c: lambda: chain_model(a, hidden, c), *sizes)
    )()
    experts = draw(st.integers(1, 4))
    numbers = st.sets(st.integers(0, experts - 1), min_size=1)
    entropies: list[Literal["none", "local"]] = ["none", "local"]
    return Mixture(
        model,
        experts,
        sorted(draw(numbers)),
        size=draw(st.integers(1, 33)),
        seed=draw(st.integers(0, 1000)),
        by_column=draw(flag),
        soft=draw(flag),
        by_device=draw(flag),
        has_bias=draw(flag),
        detaches=draw(flag),
        prunes_gate=draw(flag),
        entropy=draw(st.sampled_from(entropies)),
        skip_below=draw(st.sampled_from([0.0, 0.2])),
    )


@settings(max_examples=40, deadline=None)
@given(mixtures())
def test_loss_and_gradients_are_torchs(mixture: Mixture) -> None:
    check(mixture)


@pytest.mark.parametrize("prunes_gate", [False, True])
@pytest.mark.parametrize("skip_below", [0.0, 0.2])
def test_an_expert_below_the_threshold_gets_no_gradient(
    prunes_gate: bool, skip_below: float
) -> None:
    mixture = Mixture(
        cnn(), 4, (0, 1, 3), threshold=1.0, prunes_gate=prunes_gate, skip_below=skip_below
    )
    table = torch.tensor(mixture.variables[TABLE])
    own = torch.tensor(mixture.extra[FREQUENCIES]) @ torch.softmax(table, 1)
    unused = [k for k in (0, 1, 3) if own[k] < 1 / 4]
    assert unused
    assert len(unused) < 3
    check(mixture)
    params = mixture.params()
    chain = chain_for(mixture, params)
    assert chain is not None
    names = [name for name in mixture.trained if name.startswith(f"expert-{unused[-1]}/")]
    got = chain.gradients(mixture.batch, names, Context({}))
    assert got is not None
    assert names
    assert not any(gradient.any() for gradient in got[1])


def test_samples_are_skipped_in_the_middle_of_a_batch() -> None:
    """Images in any order of memory are copied into the order in which an expert runs them."""
    mixture = Mixture(
        cnn(), 3, size=16, sharpness=6.0, skip_below=0.1, detaches=True, has_bias=True
    )
    batch = mixture.batch
    last = batch.inputs.to(memory_format=torch.channels_last)
    larger = torch.zeros(16, 1, 10, 10)
    larger[:, :, 1:9, 1:9] = batch.inputs
    for inputs in (batch.inputs, last, larger[:, :, 1:9, 1:9]):
        mixture.batch = Batch(inputs, batch.targets, batch.rows)
        check(mixture)


@pytest.mark.parametrize("has_bias", [False, True])
def test_a_gate_alone_is_fitted(has_bias: bool) -> None:
    """Experts and table may be constants, as where a new device fits its gate."""
    mixture = Mixture(cnn(), 3, has_bias=has_bias)
    own = {GATE_WEIGHT, GATE_BIAS, "personal/bias"}
    fixed = {name: each for name, each in mixture.variables.items() if name not in own}
    trained = tuple(name for name in mixture.variables if name in own)
    job = Job(
        mixture.weights,
        mixture.objective,
        Schedule(1, 4, 0.2),
        seed=1,
        extra={**mixture.extra, **fixed},
        frozen=frozenset(mixture.weights),
        variables={name: mixture.variables[name] for name in trained},
    )
    params = {name: each for name, each in mixture.params().items() if name not in fixed}
    extra = {name: torch.tensor(each) for name, each in job.extra.items()}
    phase = Phase(mixture.objective, trained)
    assert compiled_experts_of(phase, params, extra, "fp32", 4) is not None
    compare_trainings(mixture.objective.model, job)


def compare_trainings(model: Model, job: Job) -> None:
    """Train with the kernels, again, and by torch: equal bits, and equal up to rounding."""
    samples = worlds.samples(23)
    trainer = Trainer(model, "cpu")
    quick, again = trainer.train(job, samples), trainer.train(job, samples)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("edgefed.learn.training.trainer.compiled_experts_of", lambda *_: None)
        slow = trainer.train(job, samples)
    assert quick.steps == slow.steps
    assert quick.loss == pytest.approx(slow.loss, rel=1e-5)
    assert any(
        each.tobytes() != slow.variables[name].tobytes() for name, each in quick.variables.items()
    ), "both were torch's"
    pairs = (
        (quick.weights, again.weights, slow.weights),
        (quick.variables, again.variables, slow.variables),
    )
    for found, same, wanted in pairs:
        for name, array in found.items():
            assert array.tobytes() == same[name].tobytes()
            np.testing.assert_allclose(array, wanted[name], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("schedule", "changes"),
    [
        (Schedule(epochs=2, batch_size=4, learning_rate=0.05), {}),
        (Schedule(batch_size=5, momentum=0.9, weight_decay=0.01), {"by_device": True}),
        (Schedule(batch_size=8, optimizer="adam", learning_rate=0.001), {"has_bias": True}),
        (
            Schedule(2, 5, 0.001, optimizer="adamw", weight_decay=0.1, rates=COSINE),
            {"has_bias": True},
        ),
        (
            Schedule(2, 5, 0.05, momentum=0.9, nesterov=True, max_gradient_norm=0.1),
            {"by_device": True},
        ),
        (Schedule(batch_size=8), {"threshold": 0.8, "entropy": "local", "by_column": True}),
        (Schedule(batch_size=8), {"skip_below": 0.1, "detaches": True}),
    ],
)
def test_a_training_ends_where_torchs_does(schedule: Schedule, changes: dict[str, Any]) -> None:
    mixture = Mixture(cnn(), 3, size=12, **changes)
    job = Job(
        mixture.weights,
        mixture.objective,
        schedule,
        seed=4,
        extra=mixture.extra,
        frozen=frozenset({"conv1.weight"}),
        variables=mixture.variables,
    )
    compare_trainings(mixture.objective.model, job)


def test_other_work_is_torchs() -> None:
    mixture = Mixture(cnn(), 3)
    params, phase = mixture.params(), Phase(mixture.objective, mixture.trained)
    extra = mixture.extras()
    assert compiled_experts_of(phase, params, extra, "fp32", 8) is not None
    assert compiled_experts_of(phase, params, extra, "bf16", 8) is None
    direct = replace(mixture.objective, entropy="direct")
    assert compiled_experts_of(Phase(direct, mixture.trained), params, extra, "fp32", 8) is None
    more = Phase(mixture.objective, (*mixture.trained, "other"))
    assert compiled_experts_of(more, params, extra, "fp32", 8) is None
    for name, wrong in (
        (TABLE, torch.zeros(4, 3)),
        (TABLE, torch.zeros(3, 3).t()[:, :2].repeat(1, 2)),
        (GATE_WEIGHT, torch.zeros(9, 3, dtype=torch.float64)),
        (GATE_BIAS, torch.zeros(6)[::2]),
    ):
        assert compiled_experts_of(phase, {**params, name: wrong}, extra, "fp32", 8) is None, name
    wrong_kind = {**extra, CONDITIONS: torch.zeros(9)}
    assert compiled_experts_of(phase, params, wrong_kind, "fp32", 8) is None
    chain, batch = chain_for(mixture, params, room=8), mixture.batch
    assert chain is not None
    for other in (
        Batch(torch.zeros(9, 1, 8, 8), torch.zeros(9, dtype=torch.int64)),
        Batch(batch.inputs.double(), batch.targets),
        Batch(batch.inputs, batch.targets.int()),
        Batch(batch.inputs, batch.targets[:-1]),
    ):
        assert chain.gradients(other, mixture.trained, Context({})) is None


@pytest.mark.parametrize("value", [-1, 5, 2**40])
def test_a_condition_or_label_that_is_none_reaches_no_memory(value: int) -> None:
    for by_column, message in ((True, "condition is not one"), (False, "label is not one")):
        mixture = Mixture(cnn(), 2, by_column=by_column)
        if by_column:
            mixture.extra[CONDITIONS][:] = value
        else:
            mixture.batch.targets[3] = value
        chain = chain_for(mixture, mixture.params())
        assert chain is not None
        with pytest.raises(ValueError, match=message):
            chain.gradients(mixture.batch, mixture.trained, Context({}))


def test_what_diverged_is_no_number() -> None:
    mixture = Mixture(cnn(), 2)
    mixture.batch.inputs[2, 0, 3, 3] = float("nan")
    chain = chain_for(mixture, mixture.params())
    assert chain is not None
    got = chain.gradients(mixture.batch, mixture.trained, Context({}))
    assert got is not None
    assert torch.isnan(got[0])
