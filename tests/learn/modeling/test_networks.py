"""The networks of the papers: their sizes, and what sets each of them apart."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import grad, vmap

from edgefed.config.recipes.recipe import ModelSection
from edgefed.errors import DataError, RecipeError
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import build, seeded
from edgefed.learn.networks.lstm import CharacterLstm
from edgefed.learn.networks.resnet18 import NarrowShortcut

CIFAR = (3, 32, 32)
MNIST = (1, 28, 28)
LINE = (80,)


def make(name: str, shape: tuple[int, ...], classes: int, **settings: Any) -> Model:
    return build(ModelSection(name=name, **settings), shape, classes, seed=1)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "settings", "expected"),
    [
        ("lenet5", MNIST, 62, {}, 48_846),
        ("lenet5", MNIST, 62, {"padding": 2}, 66_126),
        ("lenet5-wide", CIFAR, 10, {}, 878_538),
        ("lenet5-wide", CIFAR, 10, {"channels": [61, 122]}, 1_758_050),
        ("lenet5-wide", CIFAR, 10, {"channels": [113, 226]}, 3_545_706),
        ("lenet5-wide", MNIST, 62, {}, 608_702),
        ("lenet5-wide", MNIST, 10, {"channels": [20, 50], "hidden": 500}, 431_080),
        ("mlp", MNIST, 10, {"hidden": [200, 200]}, 199_210),
        ("vgg9", CIFAR, 10, {}, 3_491_530),
        ("vgg9", CIFAR, 100, {}, 3_537_700),
        ("vgg9", CIFAR, 10, {"dropout_layout": "fedma"}, 3_491_530),
        ("vgg9", CIFAR, 10, {"dropout_layout": "none"}, 3_491_530),
        ("resnet18", CIFAR, 10, {}, 11_173_962),
        ("resnet18", CIFAR, 10, {"norm": "group"}, 11_173_962),
        ("resnet20", CIFAR, 100, {}, 275_572),
        ("resnet20", CIFAR, 10, {"norm": "batch"}, 269_722),
        ("lstm", LINE, 84, {}, 820_980),
        ("lstm", LINE, 80, {"layers": 1}, 293_584),
    ],
)
def test_a_network_has_the_papers_number_of_parameters(
    name: str, shape: tuple[int, ...], classes: int, settings: dict[str, Any], expected: int
) -> None:
    with torch.device("meta"):
        model = make(name, shape, classes, **settings)
    sizes = {key: part.numel() for key, part in model.module.named_parameters()}
    assert sum(sizes[key] for key in model.parameter_names) == expected


def test_the_wide_lenets_cost_what_the_paper_says_they_cost() -> None:
    """Table 1: 2,000 rounds of 10 clients, both ways, in GiB; 61 and 113 stand for 2 and 4."""
    sizes = []
    for channels in (32, 61, 113):
        with torch.device("meta"):
            model = make("lenet5-wide", CIFAR, 10, channels=[channels, 2 * channels])
        sizes.append(sum(part.numel() for part in model.module.parameters()))
    assert sizes[0] * 4 * 2 * 10 * 2000 / 2**30 == pytest.approx(130.92, abs=0.02)
    assert [size / sizes[0] for size in sizes[1:]] == pytest.approx([2, 4], rel=0.01)


def dropouts(layout: str) -> list[tuple[str, str, float]]:
    with torch.device("meta"):
        model = make("vgg9", CIFAR, 10, dropout_layout=layout)
    order = [name for name, part in model.module.named_children() if not isinstance(part, nn.ReLU)]
    return [
        (order[order.index(name) - 1], type(part).__name__, part.p)
        for name, part in model.module.named_children()
        if isinstance(part, nn.Dropout | nn.Dropout2d)
    ]


def test_the_two_papers_drop_out_in_other_places() -> None:
    assert dropouts("fedmix") == [
        ("pool2", "Dropout", 0.1),
        ("pool3", "Dropout", 0.1),
        ("fc2", "Dropout", 0.1),
    ]
    assert dropouts("fedma") == [
        ("pool2", "Dropout2d", 0.05),
        ("pool3", "Dropout", 0.1),
        ("fc2", "Dropout", 0.1),
    ]
    assert dropouts("none") == []


def test_resnet18_is_torchvisions_but_for_its_first_layer() -> None:
    from torchvision.models import resnet18

    model = make("resnet18", (3, 16, 16), 5)
    theirs = resnet18(num_classes=5)
    theirs.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    theirs.maxpool = nn.Identity()
    theirs.load_state_dict(model.module.state_dict())
    inputs = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    assert torch.equal(theirs.eval()(inputs), model.module.eval()(inputs))
    spread = float(model.module.state_dict()["conv1.weight"].std())
    assert spread == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.1)


@pytest.mark.parametrize("name", ["resnet18", "resnet20"])
def test_group_normalisation_keeps_no_statistics_and_batch_normalisation_does(name: str) -> None:
    with torch.device("meta"):
        group = make(name, CIFAR, 10, norm="group", groups=4)
        batch = make(name, CIFAR, 10, norm="batch")
    assert (group.has_batch_norm, batch.has_batch_norm) == (False, True)
    assert group.buffer_names == ()
    assert any(key.endswith("running_var") for key in batch.buffer_names)
    groups = {part.num_groups for part in group.module.modules() if isinstance(part, nn.GroupNorm)}
    assert groups == {4}
    with pytest.raises(RecipeError, match=r"model\.groups = 3"):
        make(name, CIFAR, 10, groups=3)


def test_resnet20_has_twenty_layers_and_shortcuts_without_weights() -> None:
    with torch.device("meta"):
        model = make("resnet20", CIFAR, 10)
    kinds = [type(part) for part in model.module.modules()]
    assert kinds.count(nn.Conv2d) + kinds.count(nn.Linear) == 20
    assert not [key for key in model.names if "shortcut" in key or "downsample" in key]


def test_a_shortcut_subsamples_and_pads_with_channels_of_zeros() -> None:
    model = make("resnet20", (1, 8, 8), 3)
    block = model.module.get_submodule("stage2block1")
    for part in block.parameters():
        nn.init.zeros_(part)
    inputs = torch.rand(1, 16, 8, 8)
    outputs = block(inputs)
    assert torch.equal(outputs[:, 8:24], inputs[:, :, ::2, ::2])
    assert not outputs[:, :8].any()
    assert not outputs[:, 24:].any()


@pytest.mark.parametrize("layers", [1, 2])
def test_the_lstm_is_torchs(layers: int) -> None:
    module = make("lstm", (7,), 5, layers=layers, hidden=6, embedding=4).module
    assert isinstance(module, CharacterLstm)
    with seeded(1):
        embedding, lstm = nn.Embedding(5, 4), nn.LSTM(4, 6, layers, batch_first=True)
        decoder = nn.Linear(6, 5)
    theirs = nn.ModuleDict({"embedding": embedding, "lstm": lstm, "decoder": decoder}).state_dict()
    ours = module.state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(part, theirs[name]) for name, part in ours.items())
    _compare(module, [lstm])


@pytest.mark.parametrize("widths", [(6, 3), (2, 5, 5)])
def test_layers_of_an_lstm_may_have_different_widths(widths: tuple[int, ...]) -> None:
    module = make("lstm", (7,), 5, widths=widths, embedding=4, hidden=9, layers=1).module
    assert isinstance(module, CharacterLstm)
    assert module.decoder.weight.shape == (5, widths[-1])
    stages = [nn.LSTM(*sizes, batch_first=True) for sizes in pairwise((4, *widths))]
    ours = module.lstm.state_dict()
    for layer, stage in enumerate(stages):
        bound = stage.hidden_size**-0.5
        for name, part in stage.state_dict().items():
            own = ours[name.replace("_l0", f"_l{layer}")]
            assert own.shape == part.shape
            assert own.abs().max() <= bound
        assert ours[f"weight_hh_l{layer}"].abs().max() > 0.7 * bound
    _compare(module, stages)


@pytest.mark.parametrize("widths", [[0], [3] * 17, [3, 65_537]])
def test_widths_of_an_lstm_have_bounds(widths: list[int]) -> None:
    with pytest.raises(RecipeError, match="widths"):
        make("lstm", (7,), 5, widths=widths)


def _compare(module: CharacterLstm, stages: Sequence[nn.LSTM]) -> None:
    """Compare scores and gradients with those of torch's layers of the same weights."""
    module.double()
    theirs = [part for stage in stages for part in stage.double().parameters()]
    with torch.no_grad():
        for part, ours in zip(theirs, module.lstm.parameters(), strict=True):
            part.copy_(ours)
    tokens = torch.randint(5, (3, 7), generator=torch.Generator().manual_seed(2))
    values = module.embedding(tokens)
    for stage in stages:
        values = stage(values)[0]
    expected = module.decoder(values[:, -1])
    around = (module.embedding.weight, *theirs, *module.decoder.parameters())
    wanted = torch.autograd.grad(expected.square().sum(), around)
    # One is torch's kernel, the other, under a transform, the steps spelled out.
    for scores in (module(tokens), vmap(module)(tokens[None])[0]):
        torch.testing.assert_close(scores, expected, rtol=1e-12, atol=1e-12)
        gradient = torch.autograd.grad(scores.square().sum(), list(module.parameters()))
        torch.testing.assert_close(gradient, wanted, rtol=1e-9, atol=1e-12)


