"""Each private name of torch that the product uses does what the product relies on.

A new version of torch that lacks one fails here, with its name; after a pass of the whole suite
with a new version, ``edgefed.version.TESTED_TORCH`` is raised.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import grad, vmap
from torch.utils._python_dispatch import TorchDispatchMode

from edgefed.learn.base import torch_private

ROOT = Path(__file__).parents[3]
ADAPTER = Path("edgefed/learn/base/torch_private.py")
TORCH = ("torch", "torchvision")
DOTTED = re.compile(r"[\w.]+")

Tensors = list[torch.Tensor]

FOREACH: dict[str, tuple[Callable[[Any, Tensors], object], float]] = {
    "_foreach_add": (lambda f, own: f(own, own, alpha=0.5), 3),
    "_foreach_add_": (lambda f, own: f(own, own, alpha=0.5), 3),
    "_foreach_addcmul_": (lambda f, own: f(own, own, own, 0.5), 4),
    "_foreach_lerp_": (lambda f, own: f(own, [torch.tensor([4.0])], 0.5), 3),
    "_foreach_mul": (lambda f, own: f(own, 3.0), 6),
    "_foreach_mul_": (lambda f, own: f(own, 3.0), 6),
    "_foreach_norm": (lambda f, own: f(own), 2),
}
"""All functions ``torch._foreach_*`` of the product, called as there with 2, and their results."""


class Observed(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Do each operation as it is."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", FOREACH)
def test_foreach(name: str) -> None:
    function = getattr(torch, name, None)
    assert function is not None, f"torch {torch.__version__} has no {name}"
    call, expected = FOREACH[name]
    own = [torch.tensor([2.0])]
    returned = call(function, own)
    result = own if name.endswith("_") else returned
    assert [float(each) for each in result] == [expected]  # type: ignore[attr-defined]


def test_the_stack_of_transforms() -> None:
    stacked: list[bool] = []

    def looked(tensor: torch.Tensor) -> torch.Tensor:
        stacked.append(torch_private.peek_interpreter_stack() is not None)
        with torch_private.temporarily_clear_interpreter_stack():
            stacked.append(torch_private.peek_interpreter_stack() is not None)
        stacked.append(torch_private.peek_interpreter_stack() is not None)
        return tensor

    assert torch_private.peek_interpreter_stack() is None
    vmap(looked)(torch.zeros(2))
    assert stacked == [True, False, True]
    assert torch_private.peek_interpreter_stack() is None


def test_the_tensor_inside_of_a_transformed_one() -> None:
    values = torch.arange(6.0).reshape(2, 3)
    assert not torch_private.is_functorch_wrapped_tensor(values)
    seen: list[tuple[int, torch.Tensor]] = []

    def looked(tensor: torch.Tensor) -> torch.Tensor:
        while torch_private.is_functorch_wrapped_tensor(tensor):
            dimension = torch_private.maybe_get_bdim(tensor)
            tensor = torch_private.get_unwrapped(tensor)
            seen.append((dimension, tensor))
        return torch.zeros(())

    vmap(looked, in_dims=1)(values)
    ((dimension, inside),) = seen
    assert dimension == 1
    assert torch.equal(inside, values)
    seen.clear()
    grad(lambda tensor: tensor.sum() + looked(tensor))(values)
    assert seen[0][0] < 0
    assert torch.equal(seen[-1][1], values)


def test_operations_that_are_watched() -> None:
    assert not torch_private.is_watched()
    found: list[bool] = []

    def looked(tensor: torch.Tensor) -> torch.Tensor:
        found.append(torch_private.is_watched())
        return tensor

    vmap(looked)(torch.zeros(2))
    with forward_ad.dual_level():
        found.append(torch_private.is_watched())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found.append(torch_private.is_watched())
    with Observed():  # type: ignore[no-untyped-call]
        found.append(torch_private.is_watched())
    assert found == [True, True, True, True]
    assert not torch_private.is_watched()


@pytest.mark.parametrize(
    "register",
    [
        lambda layer: layer.register_forward_hook(lambda *given: None),
        lambda layer: layer.register_forward_pre_hook(lambda *given: None),
        lambda layer: layer.register_full_backward_hook(lambda *given: None),
    ],
)
def test_hooks_of_a_layer(register: Callable[[nn.Module], Any]) -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    assert not torch_private.has_hooks(module)
    handle = register(module[0])
    assert torch_private.has_hooks(module)
    handle.remove()
    assert not torch_private.has_hooks(module)


def test_kinds_of_layers() -> None:
    batch = (nn.BatchNorm1d(2), nn.BatchNorm2d(2), nn.BatchNorm3d(2), nn.SyncBatchNorm(2))
    instance = (nn.InstanceNorm1d(2), nn.InstanceNorm2d(2), nn.InstanceNorm3d(2))
    dropout = (nn.Dropout(), nn.Dropout1d(), nn.Dropout2d(), nn.Dropout3d(), nn.AlphaDropout())
    others = (nn.GroupNorm(1, 2), nn.LayerNorm(2), nn.Linear(2, 2))
    layers = (*batch, *instance, *dropout, *others)
    for kind, expected in {
        torch_private.BatchNorm: batch,
        torch_private.BatchOrInstanceNorm: (*batch, *instance),
        torch_private.Dropout: dropout,
    }.items():
        assert tuple(each for each in layers if isinstance(each, kind)) == expected
    assert torch_private.Dropout(0.25).p == 0.25


def private(name: str) -> bool:
    return any(part.startswith("_") for part in name.split(".") if not part.startswith("__"))


def private_names(tree: ast.Module) -> Iterator[str]:
    """Yield the private names of torch that a module imports, or reads of what it imports."""
    imported: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {each.asname or each.name.split(".")[0]: each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported |= {
                each.asname or each.name: f"{node.module}.{each.name}" for each in node.names
            }
    ours = {here: name for here, name in imported.items() if name.split(".")[0] in TORCH}
    yield from filter(private, ours.values())
    for node in ast.walk(tree) if ours else ():
        if isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            here, _, rest = text.partition(".")
            if here in ours and private(rest) and DOTTED.fullmatch(text):
                yield f"{ours[here]}.{rest}"


def test_no_other_module_uses_a_private_name() -> None:
    found: dict[str, list[str]] = {}
    for package in ("edgefed", "device_agent", "broker"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            names = list(private_names(ast.parse(text))) if "torch" in text else []
            if names and path.relative_to(ROOT) != ADAPTER:
                found[str(path.relative_to(ROOT))] = names
    used = {name.removeprefix("torch.") for names in found.values() for name in names}
    assert used == FOREACH.keys(), f"a private name outside of {ADAPTER}: {found}"
