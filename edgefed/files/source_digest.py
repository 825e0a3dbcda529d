"""A digest of the sources of a package or a module, by which a result names users' code.

It covers the names and contents of files, and neither their times, their folder, nor the way in
which they were installed. A process imports code once, so it also reads the sources once; those of
an interactive session again after a module was imported or reloaded.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import Distribution
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from edgefed.errors import StorageError
from edgefed.files.loaded_code import changed_name
from edgefed.files.plugins import installed

INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Folders whose modules belong to different distributions."""

VERSIONED = frozenset({"edgefed", "device_agent", "broker", "torch", *sys.stdlib_module_names})
"""Modules that a result names by their version, or that belong to Python."""

CODE = frozenset({".py", ".so", ".pyd"})
"""Endings of the files of a user's module; the files of a plug-in's package all count."""

DIGITS = 32


@cache
def package_digest(name: str) -> str:
    """Return the digest of a distribution with plug-ins: all of its files and its entry points.

    In an editable installation, these are the files of the packages that hold its plug-ins.

    Raises:
        StorageError: ``source.unreadable``; ``source.changed``: the code that was imported is not
            that of its file any more.
    """
    points = [point for point in installed() if point.dist is not None and point.dist.name == name]
    if not points or points[0].dist is None:
        raise _unreadable(f"package {name}", LookupError("it offers no plug-in"))
    files = dict(_recorded(points[0].dist))
    for module in sorted({point.module for point in points}):
        files |= _with_imported(_root(module), f"package {name}")
    offered = sorted(f"{point.group}:{point.name}={point.value}" for point in points)
    return _digest(f"package {name}", files, offered)


_digests: dict[str, tuple[list[object], str]] = {}
"""What was loaded when a module's sources were read, and their digest."""


def module_digest(name: str) -> str:
    """Return the digest of a module, with the package around it.

    Without a package, these are the module's file and the modules beside it that it imports.
    Modules of EdgeFed, of torch and of Python have an empty list of sources.

    Raises:
        StorageError: ``source.unreadable``; ``source.changed``: the code that was imported is not
            that of its file any more.
    """
    loaded = _reloadable()
    before, digest = _digests.get(name, ((), ""))
    if not digest or list(map(id, before)) != list(map(id, loaded)):
        what = f"module {name}"
        versioned = name.partition(".")[0] in VERSIONED
        files = {} if versioned else _with_imported(_root(name), what, CODE)
        digest = _digest(what, files)
        _digests[name] = loaded, digest
    return digest


def local_digest(name: str) -> str:
    """Return the digest of a module of the user's; nothing for an installed one, or for Python's.

    Raises:
        StorageError: ``source.unreadable``; ``source.changed``: the code that was imported is not
            that of its file any more.
    """
    if name.partition(".")[0] in VERSIONED or INSTALLED & set(_root(name).parts):
        return ""
    return module_digest(name)


def is_interactive() -> bool:
    """Return whether the code of ``__main__`` is typed, as in a notebook, and not a file."""
    return hasattr(sys, "ps1") or not hasattr(sys.modules["__main__"], "__file__")


def _reloadable() -> list[object]:
    """Return what Python replaces when a module is reloaded, as only a session does that."""
    if not is_interactive():
        return []
    return [getattr(module, "__spec__", None) for module in list(sys.modules.values())]


def _root(module: str) -> Path:
    """Return the folder of the outermost package around a module, or the file of a lone module.

    A namespace package, which distributions can share, is no such package.
    """
    if module == "__main__":  # a program; ``typed_code`` knows what was typed
        return Path(str(getattr(sys.modules[module], "__file__", module)))
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        try:
            spec = find_spec(name)
        except (ImportError, ValueError, AttributeError) as error:
            raise _unreadable(f"module {module}", error) from error
        if spec is None or (spec.origin is None and spec.submodule_search_locations is None):
            break
        if spec.origin is not None and Path(spec.origin).is_file():
            path = Path(spec.origin)
            return path.parent if spec.submodule_search_locations is not None else path
    raise _unreadable(f"module {module}", FileNotFoundError("it has no file"))


