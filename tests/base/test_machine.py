"""Free memory respects both the system and the limit of a container."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from edgefed.process.memory import free_memory


@pytest.mark.parametrize(("most", "used", "left"), [("3000", "1000", 2000), ("3000", "4000", 0)])
def test_a_container_has_what_its_limit_leaves(
    tmp_path: Path, most: str, used: str, left: int
) -> None:
    (tmp_path / "memory.max").write_text(f"{most}\n")
    (tmp_path / "memory.current").write_text(f"{used}\n")
    assert free_memory(tmp_path) == left


def test_without_a_limit_it_is_the_systems(tmp_path: Path) -> None:
    total = psutil.virtual_memory().total
    assert 0 < free_memory(tmp_path) <= total
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert 1000 < free_memory(tmp_path) <= total
