"""``docs/algorithm-interface.md`` names the methods, types and weights as the code has them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgefed import extension
from edgefed.errors import DataError
from edgefed.extension import Algorithm, Answer, ExactMean, Group, Question
from tests.docs.pages import ROOT, blocks

EXAMPLES = {block.example: block.text for block in blocks(ROOT / "docs" / "algorithm-interface.md")}
ABSTRACT = ("start", "plan", "merge", "prepare", "answer")


def methods() -> Iterator[ast.FunctionDef]:
    for node in ast.parse(EXAMPLES["signatures"]).body:
        assert isinstance(node, ast.FunctionDef)
        yield node


def classes() -> Iterator[ast.ClassDef]:
    return (node for node in ast.parse(EXAMPLES["types"]).body if isinstance(node, ast.ClassDef))


@pytest.mark.parametrize("method", methods(), ids=lambda node: node.name)
def test_a_signature(method: ast.FunctionDef) -> None:
    found = inspect.getattr_static(Algorithm, method.name)
    function: Any = found.fget if isinstance(found, property) else found
    wanted = inspect.signature(function)
    shown = [
        (each.arg, each.annotation and ast.unparse(each.annotation))
        for each in method.args.args[1:]
    ]
    assert shown == [(each.name, each.annotation) for each in [*wanted.parameters.values()][1:]]
    assert method.returns is not None
    assert ast.unparse(method.returns) == wanted.return_annotation


def test_every_method_has_its_signature() -> None:
    shown = [method.name for method in methods()]
    public = {
        name
        for kind in (Algorithm, *Algorithm.__mro__)
        if kind.__module__.startswith("edgefed.")
        for name, value in vars(kind).items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
    }
    assert set(shown) == public
    assert set(shown[:5]) == Algorithm.__abstractmethods__ == set(ABSTRACT)


@pytest.mark.parametrize("shown", classes(), ids=lambda node: node.name)
def test_the_fields_of_a_type(shown: ast.ClassDef) -> None:
    kind = getattr(extension, shown.name)
    assert kind.__dataclass_params__.frozen
    named = {
        node.target.id: ast.unparse(node.annotation)
        for node in shown.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    known = {each.name: each.type for each in fields(kind)}
    assert named.items() <= known.items()
    if isinstance(shown.body[-1], ast.AnnAssign):
        assert list(named) == list(known)
    required = [
        name
        for name, each in inspect.signature(kind).parameters.items()
        if each.default is inspect.Parameter.empty
    ]
    assert named.keys() >= set(required)


def test_the_names_of_other_types() -> None:
    aliases = [node for node in ast.parse(EXAMPLES["types"]).body if isinstance(node, ast.Assign)]
    assert len(aliases) == 2
    for node in aliases:
        name, value = ast.unparse(node.targets[0]), ast.unparse(node.value)
        assert eval(value, dict(vars(extension))) == getattr(extension, name)


def test_a_clamped_weight_counts_no_more_than_announced() -> None:
    def answer(device: str, samples: int, value: float) -> Answer:
        return Answer(device, samples, {"delta": Group({"w": np.full(2, value, np.float32)})})

    made: dict[str, Any] = {
        "ExactMean": ExactMean,
        "exchange": SimpleNamespace(questions=[Question("a", 3), Question("b", 1)]),
        "state": SimpleNamespace(groups={"weights": {"w": np.zeros(2, np.float32)}}),
        "answers": iter([answer("a", 3, 0.0), answer("b", 1000, 4.0)]),
    }
    exec(EXAMPLES["clamped"], made)
    assert made["mean"].mean()["w"].tolist() == [1.0, 1.0]
    for weight in (0, -1, 0.5, 1):
        with pytest.raises(DataError) as caught:
            made["mean"].add({"w": np.zeros(2, np.float32)}, weight)
        assert caught.value.code == "merge.weight"
