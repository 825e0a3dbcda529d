"""The example of several open exchanges in ``docs/architecture.md`` does what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.docs.pages import ROOT, blocks
from tests.simulator.executors.test_local_fleet import Bus, exchange


def test_two_exchanges_are_open_at_the_same_time(tmp_path: Path) -> None:
    page = blocks(ROOT / "docs" / "architecture.md")
    (example,) = (block for block in page if block.example == "open_exchanges")
    bus = Bus(tmp_path)
    names: dict[str, Any] = {
        "fleet": bus.fleet,
        "first": exchange(0),
        "second": exchange(1),
        "stop": lambda: False,
    }
    exec(example.text, names)
    assert names["delivered"].reply.exchange == exchange(1).exchange
    found = [names["early"], *names["late"]]
    assert [each.reply.exchange for each in found] == [exchange(0).exchange] * 2
    assert [each.reply.device for each in found] == ["device-00", "device-01"]
