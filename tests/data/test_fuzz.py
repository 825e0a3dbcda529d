"""Thousands of broken files: no crash, no error that is not ours, no more memory than is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.fuzzing import WRITERS
from tests.memory_limit import bounded

IMPORTS = """
from tests.data.fuzzing import WRITERS, fuzz
import PIL.Image
PIL.Image.init()
fuzz("image", range(1), Path(sys.argv[2]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_broken_files_end_in_errors_of_ours(name: str, tmp_path: Path) -> None:
    act = "fuzz(sys.argv[1], range(1000), Path(sys.argv[2]))"
    ended = bounded(IMPORTS, act, name, tmp_path, megabytes=512)
    assert ended.trouble == ""
    assert ended.said == "ok"
