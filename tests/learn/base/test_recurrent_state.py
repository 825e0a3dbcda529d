"""A recurrent state that is carried from batch to batch, against torch's own LSTM in a loop."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import vmap
from torch.nn import functional

from edgefed.config.recipes.recipe import ModelSection
from edgefed.errors import DataError, UsageError
from edgefed.learn.base.types import (
    Batch,
    Context,
    Forward,
    Job,
    Objective,
    Params,
    Samples,
    Schedule,
)
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import build
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.fed_mix import FedMixObjective
from edgefed.learn.objectives.local_mix import LocalMixObjective
from edgefed.learn.objectives.logit_calibration import LogitCalibration
from edgefed.learn.objectives.manifold_mixing import ManifoldMixing
from edgefed.learn.objectives.proximal import Proximal
from edgefed.learn.objectives.restricted_softmax import RestrictedSoftmax
from edgefed.learn.objectives.squared_error import SquaredError
from edgefed.learn.samples.sample_order import permutations
from edgefed.learn.training.stacked_trainer import StackedTrainer
from edgefed.learn.training.trainer import Trainer
from tests.learn import worlds

LETTERS, WINDOW = 7, 6
WIDTHS = pytest.mark.parametrize("widths", [(5,), (5, 5), (4, 6)])
SCHEDULE = Schedule(2, batch_size=4, learning_rate=0.5, momentum=0.9, carry_state=True)


def model(*widths: int) -> Model:
    section = ModelSection.model_validate({"name": "lstm", "widths": widths, "embedding": 3})
    return build(section, (WINDOW,), LETTERS, 1)


def text(count: int = 11) -> Samples:
    """Return windows of a text: batches of 4 and a last one of 3."""
    rng = np.random.default_rng(2)
    letters = rng.integers(0, LETTERS, count + WINDOW)
    windows = np.lib.stride_tricks.sliding_window_view(letters, WINDOW + 1)
    return Samples(windows[:, :-1].copy(), windows[:, -1].copy())


def by_torch(made: Model, samples: Samples, widths: tuple[int, ...], carry: bool) -> Params:
    """Train torch's own layers on the samples in their order; return the weights by our names."""
    params = {name: torch.tensor(array) for name, array in made.weights().items()}
    stages = [nn.LSTM(*sizes, batch_first=True) for sizes in pairwise((3, *widths))]
    own = {name: part for name, part in params.items() if not name.startswith("lstm.")}
    for part in own.values():
        part.requires_grad_()
    for layer, stage in enumerate(stages):
        for name, part in stage.named_parameters():
            ours = f"lstm.{name.removesuffix('0')}{layer}"
            part.data.copy_(params[ours])
            own[ours] = part
    optimizer = torch.optim.SGD(own.values(), lr=0.5, momentum=0.9)
    inputs, labels = torch.from_numpy(samples.inputs), torch.from_numpy(samples.targets)
    for _ in range(2):
        states: list[tuple[torch.Tensor, torch.Tensor] | None] = [None] * len(stages)
        for rows in torch.split(torch.arange(len(samples)), 4):
            values = functional.embedding(inputs[rows], own["embedding.weight"])
            for layer, stage in enumerate(stages):
                state = states[layer] if carry else None
                if state is not None:
                    hidden, cell = state
                    begin = hidden[:, : len(rows)].detach(), cell[:, : len(rows)].detach()
                    values, states[layer] = stage(values, begin)
                else:
                    values, states[layer] = stage(values)
            scores = functional.linear(values[:, -1], own["decoder.weight"], own["decoder.bias"])
            optimizer.zero_grad()
            torch.autograd.backward(functional.cross_entropy(scores, labels[rows]))
            optimizer.step()
    return {name: part.detach() for name, part in own.items()}


