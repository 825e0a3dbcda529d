"""Which versions of a payload devices hold: bounded in number, bytes and devices."""

from __future__ import annotations

import json

import pytest

from edgefed.coordinator.exchanges import held_versions
from edgefed.coordinator.exchanges.held_versions import HeldVersions


def test_a_device_holds_what_it_was_sent_last() -> None:
    versions = HeldVersions()
    versions.note("a", 10, ["one", "two"])
    versions.note("b", 10, ["two"])
    assert [versions.of(device) for device in ("one", "two", "three")] == ["a", "b", None]
    versions.note("c", 10, ["one", "two"])
    assert list(versions) == ["c"]


def test_a_version_that_returns_is_the_newest() -> None:
    versions = HeldVersions()
    for digest, device in (("a", "one"), ("b", "two"), ("a", "three")):
        versions.note(digest, 10, [device])
    assert list(versions) == ["b", "a"]
    assert versions.of("one") == versions.of("three") == "a"


def test_the_oldest_versions_beyond_the_bounds_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(held_versions, "MOST_VERSIONS", 3)
    versions = HeldVersions()
    for digest in "abcd":
        versions.note(digest, 10, [digest])
    assert list(versions) == ["b", "c", "d"]
    assert versions.of("a") is None
    monkeypatch.setattr(held_versions, "MOST_BYTES", 15)
    versions.note("e", 100, ["e"])  # the newest is not counted
    assert list(versions) == ["d", "e"]
    monkeypatch.setattr(held_versions, "MOST_DEVICES", 2)
    versions.note("e", 100, ["f"])
    assert [versions.of(device) for device in "def"] == [None, "e", "e"]


def test_what_is_written_down_is_read_again() -> None:
    versions = HeldVersions()
    versions.note("a", 10, ["one", "two"])
    versions.note("b", 20, ["three"])
    again = HeldVersions(json.loads(json.dumps(versions.to_json())))
    assert (
        again.to_json() == versions.to_json() == [["a", 10, ["one", "two"]], ["b", 20, ["three"]]]
    )
