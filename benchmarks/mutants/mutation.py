"""Draw small changes of functions, and find each again after its function has moved.

A mutant is kept as the qualified name of its function, the statement before and after, and which
of the function's equal statements it is. Files and line numbers are only hints.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGES = ("coordinator", "wire", "learn", "algorithms", "sharing", "trust")
SWAPS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.FloorDiv,),
    ast.Pow: (ast.Mult,),
    ast.LShift: (ast.RShift,),
    ast.RShift: (ast.LShift,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.BitXor: (ast.BitAnd,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}
RENAMED = {"min": "max", "max": "min", "any": "all", "all": "any"}
EMPTY = {"bool": "False", "int": "0", "float": "0.0", "str": "''", "bytes": "b''"}
EMPTY |= {"list": "[]", "dict": "{}", "tuple": "()", "set": "set()", "frozenset": "frozenset()"}
UNTESTED = {"__repr__", "__str__"}
UNSEEN = {"hint", "message", "reason", "help", "strict"}
LOGS = {"log", "_log", "logger", "logging", "warnings"}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Path_ = tuple[str | int, ...]
Edit = tuple[str, Path_, str]
"""An operator, the place of the node within its statement, and what the node becomes."""
Tree = dict[str, list[tuple[str, str, Function]]]
"""The file, its source and the function, by qualified name."""


@dataclass(frozen=True)
class Mutant:
    """One change of one statement.

    Attributes:
        function: the qualified name, such as ``Class.method``.
        tree: a hash of the function's syntax tree without its docstring.
        ordinal: which of the function's statements with the text ``before``.
        path: the fields and indices from the statement to the changed node.
        node: what the node becomes.
    """

    package: str
    file: str
    function: str
    tree: str
    operator: str
    before: str
    after: str
    ordinal: int
    path: Path_
    node: str

    @property
    def key(self) -> str:
        """What tells this mutant from all others."""
        place = f"{self.package}:{self.function}#{self.ordinal}"
        return f"{place}: {self.before!r} -> {self.after!r}"


@dataclass(frozen=True)
class Place:
    """Where a mutant is today: its file, the lines that run it, and the file's changed text."""

    file: str
    lines: range
    text: str


def functions(module: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function]]:
    """Yield all functions with their qualified names."""
    for node in ast.iter_child_nodes(module):
        name = prefix
        if isinstance(node, ast.ClassDef | Function):
            name = f"{prefix}{node.name}"
            if isinstance(node, Function):
                yield name, node
            name += "."
        yield from functions(node, name)


def statements(function: Function) -> Iterator[ast.stmt]:
    """Yield the statements of a function's body, not those of functions and classes in it."""
    waiting: list[ast.AST] = []
    waiting += reversed(_without_docstring(function.body))
    while waiting:
        node = waiting.pop()
        if isinstance(node, Function | ast.ClassDef):
            continue
        if isinstance(node, ast.stmt):
            yield node
        waiting += [
            child
            for child in list(ast.iter_child_nodes(node))[::-1]
            if not isinstance(child, ast.expr)
        ]


def header(statement: ast.stmt) -> ast.stmt:
    """Return a copy of a statement in which ``...`` stands for each block."""
    bare = copy.copy(statement)
    for field in ("body", "orelse", "finalbody"):
        if getattr(bare, field, None):
            setattr(bare, field, [ast.Expr(ast.Constant(...))])
    return bare


def tree_hash(function: Function) -> str:
    """Return a hash of a function's name, arguments and body, without its docstring."""
    bare = copy.copy(function)
    bare.body = _without_docstring(function.body) or [ast.Pass()]
    return hashlib.sha256(ast.dump(bare).encode()).hexdigest()[:16]


def edits(function: Function, statement: ast.stmt) -> Iterator[Edit]:
    """Yield every change of one statement."""
    if isinstance(statement, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom | ast.Match):
        return
    if _is_log(statement):
        return
    if _can_go(function, statement):
        yield "statement deleted", (), "pass"
    if isinstance(statement, ast.Break | ast.Continue):
        other = "continue" if isinstance(statement, ast.Break) else "break"
        yield "break and continue", (), other
    if isinstance(statement, ast.Return) and statement.value is not None:
        empty = _empty(function)
        if ast.unparse(statement.value) != empty:
            yield "returns empty", ("value",), empty
    for path, node in _expressions(header(statement), ()):
        yield from ((name, path, new) for name, new in _changes(node))


