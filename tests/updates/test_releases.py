"""A release manager makes releases; nobody else can, and torch is in none of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_agent.commands.update_cli import _root
from edgefed.config.fleet.settings import AgentSettings
from edgefed.errors import NotAllowedError, UsageError
from edgefed.trust.releases import ReleaseRepository
from tests.cli.commands import edgefed
from tests.updates.wheels import NOW, Publisher, make_wheel


def test_a_release_is_a_lock_with_the_hashes_of_its_wheels(tmp_path: Path) -> None:
    publisher = Publisher(tmp_path)
    publisher.publish("0.2.0", others={"msgpack": "1.1", "torch": "2.9", "nvidia_cublas": "1"})
    publisher.publish("0.3.0", others={"msgpack": "1.1"})
    newest, oldest = ReleaseRepository(publisher.folder, NOW).releases()
    assert (newest.release, newest.number, oldest.number) == ("0.3.0", 2, 1)
    assert oldest.wheels == ("edgefed-0.2.0-py3-none-any.whl", "msgpack-1.1-py3-none-any.whl")
    (lock,) = (publisher.folder / "targets/releases").glob("*.0.2.0.txt")
    names = [line.split()[0] for line in lock.read_text().splitlines()]
    assert names == ["edgefed==0.2.0", "msgpack==1.1"]
    wheels = {path.name.partition(".")[0] for path in publisher.folder.glob("targets/wheels/*")}
    assert all(line.split("sha256:")[1] in wheels for line in lock.read_text().splitlines())
    assert len(wheels) == 3


def test_a_wheel_that_was_cut_off_is_copied_again(tmp_path: Path) -> None:
    publisher = Publisher(tmp_path)
    publisher.publish("0.2.0")
    (kept,) = publisher.folder.glob("targets/wheels/*")
    whole = kept.read_bytes()
    kept.write_bytes(whole[:99])
    ReleaseRepository(publisher.folder, NOW).add("again", tmp_path / "wheels-0.2.0", publisher.keys)
    assert kept.read_bytes() == whole


def test_online_keys_publish_and_make_no_release(tmp_path: Path) -> None:
    publisher = Publisher(tmp_path)
    publisher.publish("0.2.0")
    online = publisher.folder / "online"
    assert sorted(path.name for path in online.iterdir()) == ["snapshot.pem", "timestamp.pem"]
    repository = ReleaseRepository(publisher.folder, NOW)
    repository.sign(7)
    assert repository.expiries()["timestamp"] < repository.expiries()["targets"]
    (online / "targets.pem").write_bytes((online / "snapshot.pem").read_bytes())
    make_wheel(tmp_path / "own", "edgefed", "6.6.6")
    with pytest.raises(NotAllowedError) as refused:
        repository.add("6.6.6", tmp_path / "own", online)
    assert refused.value.code == "release.key"
    assert [each.release for each in repository.releases()] == ["0.2.0"]


@pytest.mark.parametrize(
    ("release", "wheels", "code"),
    [
        ("0.2.0", ("edgefed-1", "edgefed-2"), "release.wheels"),
        ("0.2.0", ("other-1",), "release.wheels"),
        ("../0.2.0", ("edgefed-1",), "release.name"),
        ("0.1.0", ("edgefed-1",), "release.name"),
    ],
)
def test_a_release_that_cannot_be(
    tmp_path: Path, release: str, wheels: tuple[str, ...], code: str
) -> None:
    publisher = Publisher(tmp_path)
    publisher.publish("0.1.0")
    for wheel in wheels:
        name, version = wheel.split("-")
        make_wheel(tmp_path / "own", name, version)
    with pytest.raises(UsageError) as refused:
        ReleaseRepository(publisher.folder, NOW).add(release, tmp_path / "own", publisher.keys)
    assert refused.value.code == code


def test_a_renewal_of_another_repository_is_refused(tmp_path: Path) -> None:
    publisher, other = Publisher(tmp_path / "one"), Publisher(tmp_path / "other")
    with pytest.raises(NotAllowedError) as refused:
        ReleaseRepository(publisher.folder, NOW).renew(other.keys, 30.0, ["root"])
    assert refused.value.code == "release.key"
    assert not list(other.keys.glob("*.new.pem"))


def test_the_commands(tmp_path: Path) -> None:
    folder, keys, wheels = tmp_path / "r", tmp_path / "k", tmp_path / "w"
    make_wheel(wheels, "edgefed", "0.2.0")
    edgefed("release", "show", folder).failed(5, "release.unknown")
    assert edgefed("release", "init", folder, "--keys", keys).code == 0
    assert oct((keys / "root.pem").stat().st_mode)[-3:] == "600"
    edgefed("release", "init", folder, "--keys", keys).failed(4, "release.exists")
    words = ("release", "add", folder)
    assert "edgefed 0.2.0" in edgefed(*words, "0.2.0", wheels, "--keys", keys).out
    assert edgefed("release", "sign", folder, "--days", "7").code == 0
    renewed = ("--replace", "timestamp,root", "--replace", "root", "--replace", "targets")
    told = edgefed("release", "renew", folder, "--keys", keys, *renewed, "--json").json
    assert told["replaced"] == ["timestamp", "root", "targets"]
    edgefed("release", "renew", folder, "--keys", keys, "--replace", "other").failed(
        2, "release.role"
    )
    shown = edgefed("release", "show", folder, "--json").json
    assert shown["expires"] == told["expires"]
    assert [(each["release"], each["version"]) for each in shown["releases"]] == [
        ("0.2.0", "0.2.0")
    ]


@pytest.mark.parametrize(
    ("release", "misnamed"),
    [("0.2.0", False), ("0.3.0", True), ("0.2.0-again", False), ("0.2.0-2", False), ("may", False)],
)
def test_a_name_that_is_another_version_is_doubted(
    tmp_path: Path, release: str, misnamed: bool
) -> None:
    publisher, wheels = Publisher(tmp_path), tmp_path / "wheels"
    make_wheel(wheels, "edgefed", "0.2.0")
    told = edgefed("release", "add", publisher.folder, release, wheels, "--keys", publisher.keys)
    assert told.code == 0
    assert (f"! release {release} installs edgefed 0.2.0: " in told.err) == misnamed


@pytest.mark.parametrize("kind", ["whole", "garbage", "targets", "altered"])
def test_the_pinned_root_is_checked(tmp_path: Path, kind: str) -> None:
    publisher = Publisher(tmp_path / "publisher")
    root = tmp_path / "pinned.json"
    text = publisher.root.read_text()
    targets = next(publisher.folder.glob("metadata/*.targets.json")).read_text()
    altered = text.replace('"version":1}', '"version":2}')
    assert altered != text
    texts = {"whole": text, "garbage": "garbage", "targets": targets, "altered": altered}
    root.write_text(texts[kind])
    settings = AgentSettings(updates="auto", update_root=root)
    if kind == "whole":
        assert _root(settings) == root
        return
    with pytest.raises(UsageError) as refused:
        _root(settings)
    assert refused.value.code == "updates.root"