def _recorded(package: Distribution) -> Iterator[tuple[str, Path]]:
    """Yield the files that an installer recorded, but for those about the installation."""
    if package.read_text("RECORD") is None:
        return
    for file in package.files or ():
        first = file.parts[0]
        about = first.endswith((".dist-info", ".pth")) or first.startswith(("__editable__", ".."))
        if not about and _is_source(file.parts):
            yield file.as_posix(), Path(str(package.locate_file(file)))


def _below(root: Path, endings: frozenset[str] = frozenset()) -> dict[str, Path]:
    """Return a file, or the files in a folder, by their paths from the folder around it."""
    if root.is_file():
        return {root.name: root}
    files = {}
    for folder, _, names in os.walk(root):
        for path in (Path(folder, name) for name in names):
            inside = path.relative_to(root.parent)
            if _is_source(inside.parts) and (not endings or path.suffix in endings):
                files[inside.as_posix()] = path
    return files


def _is_source(parts: Iterable[str]) -> bool:
    """Return whether a path is of no cache, hidden file or copy of an editor."""
    return not any(
        part == "__pycache__" or part.startswith(".") or part.endswith((".pyc", ".pyo", "~"))
        for part in parts
    )


def _with_imported(file: Path, what: str, endings: frozenset[str] = frozenset()) -> dict[str, Path]:
    """Return a package, or a lone module with the modules beside it that it imports in turn."""
    if file.is_dir():
        return _below(file, endings)
    files, waiting = {file.name: file}, [file]
    while waiting and not INSTALLED & set(file.parts):
        for name in sorted(_imports(waiting.pop(), what)):
            for root in (file.parent / name, file.parent / f"{name}.py"):
                if name in VERSIONED or root.name in files or not root.exists():
                    continue
                files |= _below(root, CODE)
                if root.is_file():
                    waiting.append(root)
    return files


def _imports(file: Path, what: str) -> set[str]:
    """Return the first words of the modules that a file imports."""
    if file.suffix != ".py":
        return set()
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError) as error:
        raise _unreadable(what, error) from error
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module)
    return {name.partition(".")[0] for name in names}


def _digest(what: str, files: Mapping[str, Path], more: Iterable[str] = ()) -> str:
    contents = []
    loaded = _loaded(files.values())
    for name, path in sorted(files.items()):
        try:
            source = path.read_bytes()
            for module in loaded.get(os.path.realpath(path), ()):
                if changed := changed_name(module, source):
                    raise _changed(path, changed)
        except (OSError, SyntaxError, ValueError) as error:
            raise _unreadable(what, error) from error
        contents.append([name, hashlib.sha256(source).hexdigest()])
    text = json.dumps([contents, *more])
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def _loaded(files: Iterable[Path]) -> dict[str, list[ModuleType]]:
    """Return the modules of files that were imported, by their real paths; no installed ones."""
    names = {path.name for path in files if not INSTALLED & set(path.parts)}
    loaded: dict[str, list[ModuleType]] = {}
    for module in list(sys.modules.values()):
        file = getattr(module, "__dict__", {}).get("__file__")
        if isinstance(file, str) and file.endswith(".py") and Path(file).name in names:
            loaded.setdefault(os.path.realpath(file), []).append(module)
    return loaded


def _changed(file: Path, name: str) -> StorageError:
    return StorageError(
        f"{file} has changed since it was imported: the {name} that runs is another.",
        code="source.changed",
        hint="reload it (importlib.reload), or start the program again",
    )


def _unreadable(what: str, error: Exception) -> StorageError:
    why = f"{type(error).__name__}: {error}".rstrip(".")
    return StorageError(
        f"The sources of {what} cannot be read, by which a result is known: {why}.",
        code="source.unreadable",
        hint="install the sources as files that this user may read",
    )