def test_the_lstm_can_be_differentiated_twice() -> None:
    """Along its embedding, as a mixture with averaged data does."""
    model = make("lstm", (6,), 5, hidden=4)
    model.module.double()
    tokens = torch.randint(5, (2, 6), generator=torch.Generator().manual_seed(2))
    params = {name: part.detach() for name, part in model.module.named_parameters()}
    table = params.pop("embedding.weight")
    along, step = torch.ones_like(table), 1e-5

    def loss(embedding: torch.Tensor) -> torch.Tensor:
        return model.forward({**params, "embedding.weight": embedding}, tokens).square().sum()

    def slope(embedding: torch.Tensor) -> torch.Tensor:
        gradient: torch.Tensor = grad(loss)(embedding)
        return (gradient * along).sum()

    numeric = (loss(table + step * along) - loss(table - step * along)) / (2 * step)
    torch.testing.assert_close(slope(table), numeric, rtol=1e-6, atol=1e-9)
    bend = (slope(table + step * along) - slope(table - step * along)) / (2 * step)
    torch.testing.assert_close((grad(slope)(table) * along).sum(), bend, rtol=1e-6, atol=1e-9)


def test_the_lstm_takes_as_many_tokens_as_classes_or_as_it_is_told() -> None:
    assert make("lstm", (4,), 9, hidden=2).vocabulary == 9
    wide = make("lstm", (4,), 3, hidden=2, vocabulary=50)
    assert wide.vocabulary == 50
    assert wide.weights()["embedding.weight"].shape == (50, 8)
    assert wide.input_kind is np.int64
    assert make("mlp", (4,), 9).vocabulary is None


