"""The example of blobs between devices in ``docs/architecture.md`` does what it says."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent, indent

import pytest

from edgefed.algorithms import registry
from edgefed.algorithms.plugins import GROUP
from edgefed.coordinator.fleet import Delivered
from edgefed.coordinator.records import OpenExchange
from tests.coordinator.fleets import TamperedFleet
from tests.run_fixture import World, recipe, shards

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
BEFORE = """
from dataclasses import replace

from edgefed.algorithms.base import Answer, Exchange, Finished, Question, Relay
from edgefed.algorithms.fedavg import FedAvg


class Passing(FedAvg):
    name = "passing"
    summary = "the example"
    paper = "none"

"""


@pytest.fixture
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    (example,) = (block for block in blocks if "max_relay_bytes" in block)
    folder = tmp_path / "passing-1.0.dist-info"
    folder.mkdir()
    (tmp_path / "passing_example.py").write_text(BEFORE + indent(dedent(example), "    "))
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: passing\nVersion: 1.0\n")
    point = f"[{GROUP}]\npassing = passing_example:Passing\n"
    (folder / "entry_points.txt").write_text(point)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    registry.offered.cache_clear()
    yield
    registry.offered.cache_clear()


@pytest.mark.usefixtures("_installed")
def test_devices_send_each_other_bytes(tmp_path: Path) -> None:
    plan = recipe(algorithm={"name": "passing"}, evaluation={"every": 0})
    here = World(tmp_path / "world", plan, shards((5, 9, 6)))
    received: list[tuple[int, float]] = []

    def look(exchange: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        for each in replies:
            if exchange.name == "pass":
                received.append((exchange.round, each.reply.metrics["received"]))
            yield each

    try:
        record = here.engine(TamperedFleet(here.devices, look)).run()
        assert record.status == "finished", record.reason
    finally:
        here.close()
    assert received == [(1, 0.0)] * 3 + [(2, 2.0)] * 3
