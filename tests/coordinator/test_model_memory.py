"""A run whose model does not fit into the coordinator's memory ends before a device is asked."""

from __future__ import annotations

from pathlib import Path

from tests.cli.commands import edgefed
from tests.run_fixture import World


def test_the_engine_refuses_it_and_asks_nobody(tmp_path: Path) -> None:
    world = World(tmp_path)
    record = world.engine(memory=1000).run()
    assert (record.status, record.error) == ("failed", "model.too_large")
    assert "1000 B (1000 bytes) are available here" in record.reason
    assert "memory" in record.hint
    assert world.seen("exchange") == []
    assert world.store().checkpoint(world.run) is None
    assert World(tmp_path / "more").engine(memory=2**20).run().status == "finished"


def test_a_simulation_refuses_it_before_the_run_is_written(tmp_path: Path) -> None:
    settings = tmp_path / "edgefed.toml"
    settings.write_text(f"memory = {2**30}\n")
    wide = ("--set", "model.hidden=[65536,65536]", "--set", "model.name=mlp")
    told = edgefed("--config", settings, "sim", "run", *wide, state=tmp_path)
    told.failed(1, "model.too_large", "1073741824 bytes", "raise memory")
    assert not (tmp_path / "simulations" / "runs").exists()


def test_the_default_is_half_of_what_is_free(tmp_path: Path) -> None:
    many = "[" + "65536," * 64 + "]"
    told = edgefed(
        "sim", "run", "--set", f"model.hidden={many}", "--set", "model.name=mlp", state=tmp_path
    )
    told.failed(1, "model.too_large", "are available here")