def draw(root: Path, seed: int, count: int) -> dict[str, list[Mutant]]:
    """Return ``count`` mutants of each package, at most one of a function.

    A function is drawn with the weight of its statements, then an operator, then a place.
    """
    return {package: _draw_package(root, package, seed, count) for package in PACKAGES}


def read_tree(root: Path) -> Tree:
    """Return all functions of ``edgefed``."""
    tree: Tree = {}
    for file in sorted((root / "edgefed").rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        for name, function in functions(ast.parse(source)):
            tree.setdefault(name, []).append((str(file.relative_to(root)), source, function))
    return tree


def find(tree: Tree, mutant: Mutant) -> Place | None:
    """Return where a mutant is in a tree; None if its function or statement is gone.

    Of several functions with that name, the unchanged one is taken, then the one in that file.
    """
    found = []
    for file, source, function in tree.get(mutant.function, []):
        alike = [each for each in statements(function) if _text(each) == mutant.before]
        if len(alike) <= mutant.ordinal:
            continue
        statement = alike[mutant.ordinal]
        text = _spliced(source, statement, mutant.path, mutant.node)
        if text is not None:
            home = file.startswith(f"edgefed/{mutant.package}/")
            likeness = (tree_hash(function) == mutant.tree, file == mutant.file, home)
            found.append((likeness, Place(file, _lines(statement), text)))
    return max(found, key=lambda each: each[0])[1] if found else None


def _draw_package(root: Path, package: str, seed: int, count: int) -> list[Mutant]:
    pool: list[tuple[str, str, Function, str, int]] = []
    for file in sorted((root / "edgefed" / package).rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        for name, function in functions(ast.parse(source)):
            if name.rpartition(".")[2] not in UNTESTED:
                weight = sum(1 for _ in statements(function))
                pool.append((str(file.relative_to(root)), name, function, source, weight))
    rng = random.Random(f"{seed}:{package}")
    mutants: list[Mutant] = []
    while len(mutants) < count and pool:
        chosen = rng.choices(range(len(pool)), [each[-1] for each in pool])[0]
        mutant = _draw_one(rng, package, *pool.pop(chosen)[:-1])
        mutants += [mutant] if mutant is not None else []
    return mutants


def _draw_one(
    rng: random.Random, package: str, file: str, name: str, function: Function, source: str
) -> Mutant | None:
    seen: dict[str, int] = {}
    choices: dict[str, list[tuple[ast.stmt, int, Path_, str]]] = {}
    for statement in statements(function):
        text = _text(statement)
        ordinal = seen[text] = seen.get(text, -1) + 1
        for operator, path, node in edits(function, statement):
            choices.setdefault(operator, []).append((statement, ordinal, path, node))
    while choices:
        operator = rng.choice(sorted(choices))
        options = choices[operator]
        statement, ordinal, path, node = options.pop(rng.randrange(len(options)))
        if not options:
            del choices[operator]
        if _spliced(source, statement, path, node) is None:
            continue
        before, after = _text(statement), _changed(statement, path, node)
        tree = tree_hash(function)
        return Mutant(package, file, name, tree, operator, before, after, ordinal, path, node)
    return None


def _changes(node: ast.expr) -> Iterator[tuple[str, str]]:
    for operator, changed in _changed_nodes(node):
        yield operator, ast.unparse(changed)


def _changed_nodes(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    new = copy.deepcopy(node)
    if isinstance(node, ast.Compare) and isinstance(new, ast.Compare) and len(node.ops) == 1:
        for swap in SWAPS[type(node.ops[0])]:
            new.ops = [swap()]  # type: ignore[list-item]
            yield "comparison", new
    elif isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPS:
        assert isinstance(new, ast.BinOp | ast.BoolOp)
        if not any(_is_text(child) for child in ast.iter_child_nodes(node)):
            new.op = SWAPS[type(node.op)][0]()  # type: ignore[assignment]
            yield "arithmetic" if isinstance(node, ast.BinOp) else "and and or", new
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not dropped", node.operand
    elif isinstance(node, ast.IfExp) and isinstance(new, ast.IfExp):
        new.body, new.orelse = new.orelse, new.body
        yield "branches swapped", new
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        value = node.value
        yield "constant", ast.Constant(not value if isinstance(value, bool) else value + 1)
    elif isinstance(node, ast.Call):
        yield from _changed_calls(node)


def _changed_calls(node: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node.func, ast.Name) and node.func.id in RENAMED:
        renamed = ast.Name(RENAMED[node.func.id])
        yield "min and max", ast.Call(renamed, node.args, node.keywords)
    for keyword in node.keywords:
        if keyword.arg is not None and keyword.arg not in UNSEEN:
            rest = [each for each in node.keywords if each is not keyword]
            yield "argument dropped", ast.Call(node.func, node.args, rest)
    if isinstance(node.func, ast.Name) and node.func.id in {"isinstance", "getattr"}:
        return
    if len(node.args) > 1 and not any(isinstance(each, ast.Starred) for each in node.args):
        yield "argument dropped", ast.Call(node.func, node.args[:-1], node.keywords)
        first, second, *rest_ = node.args
        if ast.dump(first) != ast.dump(second):
            swapped = ast.Call(node.func, [second, first, *rest_], node.keywords)
            yield "arguments swapped", swapped


def _expressions(node: ast.AST, path: Path_) -> Iterator[tuple[Path_, ast.expr]]:
    """Yield the expressions below a node that a test may see: no hints, texts, errors or logs."""
    for field, value in ast.iter_fields(node):
        if field in {"annotation", "returns", "body"} and not isinstance(node, ast.IfExp):
            continue
        for k, child in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr | ast.Lambda):
                continue
            if isinstance(child, ast.keyword) and child.arg in UNSEEN:
                continue
            if isinstance(child, ast.Call) and _name(child.func).endswith("Error"):
                continue
            below: Path_ = (*path, field, k) if isinstance(value, list) else (*path, field)
            if isinstance(child, ast.expr):
                yield below, child
            yield from _expressions(child, below)


def _can_go(function: Function, statement: ast.stmt) -> bool:
    """Whether a statement can go without a name being unbound afterwards."""
    if isinstance(statement, ast.AugAssign):
        return True
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call | ast.Await)
    if isinstance(statement, ast.If):
        return isinstance(statement.body[-1], ast.Raise) and not statement.orelse
    if not isinstance(statement, ast.Assign):
        return False
    (target,) = statement.targets[:1]
    if not isinstance(target, ast.Name):
        return isinstance(target, ast.Attribute | ast.Subscript)
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    earlier = [each for each in names if each.id == target.id and each.lineno < statement.lineno]
    arguments = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
    return target.id in arguments or any(isinstance(each.ctx, ast.Store) for each in earlier)


def _empty(function: Function) -> str:
    hint = ast.unparse(function.returns) if function.returns is not None else ""
    return EMPTY.get(hint.partition("[")[0], "None")


def _is_log(statement: ast.stmt) -> bool:
    calls = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(calls, ast.Call) and bool(LOGS & set(ast.unparse(calls.func).split(".")[:-1]))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _name(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2]


def _text(statement: ast.stmt) -> str:
    return ast.unparse(ast.fix_missing_locations(header(statement)))


def _changed(statement: ast.stmt, path: Path_, node: str) -> str:
    if not path:
        return node
    changed = copy.deepcopy(header(statement))
    parent, last = _at(changed, path[:-1]), path[-1]
    new = ast.parse(node, mode="eval").body
    if isinstance(last, int):
        parent[last] = new
    else:
        setattr(parent, last, new)
    return ast.unparse(ast.fix_missing_locations(changed))


def _at(node: Any, path: Path_) -> Any:
    for step in path:
        node = node[step] if isinstance(step, int) else getattr(node, step)
    return node


def _lines(statement: ast.stmt) -> range:
    body = getattr(statement, "body", None)
    end = body[0].lineno if body else (statement.end_lineno or statement.lineno) + 1
    return range(statement.lineno, max(end, statement.lineno + 1))


def _spliced(source: str, statement: ast.stmt, path: Path_, node: str) -> str | None:
    """Return the source with the node replaced; None if that is not the change that was meant."""
    target = _at(statement, path)
    assert isinstance(target, ast.expr | ast.stmt)
    assert target.end_lineno is not None and target.end_col_offset is not None
    lines = source.encode().splitlines(keepends=True)
    start = sum(map(len, lines[: target.lineno - 1])) + target.col_offset
    end = sum(map(len, lines[: target.end_lineno - 1])) + target.end_col_offset
    new = f"({node})" if path else node
    text = (source.encode()[:start] + new.encode() + source.encode()[end:]).decode()
    try:
        made = ast.parse(text)
        compile(text, "mutant", "exec")
    except SyntaxError:
        return None
    meant = _changed(statement, path, node)
    at = (statement.lineno, statement.col_offset)
    for each in ast.walk(made):
        if isinstance(each, ast.stmt) and (each.lineno, each.col_offset) == at:
            return text if _text(each) == meant else None
    return None


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    is_text = isinstance(first, ast.Expr) and _is_text(first.value)
    return body[1:] if is_text else list(body)