@WIDTHS
def test_a_carried_state_is_that_of_a_loop_by_hand(widths: tuple[int, ...]) -> None:
    made, samples = model(*widths), text()
    ours = Trainer(made, "cpu").train(Job(made.weights(), CrossEntropy(), SCHEDULE, 3), samples)
    theirs = by_torch(made, samples, widths, carry=True)
    without = by_torch(made, samples, widths, carry=False)
    assert list(ours.weights) == list(made.names)
    for name, array in ours.weights.items():
        np.testing.assert_allclose(array, theirs[name].numpy(), rtol=1e-5, atol=1e-6)
    # The comparison tells the two apart.
    apart = [float((theirs[name] - without[name]).abs().max()) for name in made.names]
    assert max(apart) > 1e-3


def test_the_samples_keep_their_order_and_the_seed_does_not_matter() -> None:
    for order in permutations(5, SCHEDULE, seed=3):
        assert order.tolist() == [0, 1, 2, 3, 4]
    made, samples = model(5), text()
    first, other = (
        Trainer(made, "cpu").train(Job(made.weights(), CrossEntropy(), SCHEDULE, seed), samples)
        for seed in (3, 4)
    )
    for name, array in first.weights.items():
        assert np.array_equal(array, other.weights[name])


@WIDTHS
def test_a_text_in_two_pieces_is_read_as_in_one(widths: tuple[int, ...]) -> None:
    made = model(*widths)
    made.module.double()
    params = {name: torch.from_numpy(array) for name, array in made.weights().items()}
    tokens = torch.from_numpy(text(12).inputs[[0, 1, 6, 7]])
    whole = made.forward(params, torch.cat([tokens[:2], tokens[2:]], dim=1))
    carried = made.carrying_state()
    assert torch.equal(carried(params, tokens[:2]), made.forward(params, tokens[:2]))
    torch.testing.assert_close(carried(params, tokens[2:]), whole, rtol=1e-12, atol=1e-12)
    carried.reset()
    assert torch.equal(carried(params, tokens[:2]), made.forward(params, tokens[:2]))

    def read(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        spelled = made.carrying_state()
        spelled(params, first)
        return spelled(params, second)

    # The steps spelled out, as under a transform, carry the same state.
    (seen,) = vmap(read)(tokens[None, :2], tokens[None, 2:])
    torch.testing.assert_close(seen, whole, rtol=1e-12, atol=1e-12)


def test_a_state_is_carried_below_a_head_that_is_trained_alone() -> None:
    ended = []
    for train in ("head", "last:1"):
        section = {"name": "lstm", "widths": (5,), "embedding": 3, "train": train}
        made = build(ModelSection.model_validate(section), (WINDOW,), LETTERS, 1)
        job = Job(made.weights(), CrossEntropy(), SCHEDULE, 3)
        ended.append(Trainer(made, "cpu").train(job, text()).weights)
    head, last = ended
    assert head.keys() == last.keys() == {"decoder.weight", "decoder.bias"}
    assert all(np.allclose(head[name], last[name], atol=1e-6) for name in head)


def _lacks_bf16() -> bool:
    """Whether torch has no recurrent network in bf16 for this processor."""
    try:
        with torch.autocast("cpu", torch.bfloat16):
            torch.nn.LSTM(2, 2)(torch.zeros(1, 1, 2))
    except RuntimeError:
        return True
    return False


NEEDS_BF16 = pytest.mark.skipif(_lacks_bf16(), reason="needs a processor with bf16, as AVX-512 has")


@pytest.mark.parametrize("precision", ["fp32", pytest.param("bf16", marks=NEEDS_BF16)])
def test_a_job_begins_with_an_empty_state(precision: str) -> None:
    made, samples = model(5, 4), text()
    schedule = Schedule(1, batch_size=4, carry_state=True, precision=precision)
    trainer, job = Trainer(made, "cpu"), Job(made.weights(), CrossEntropy(), schedule, 3)
    first, again = trainer.train(job, samples), trainer.train(job, samples)
    for name, array in first.weights.items():
        assert np.array_equal(array, again.weights[name])


# -- what a state cannot be carried with ----------------------------------------------------------


def twice(forward: Forward, params: Params, batch: Batch, context: Context) -> torch.Tensor:
    """Call the model more than once."""
    return (forward(params, batch.inputs) - forward(params, batch.inputs)).sum()


@pytest.mark.parametrize(
    "objective",
    [
        twice,
        LocalMixObjective(1.0),
        Proximal(FedMixObjective(0.1), 0.1),
        ManifoldMixing(FedMixObjective(0.1), 1),
    ],
)
def test_an_objective_of_several_passes_is_refused(objective: Objective) -> None:
    made = model(5)
    with pytest.raises(DataError, match="more than once per step") as refused:
        Trainer(made, "cpu").train(Job(made.weights(), objective, SCHEDULE, 3), text())
    assert refused.value.code == "train.carry_state"


@pytest.mark.parametrize(
    "objective",
    [Proximal(CrossEntropy(), 0.1), LogitCalibration(), RestrictedSoftmax()],
)
def test_an_objective_of_one_pass_is_trained(objective: Objective) -> None:
    made, samples = model(5), text()
    counts = np.bincount(samples.targets, minlength=LETTERS).astype(np.float32)
    job = Job(made.weights(), objective, SCHEDULE, 3, extra={"label_counts": counts})
    assert np.isfinite(Trainer(made, "cpu").train(job, samples).loss)


class Summed(nn.Module):
    """A recurrent model that is no LSTM: its state is the sum of a row's inputs so far."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm
        self.out = nn.Linear(WINDOW, LETTERS)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.forward_with_state(inputs, ())[0]

    def forward_with_state(
        self, inputs: torch.Tensor, state: tuple[torch.Tensor, ...]
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        after = inputs.float() + (state[0] if state else 0)
        outputs: torch.Tensor = self.out(self.norm(after))
        return outputs, (after,)


def test_a_users_own_model_may_have_a_state() -> None:
    made, samples = Model(Summed(nn.Identity()), (WINDOW,), LETTERS, LETTERS), text(7)
    schedule = Schedule(1, batch_size=4, learning_rate=0.01, carry_state=True)
    job = Job(made.weights(), CrossEntropy(), schedule, 3)
    ours = Trainer(made, "cpu").train(job, samples).weights
    summed = samples.inputs.astype(np.float32)
    summed[4:] += summed[:3]
    weight, bias = (nn.Parameter(torch.tensor(job.weights[f"out.{n}"])) for n in ("weight", "bias"))
    for rows in (slice(0, 4), slice(4, 7)):
        scores = functional.linear(torch.from_numpy(summed[rows]), weight, bias)
        loss = functional.cross_entropy(scores, torch.from_numpy(samples.targets[rows]))
        for part, slope in zip(
            (weight, bias), torch.autograd.grad(loss, (weight, bias)), strict=True
        ):
            part.data -= 0.01 * slope
    np.testing.assert_allclose(ours["out.weight"], weight.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("made", "samples", "said"),
    [
        (worlds.model("mlp"), worlds.samples(8), "the model has none"),
        (
            Model(Summed(nn.BatchNorm1d(WINDOW)), (WINDOW,), LETTERS, LETTERS),
            text(),
            "batch normalisation",
        ),
    ],
)
def test_a_model_without_a_state_of_each_sample_is_refused(
    made: Model, samples: Samples, said: str
) -> None:
    with pytest.raises(DataError, match=said) as refused:
        Trainer(made, "cpu").train(Job(made.weights(), SquaredError(), SCHEDULE, 3), samples)
    assert refused.value.code == "train.carry_state"


def test_a_stack_of_clients_carries_no_state() -> None:
    made = model(5)
    with pytest.raises(UsageError, match="many clients at once") as refused:
        StackedTrainer(made, "cpu").train(
            [Job(made.weights(), CrossEntropy(), SCHEDULE, 3)], [text()]
        )
    assert refused.value.code == "train.stack"
