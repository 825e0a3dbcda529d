"""The measures of the source tree: its size by package, its imports, names, language and one walk.

Product files are the Python files of ``edgefed``, ``device_agent`` and ``broker`` that Git tracks;
the table of packages has ``tests`` and ``benchmarks`` beside them.

* code lines: lines that are neither blank nor only comment or docstring
* widest folder: the most Python files in one folder, without its ``__init__.py``
* imports: distinct product modules that a product file imports anywhere, the mean over files
* one importer: product files that exactly one other product file imports
* class names: names of classes that product files define twice or more
* walk: ``benchmarks.update_walk``; it starts a fleet and takes half a minute

    python -m benchmarks.house [--json] [--no-walk]
"""

from __future__ import annotations

import ast
import io
import subprocess
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from statistics import mean
from typing import Any

from benchmarks.shared.harness import parser, show
from benchmarks.update_walk import PRODUCT, ROOT, update_walk
from tests.docs.test_plain_language import public, with_words

TREES = (*PRODUCT, "tests", "benchmarks")
LONG = 50
"""Lines from which a function is too long."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class SourceFile:
    """A Python file.

    Attributes:
        path: from the root.
    """

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree."""
        return ast.parse(self.text)

    @property
    def module(self) -> str:
        """Its name in an import."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def package(self) -> str:
        """The row of the table that counts it."""
        parts = self.path.split("/")
        if parts[0] != "edgefed":
            return parts[0]
        return "/".join(parts[:2]) if len(parts) > 2 else "edgefed (root)"

    @cached_property
    def comment_lines(self) -> set[int]:
        """Numbers of the lines that hold only a comment."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return {
            token.start[0]
            for token in tokens
            if token.type == tokenize.COMMENT and token.line.lstrip().startswith("#")
        }

    @cached_property
    def docstring_lines(self) -> set[int]:
        """Numbers of the lines of docstrings, also of attributes and constants."""
        return {
            number
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
            for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        }

    @property
    def lines(self) -> list[str]:
        """Its lines."""
        return self.text.splitlines()

    @cached_property
    def code_lines(self) -> int:
        """Number of lines of code."""
        texts = self.comment_lines | self.docstring_lines
        return sum(bool(line.strip()) for n, line in enumerate(self.lines, 1) if n not in texts)

    def imported(self, modules: frozenset[str]) -> set[str]:
        """Return the modules among ``modules`` that it imports."""
        found: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                inside = {f"{node.module}.{alias.name}" for alias in node.names} & modules
                found |= inside or {node.module}
        return (found & modules) - {self.module}


def source_files(trees: Sequence[str] = TREES) -> tuple[SourceFile, ...]:
    """Return the tracked Python files below the folders."""
    names = git("ls-files", "--", *trees)
    paths = [name for name in names if name.endswith(".py") and (ROOT / name).exists()]
    return tuple(SourceFile(path, (ROOT / path).read_text(encoding="utf-8")) for path in paths)


def git(*words: str) -> list[str]:
    """Return the lines that a Git command prints."""
    ran = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return ran.stdout.splitlines()


@dataclass(frozen=True)
class PackageSize:
    """A row of the table of packages."""

    package: str
    files: int
    lines: int
    code_lines: int
    widest_folder: int
    widest: str


def package_size(package: str, files: Sequence[SourceFile]) -> PackageSize:
    """Return the row of a package."""
    names = (file.path.rsplit("/", 1) for file in files)
    folders = Counter(folder for folder, name in names if name != "__init__.py")
    widest, count = folders.most_common(1)[0]
    lines = sum(len(file.lines) for file in files)
    return PackageSize(
        package, len(files), lines, sum(file.code_lines for file in files), count, widest
    )


def package_sizes(files: Sequence[SourceFile]) -> list[PackageSize]:
    """Return the rows of all packages, then their sums: product and all."""
    packages: defaultdict[str, list[SourceFile]] = defaultdict(list)
    for file in files:
        packages[file.package].append(file)
    rows = [package_size(package, inside) for package, inside in sorted(packages.items())]
    return [*rows, package_size("product", product(files)), package_size("all", files)]


def product(files: Sequence[SourceFile]) -> list[SourceFile]:
    """Return the product's files."""
    return [file for file in files if file.path.split("/")[0] in PRODUCT]


