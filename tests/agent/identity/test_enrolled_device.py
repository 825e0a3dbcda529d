"""An agent takes name and fleet from the credentials of its machine, where nothing sets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from device_agent.commands.options import agent_settings
from edgefed.errors import NotAllowedError, UsageError
from edgefed.terminal.common_options import CommonOptions


def credentials(state: Path, fleet: str, name: str, role: str = "device") -> None:
    folder = state / "trust" / fleet / name
    folder.mkdir(parents=True)
    told = {"fleet": fleet, "name": name, "role": role, "broker": "mqtts://hub:8883"}
    (folder / "fleet.json").write_text(json.dumps(told))


def chosen(state: Path, name: str | None = None, **typed: str) -> tuple[str, str | None]:
    options = CommonOptions(no_config=True, state=state, **typed)  # type: ignore[arg-type]
    settings = agent_settings(options, name=name)
    return settings.fleet, settings.name


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EDGEFED_FLEET", "EDGEFED_NAME", "EDGEFED_BROKER"):
        monkeypatch.delenv(name, raising=False)


def test_the_only_credentials_say_who_this_is(tmp_path: Path) -> None:
    assert chosen(tmp_path) == ("default", None)
    credentials(tmp_path, "plant-a", "cam-1")
    credentials(tmp_path, "plant-a", "operator.admin", "operator")
    credentials(tmp_path, "plant-a", ".cam-2.0a1b2c3d.part")
    credentials(tmp_path, "plant-a", "cam-3")
    (tmp_path / "trust" / "plant-a" / "cam-3" / "fleet.json").write_text("[" * 100_000)
    assert chosen(tmp_path) == ("plant-a", "cam-1")
    assert chosen(tmp_path, name="cam-1") == ("plant-a", "cam-1")
    assert chosen(tmp_path, broker="mqtts://hub:8883") == ("plant-a", "cam-1")


def test_what_is_set_counts(tmp_path: Path) -> None:
    credentials(tmp_path, "plant-a", "cam-1")
    plain = "mqtt://127.0.0.1:1883"
    assert chosen(tmp_path, name="cam-9", broker=plain) == ("default", "cam-9")
    assert chosen(tmp_path, fleet="plant-b", broker=plain) == ("plant-b", None)
    assert chosen(tmp_path, broker=plain) == ("default", None)


@pytest.mark.parametrize(
    ("name", "fleet"), [("cam-9", None), (None, "plant-b"), ("cam-9", "plant-a")]
)
def test_a_device_that_is_enrolled_elsewhere_is_told(
    tmp_path: Path, name: str | None, fleet: str | None
) -> None:
    credentials(tmp_path, "plant-a", "cam-1")
    typed = {} if fleet is None else {"fleet": fleet}
    with pytest.raises(NotAllowedError, match="enrolled as cam-1 of fleet plant-a") as caught:
        chosen(tmp_path, name, **typed)
    assert caught.value.code == "trust.missing"


def test_of_several_one_is_chosen(tmp_path: Path) -> None:
    for fleet, name in (("plant-a", "cam-1"), ("plant-b", "cam-1"), ("plant-b", "cam-2")):
        credentials(tmp_path, fleet, name)
    with pytest.raises(UsageError, match="cam-1 of plant-a, cam-1 of plant-b") as caught:
        chosen(tmp_path)
    assert caught.value.code == "enrol.several"
    assert chosen(tmp_path, fleet="plant-a") == ("plant-a", "cam-1")
    assert chosen(tmp_path, name="cam-2") == ("plant-b", "cam-2")
    assert chosen(tmp_path, "cam-1", fleet="plant-b") == ("plant-b", "cam-1")
