"""The measures of the source tree: questions keep their answers, and walks are cut out of calls."""

from __future__ import annotations

import ast

from benchmarks.house import SourceFile, importers, package_size
from benchmarks.questions import Guess, marked, qualified_names, read_questions, report
from benchmarks.update_walk import walks


def test_each_answer_is_defined_in_one_file() -> None:
    questions = read_questions()
    assert len(questions) >= 44
    assert len({each.question for each in questions}) == len(questions)
    assert all(each.right for each in marked(questions, ()))


def test_a_guess_is_right_if_the_file_defines_one_of_the_names() -> None:
    questions = read_questions()
    found = marked(questions, [Guess(number=1, path="edgefed/seeds.py", confidence=1.0)])
    right = Guess(number=2, path=found[1].right[-1], confidence=0.7)
    found = marked(questions[:2], [Guess(number=1, path="edgefed/seeds.py", confidence=0.5), right])
    assert [each.is_right for each in found] == [False, True]
    assert report(found).endswith("1 of 2 right, mean confidence 0.60")


def test_methods_are_named_with_their_class() -> None:
    tree = ast.parse("class A:\n    def b(self): ...\ndef c(): ...\n")
    assert list(qualified_names(tree)) == ["A", "A.b", "c"]


def test_a_walk_ends_with_the_next_merge() -> None:
    calls = [(5, "after", ""), (3, "c", "end"), (1, "a", "begin"), (2, "b", ""), (2, "b", "")]
    assert walks(calls) == [["a", "b", "c"]]


def test_code_lines_are_without_comments_docstrings_and_blank_lines() -> None:
    text = '"""Doc.\n\nMore."""\n\nX = 1  # one\n# two\nY = "#"\n"""Of Y."""\n'
    file = SourceFile("edgefed/x/y.py", text)
    size = package_size("edgefed/x", [file, SourceFile("edgefed/x/__init__.py", "")])
    assert (size.files, size.lines, size.code_lines, size.widest_folder) == (2, 8, 2, 1)


def test_importers_are_counted_once_for_each_file() -> None:
    files = [
        SourceFile("edgefed/a.py", "from edgefed.b import X\n\ndef f(): import edgefed.b\n"),
        SourceFile("edgefed/b.py", "import os\n"),
    ]
    assert importers(files) == {"edgefed/a.py": [], "edgefed/b.py": ["edgefed/a.py"]}
