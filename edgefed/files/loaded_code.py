"""Whether a module that was imported still has the code of its file.

A difference is certain, but not every edit is noticed: functions and methods are compared by their
instructions, constants and simple default values, and names of a module or a class by their values
if the file assigns them once, to an expression of constants. Names that the file no longer has are
ignored, because reloading keeps them.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, partial
from importlib.machinery import SourceFileLoader
from types import CodeType, FunctionType, ModuleType
from typing import Any

SIMPLE = (type(None), bool, int, float, complex, str, bytes)

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def changed_name(module: ModuleType, source: bytes) -> str:
    """Return a name of a module that differs in its file; nothing if none is known to differ.

    Args:
        module: one that was imported; of other loaders than Python's, nothing is known.
        source: the contents of its file.

    Raises:
        SyntaxError: the file is no Python.
        ValueError: the same.
    """
    if type(vars(module).get("__loader__")) is not SourceFileLoader:  # it may rewrite the code
        return ""
    tree = ast.parse(source)
    code = compile(tree, str(module.__file__), "exec", dont_inherit=True)
    return next(_Comparison(tree, code).differing(tree.body, vars(module)), "")


class _Comparison:
    """Compares a file's statements with what was loaded."""

    def __init__(self, tree: ast.Module, code: CodeType) -> None:
        self._codes: dict[str, list[Any]] = {}
        self._collect(code, "")
        self._stored = Counter(_stored(tree))

    def _collect(self, code: CodeType, prefix: str) -> None:
        """Collect the code of functions and methods by their qualified names."""
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                path = prefix + inner.co_name
                self._codes.setdefault(path, []).append(_parts(inner))
                self._collect(inner, f"{path}.")

    def differing(
        self, body: Iterable[ast.stmt], loaded: Mapping[str, Any], prefix: str = ""
    ) -> Iterator[str]:
        """Yield the names in the body of a module or a class that differ."""
        for node in body:
            if isinstance(node, ast.ClassDef):
                kind = loaded.get(node.name)
                path = prefix + node.name
                if isinstance(kind, type) and kind.__qualname__ == path:
                    yield from self.differing(node.body, vars(kind), f"{path}.")
            elif isinstance(node, _Function):
                if self._is_edited(node, loaded.get(node.name), prefix + node.name):
                    yield prefix + node.name
            elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for name in (target.id for target in targets if isinstance(target, ast.Name)):
                    once = self._stored[name] == 1 and name in loaded
                    if once and _is_other(node.value, loaded[name]):
                        yield prefix + name

    def _is_edited(self, node: _Function, value: object, path: str) -> bool:
        """Return whether functions of a name that were loaded are none of the file."""
        for function in _functions(value, set()):
            code = function.__code__
            if function.__qualname__ != path or code.co_name != node.name:
                continue  # a decorator's
            if getattr(code, "co_qualname", path) != path:  # since Python 3.11
                continue
            if _parts(code) not in self._codes.get(path, ()):
                return True
            if len(self._codes[path]) == 1:
                pairs = list(zip(node.args.defaults, function.__defaults__ or (), strict=False))
                given = function.__kwdefaults__ or {}
                for argument, default in zip(
                    node.args.kwonlyargs, node.args.kw_defaults, strict=True
                ):
                    if default is not None and argument.arg in given:
                        pairs.append((default, given[argument.arg]))
                if any(_is_other(*pair) for pair in pairs):
                    return True
        return False


def _stored(tree: ast.Module) -> Iterator[str]:
    """Yield each name that a file assigns or imports, as often as it does, in whatever scope."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]


def _is_other(node: ast.expr, value: object) -> bool:
    """Return whether a simple value is not that of an expression of constants."""
    code = compile(ast.Expression(node), "", "eval", dont_inherit=True)
    if code.co_names or not _is_simple(value):
        return False
    try:
        written = eval(code, {"__builtins__": {}})
    except Exception:  # such as a division by zero
        return False
    return _is_simple(written) and bool(_parts(written) != _parts(value))


def _is_simple(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_simple, value))
    return type(value) in SIMPLE


def _functions(value: Any, seen: set[int]) -> Iterator[FunctionType]:
    """Yield a function, and those in it that decorators took."""
    if id(value) in seen:
        return
    seen.add(id(value))
    inner: list[Any] = []
    if isinstance(value, FunctionType):
        yield value
        for cell in value.__closure__ or ():
            try:
                inner.append(cell.cell_contents)
            except ValueError:  # it is empty
                continue
        inner.append(vars(value).get("__wrapped__"))
    elif isinstance(value, (classmethod, staticmethod)):
        inner = [value.__func__]
    elif isinstance(value, property):
        inner = [value.fget, value.fset, value.fdel]
    elif isinstance(value, (cached_property, partial)):
        inner = [value.func]
    elif not isinstance(value, type):  # such as functools.cache
        inner = [getattr(value, "__dict__", {}).get("__wrapped__")]
    for one in inner:
        yield from _functions(one, seen)


def _parts(value: Any) -> Any:
    """Return what makes code or a constant, but for the lines and the file of it."""
    if isinstance(value, CodeType):
        return (
            *(value.co_code, value.co_names, value.co_varnames, value.co_freevars),
            *(value.co_cellvars, value.co_flags, getattr(value, "co_exceptiontable", b"")),
            *(value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount),
            tuple(map(_parts, value.co_consts)),
        )
    if isinstance(value, (tuple, frozenset)):
        return type(value), type(value)(map(_parts, value))
    return type(value), repr(value)
