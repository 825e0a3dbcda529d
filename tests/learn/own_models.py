"""Models of a user's own, right and wrong, that tests name as ``tests.learn.own_models:NAME``."""

from __future__ import annotations

from math import prod

import torch
from torch import nn

NOT_A_FUNCTION = 3


def linear(shape: tuple[int, ...], classes: int, *, hidden: int = 4) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(prod(shape), hidden),
        nn.BatchNorm1d(hidden),
        nn.Dropout(0.5),
        nn.Linear(hidden, classes),
    )


def frozen_below(shape: tuple[int, ...], classes: int) -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), 5), nn.Linear(5, classes))
    for parameter in module[1].parameters():
        parameter.requires_grad_(False)
    return module


class Words(nn.Module):
    """Takes tokens."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 3)
        self.out = nn.Linear(3 * shape[0], classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.out(self.table(inputs).flatten(1))
        return scores


class BrokenWords(Words):
    """Takes tokens, but for other lengths."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__((shape[0] + 1,), classes)


def raising(shape: tuple[int, ...], classes: int) -> nn.Module:
    raise ValueError(f"no model\nfor {classes} classes.")


def leaving(shape: tuple[int, ...], classes: int) -> nn.Module:
    raise SystemExit(3)


def no_module(shape: tuple[int, ...], classes: int) -> type[nn.Module]:
    return nn.Linear


def wrong_size(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), classes + 1))


class Pair(Words):
    """Answers two tensors."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        answer = super().forward(inputs)
        return (answer, answer)  # type: ignore[return-value]


def wrong_input(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape) + 1, classes))


def lazy(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(classes))


def nothing_to_train(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Flatten()


def half(shape: tuple[int, ...], classes: int) -> nn.Module:
    return linear(shape, classes).half()


def looking(shape: tuple[int, ...], classes: int) -> nn.Module:
    module = nn.Linear(prod(shape), classes)
    with torch.no_grad():
        module.weight /= module.weight.abs().max().item()
    return module