@pytest.mark.parametrize("shape", [(), (0,), (1, 28, 28)])
def test_an_lstm_takes_sequences_only(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match="sequences of tokens") as caught:
        make("lstm", shape, 5)
    assert caught.value.code == "model.input"


@pytest.mark.parametrize("name", ["cnn", "lenet5-wide", "resnet18", "resnet20", "vgg9"])
@pytest.mark.parametrize("shape", [(), (5,), (3, 3), (3, 3, 3)])
def test_an_image_network_refuses_other_inputs(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match=name) as caught:
        make(name, shape, 2)
    assert caught.value.code == "model.input"
    assert "mlp" in caught.value.hint


def test_a_narrow_shortcut_computes_a_convolution_of_stride_2() -> None:
    """Without the kernel of oneDNN that writes beyond its buffer, hence in double precision."""
    torch.manual_seed(0)
    narrow = NarrowShortcut(4, 6, 1, 2, bias=False).double()
    images = torch.linspace(-1, 1, 200).double().reshape(2, 4, 5, 5).requires_grad_()
    found = [
        (outputs, *torch.autograd.grad(outputs.square().sum(), [images, narrow.weight]))
        for outputs in (narrow(images), nn.functional.conv2d(images, narrow.weight, stride=2))
    ]
    for left, right in zip(*found, strict=True):
        torch.testing.assert_close(left, right)
