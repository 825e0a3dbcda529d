"""A digest of code that was typed into a notebook or an interactive session, which has no file.

It covers the parts of the code after it was compiled: the instructions and constants of
functions, the attributes and bases of classes, and in turn the functions, classes and values that
their global names have at this moment. Names of other cells do not count. Modules count by their
sources.
"""

from __future__ import annotations

import dataclasses
import dis
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import cached_property, partial, reduce
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    ModuleType,
)
from typing import Any

import numpy as np
from pydantic import BaseModel

from edgefed.errors import StorageError
from edgefed.files.source_digest import DIGITS, local_digest

SIMPLE = (type(None), type(...), bool, int, float, complex, str, bytes)
"""Types whose values are known by how they are written."""

MAIN = "__main__"

_Parts = Any
"""Lists and text that describe a value."""


def typed_digest(name: str, value: object = None) -> str:
    """Return the digest of an object of the interactive session.

    Args:
        name: its path, such as ``__main__:Mine``.
        value: the object; None for the one that this path has now.

    Raises:
        StorageError: ``source.unreadable``: there is none, or its code uses a value that is no
            constant, of which nothing tells when it changes.
    """
    try:
        if value is None:
            value = reduce(getattr, name.partition(":")[2].split("."), sys.modules[MAIN])
        parts = _Description().of(value)
    except (AttributeError, LookupError, RecursionError, TypeError) as error:
        raise StorageError(
            f"The code of {name} cannot be known, by which a result is kept: {error}.",
            code="source.unreadable",
            hint="write it into a module beside the notebook, or use only constants, functions,"
            " classes and modules by their names",
        ) from error
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:DIGITS]


