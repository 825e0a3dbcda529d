"""The same recipe gives the same weights, bit for bit, on devices and in a simulation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.processes import edgefed, outcome

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]


def result(state: Path, *words: str) -> dict[str, Any]:
    code, out, err = outcome(edgefed("--state", str(state), "--quiet", *words, "--json"))
    assert (code, err) == (0, "")
    return dict(json.loads(out))


def events(real: dict[str, Any], kind: str, **wanted: Any) -> list[dict[str, Any]]:
    """Return the events of a kind that hold what is wanted, of a demo's run."""
    log = Path(real["model"]).with_name("events.jsonl").read_text()
    found = [json.loads(line) for line in log.splitlines()]
    return [each for each in found if each["kind"] == kind and wanted.items() <= each.items()]


def both(folder: Path, *words: str, broker: str = "mosquitto") -> tuple[str, str]:
    """Return the digests of a demo and of a simulation of its recipe."""
    real = result(folder, "demo", "--headless", "--broker-kind", broker, *words)
    recipe = Path(real["model"]).with_name("recipe.toml")
    virtual = result(folder, "sim", "run", str(recipe))
    assert real["rounds"] == virtual["rounds"] == 3
    assert real["devices"] == virtual["devices"]
    assert real["accuracy"] == virtual["accuracy"]
    return real["weights_digest"], virtual["weights_digest"]


@pytest.mark.parametrize("codec", ["fp32", "bf16", "int8"])
def test_through_mosquitto_as_in_a_simulation(tmp_path: Path, codec: str) -> None:
    coded = [*("--set", f"wire.uplink={codec}"), *("--set", f"wire.downlink={codec}")]
    real, virtual = both(tmp_path, "--devices", "4", "--rounds", "3", "--seed", "1", *coded)
    assert real == virtual
    assert len(real) == 64


def test_crops_and_flips_that_the_data_declare_reach_devices(tmp_path: Path) -> None:
    words = ("--devices", "3", "--rounds", "3", "--seed", "1")
    declared = ("--set", "data.crop=1", "--set", "data.flip=true")
    real, virtual = both(tmp_path / "augmented", *words, *declared)
    plain, _ = both(tmp_path / "plain", *words)
    assert real == virtual
    assert real != plain


def test_through_the_embedded_broker_as_in_a_simulation(tmp_path: Path) -> None:
    pytest.importorskip("amqtt", reason="the demo broker is not installed")
    words = ("--devices", "3", "--rounds", "3", "--seed", "1")
    real, virtual = both(tmp_path, *words, broker="embedded")
    assert real == virtual


@pytest.mark.parametrize("broker", ["mosquitto", "embedded"])
def test_eight_devices_share_averages_once_and_train_as_in_a_simulation(
    tmp_path: Path, broker: str
) -> None:
    if broker == "embedded":
        pytest.importorskip("amqtt", reason="the demo broker is not installed")
    words = ("--algorithm", "fedmix", "--devices", "8", "--rounds", "3", "--seed", "1")
    real = result(tmp_path, "demo", "--headless", "--broker-kind", broker, *words)
    virtual = result(tmp_path, "sim", "run", str(Path(real["model"]).with_name("recipe.toml")))
    assert real["weights_digest"] == virtual["weights_digest"]
    assert real["accuracy"] == virtual["accuracy"]
    assert len(events(real, "exchange", question="mean", phase="broadcast")) == 1
    assert len(events(real, "reply", question="mean", outcome="accepted")) == 8
    assert len(events(real, "reply", question="fit", outcome="accepted")) == 24
    notes = [note["text"] for note in events(real, "note")]
    assert "8 of 8 devices shared averaged data: 8 entries in all" in notes


@pytest.mark.parametrize("name", ["naivemix", "localmix"])
def test_every_mixing_method_trains_devices_as_in_a_simulation(tmp_path: Path, name: str) -> None:
    words = ("--algorithm", name, "--devices", "3", "--rounds", "3", "--seed", "1")
    real, virtual = both(tmp_path, *words)
    assert real == virtual


@pytest.mark.parametrize("algorithm", ["fedlc", "fedrs"])
def test_losses_of_label_counts_and_adam_end_alike(tmp_path: Path, algorithm: str) -> None:
    words = ("--devices", "3", "--rounds", "3", "--seed", "1", "--algorithm", algorithm)
    adam = ("--set", "training.optimizer=adam", "--set", "training.learning_rate=0.002")
    real, virtual = both(tmp_path, *words, *adam)
    assert real == virtual


def test_clustered_models_end_alike(tmp_path: Path) -> None:
    words = ("--algorithm", "ifca", "--devices", "3", "--rounds", "3", "--seed", "1")
    real, virtual = both(tmp_path, *words)
    assert real == virtual