def importers(files: Sequence[SourceFile]) -> dict[str, list[str]]:
    """Return the paths of the files that import a file, by its path."""
    paths = {file.module: file.path for file in files}
    found: dict[str, list[str]] = {file.path: [] for file in files}
    for file in files:
        for module in file.imported(frozenset(paths)):
            found[paths[module]].append(file.path)
    return found


def functions(files: Sequence[SourceFile]) -> Iterator[tuple[str, Definition]]:
    """Yield every function with the path of its file."""
    for file in files:
        for node in ast.walk(file.tree):
            if isinstance(node, Definition):
                yield file.path, node


def long_functions(files: Sequence[SourceFile]) -> list[str]:
    """Return the functions of more than ``LONG`` lines."""
    found = (
        (path, node, (node.end_lineno or 0) - node.lineno + 1) for path, node in functions(files)
    )
    return [f"{path}:{node.name} {lines}" for path, node, lines in found if lines > LONG]


def repeated_classes(files: Sequence[SourceFile]) -> dict[str, list[str]]:
    """Return the files that define a class of the same name, by that name."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for file in files:
        for node in ast.walk(file.tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(file.path)
    return {name: paths for name, paths in sorted(found.items()) if len(paths) > 1}


def documented(files: Sequence[SourceFile]) -> int:
    """Return the number of docstrings of public modules, classes and functions."""
    return sum(bool(ast.get_docstring(node)) for file in files for node in public(file.tree))


def measures(*, walk: bool = True) -> dict[str, Any]:
    """Return all measures."""
    files = source_files()
    own = product(files)
    modules = frozenset(file.module for file in own)
    lines = sum(len(file.lines) for file in own)
    single = sorted(path for path, users in importers(own).items() if len(users) == 1)
    leaning = sum(len(with_words(file.text)) for file in own)
    tracked = git("ls-files")
    return {
        "packages": [asdict(row) for row in package_sizes(files)],
        "imports_per_file": round(mean(len(file.imported(modules)) for file in own), 2),
        "comment_share": round(sum(len(file.comment_lines) for file in own) / lines, 4),
        "docstring_share": round(sum(len(file.docstring_lines) for file in own) / lines, 4),
        "one_importer": single,
        "long_functions": long_functions(own),
        "docstrings": documented(own),
        "leaning_docstrings": leaning,
        "repeated_classes": repeated_classes(own),
        "repository_bytes": sum((ROOT / p).stat().st_size for p in tracked if (ROOT / p).is_file()),
        "walk": update_walk() if walk else None,
    }


def table(found: Mapping[str, Any]) -> str:
    """Return the measures as Markdown."""
    rows = ["| Package | Files | Lines | Code lines | Widest folder |", "|---|--:|--:|--:|--:|"]
    for row in found["packages"]:
        counts = f"{row['files']:,} | {row['lines']:,} | {row['code_lines']:,}"
        rows.append(f"| {row['package']} | {counts} | {row['widest_folder']} |")
    walk = "not measured" if found["walk"] is None else len(found["walk"])
    single = {
        "Imports a product file": found["imports_per_file"],
        "Comment lines": f"{found['comment_share']:.1%}",
        "Docstring lines": f"{found['docstring_share']:.1%}",
        "Files with one importer": len(found["one_importer"]),
        "Functions over 50 lines": len(found["long_functions"]),
        "Public docstrings": f"{found['docstrings']:,}",
        "Of these with who, what, told or shall": f"{found['leaning_docstrings']:,}",
        "Class names that occur twice or more": len(found["repeated_classes"]),
        "Tracked bytes": f"{found['repository_bytes']:,}",
        "Files on an update's walk": walk,
    }
    measured = [f"| {name} | {value} |" for name, value in single.items()]
    return "\n".join([*rows, "", "| Measure | Value |", "|---|--:|", *measured])


def main() -> None:
    """Print the measures."""
    command = parser("house", __doc__)
    command.add_argument("--no-walk", action="store_true", help="start no fleet")
    options = command.parse_args()
    found = measures(walk=not options.no_walk)
    show(options, found, table(found), indent=1)


if __name__ == "__main__":
    main()