class _Description:
    """Describes values; each class and function once."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        self._name = ""

    def of(self, value: Any) -> _Parts:
        """Return the parts of a value.

        Raises:
            TypeError: it is of a type that is not known by its contents.
        """
        if type(value) in SIMPLE:
            return [type(value).__name__, repr(value)]
        for kinds, describe in self._known():
            if isinstance(value, kinds):
                return [type(value).__name__, *describe(value)]
        raise AssertionError("an object has parts, or none are known")

    def _known(self) -> Iterator[tuple[Any, Callable[[Any], Iterator[_Parts]]]]:
        """Yield types, and what describes a value of them; the first that fits counts."""
        yield CodeType, self._code
        yield FunctionType, self._function
        yield BuiltinFunctionType, self._imported
        yield type, self._class
        yield ModuleType, lambda value: iter([value.__name__, local_digest(value.__name__)])
        yield Enum, self._member
        yield (tuple, list), lambda value: map(self.of, value)
        # The order of a set differs from process to process
        yield (set, frozenset), lambda value: iter(sorted(map(json.dumps, map(self.of, value))))
        yield Mapping, lambda value: (self.of(pair) for pair in value.items())
        yield (np.ndarray, np.generic), self._array
        yield (classmethod, staticmethod), lambda value: iter([self.of(value.__func__)])
        yield property, lambda value: map(self.of, (value.fget, value.fset, value.fdel))
        yield cached_property, lambda value: iter([self.of(value.func)])
        yield (GetSetDescriptorType, MemberDescriptorType), lambda value: iter([value.__name__])
        yield partial, lambda value: map(self.of, (value.func, value.args, value.keywords))
        yield BaseModel, lambda value: iter([self.of(type(value)), self.of(vars(value))])
        yield object, self._object

    def _object(self, value: Any) -> Iterator[_Parts]:
        """Yield the parts of an object: its class and its fields."""
        kind = type(value)
        if dataclasses.is_dataclass(kind):
            values = [getattr(value, item.name) for item in dataclasses.fields(kind)]
        elif kind.__module__ == MAIN and hasattr(value, "__dict__"):
            values = [vars(value)]
        else:
            raise TypeError(f"it uses {self._name} of type {kind.__name__}".replace("  ", " "))
        yield self.of(kind)
        yield from map(self.of, values)

    def _member(self, value: Enum) -> Iterator[_Parts]:
        yield from (self.of(type(value)), value.name, self.of(value.value))

    def _array(self, value: Any) -> Iterator[_Parts]:
        if value.dtype.hasobject:
            raise TypeError("it uses an array of objects")
        yield from (value.dtype.str, value.shape, hashlib.sha256(value.tobytes()).hexdigest())

    def _code(self, code: CodeType) -> Iterator[_Parts]:
        yield code.co_code.hex()
        yield [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags]
        yield [code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars]
        yield getattr(code, "co_exceptiontable", b"").hex()
        yield [self.of(constant) for constant in code.co_consts]

    def _function(self, function: FunctionType) -> Iterator[_Parts]:
        """Yield the parts of a function; of one that was imported, those that were given to it."""
        if self._again(function):
            yield self._seen[id(function)]
            return
        inner = getattr(function, "__wrapped__", None)
        if inner is not None:
            yield self.of(inner)
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        if function.__globals__.get("__name__") != MAIN:
            module = str(function.__globals__.get("__name__"))
            yield from (module, function.__qualname__, digest := local_digest(module))
            for value in cells if digest or inner is None else ():
                yield self.of(value)
            return
        yield self.of(function.__code__)
        yield from map(self.of, (function.__defaults__, function.__kwdefaults__, cells))
        for name in sorted(set(_global_names(function.__code__))):
            if name in function.__globals__:
                self._name = name
                yield [name, self.of(function.__globals__[name])]
        for module in sorted(set(_imports(function.__code__))):
            yield [module, local_digest(module)]

    def _imported(self, value: Any) -> Iterator[_Parts]:
        """Yield the parts of what a module has by this name."""
        module = str(value.__module__)
        yield from (module, value.__qualname__, local_digest(module))

    def _class(self, kind: type) -> Iterator[_Parts]:
        if kind.__module__ != MAIN:
            yield from self._imported(kind)
            return
        if self._again(kind):
            yield self._seen[id(kind)]
            return
        yield kind.__qualname__
        yield from map(self.of, kind.__bases__)
        for name, field in _fields(kind):
            yield [name, self.of(field)]
        for name, value in sorted(vars(kind).items()):
            if not _is_made(kind, name, value):
                yield [name, self.of(value)]

    def _again(self, value: object) -> bool:
        """Return whether a class or function was described already."""
        seen = id(value) in self._seen
        self._seen.setdefault(id(value), len(self._seen))
        return seen


def _fields(kind: type) -> Iterator[tuple[str, list[Any]]]:
    """Yield the fields of a class of pydantic or of dataclasses: names and defaults."""
    fields: Any = ()
    if issubclass(kind, BaseModel):
        fields = kind.model_fields.items()
    elif "__dataclass_fields__" in vars(kind):
        fields = vars(kind)["__dataclass_fields__"].items()
    for name, field in fields:
        values = (field.default, field.default_factory)
        yield name, [None if _is_missing(value) else value for value in values]


def _is_missing(value: object) -> bool:
    return value is dataclasses.MISSING or type(value).__name__ == "PydanticUndefinedType"


def _is_made(kind: type, name: str, value: object) -> bool:
    """Return whether Python or a library made an attribute of a class from the others."""
    function = getattr(value, "__func__", value)
    if isinstance(function, FunctionType):
        made = function.__code__.co_filename == "<string>" or function.__module__ != MAIN
        of_library = issubclass(kind, BaseModel) or "__dataclass_fields__" in vars(kind)
        return made and of_library and name.startswith("__")
    return name.startswith(("__", "_abc_")) or (issubclass(kind, Enum) and name.startswith("_"))


def _instructions(code: CodeType) -> Iterator[dis.Instruction]:
    """Yield the instructions of a function and of those in it."""
    yield from dis.get_instructions(code)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _instructions(constant)


def _global_names(code: CodeType) -> Iterator[str]:
    """Yield the global names that code reads; in the body of a class, names of its own too."""
    for step in _instructions(code):
        if step.opname.startswith(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")):
            yield str(step.argval)


def _imports(code: CodeType) -> Iterator[str]:
    """Yield the modules that code imports when it runs."""
    yield from (str(step.argval) for step in _instructions(code) if step.opname == "IMPORT_NAME")
