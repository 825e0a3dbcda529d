"""A client accepts the newest certificate of the coordinator only."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Literal

import pytest

from edgefed.control.coordinator_client import CoordinatorClient
from edgefed.errors import NotAllowedError
from edgefed.transport.inbox import Incoming
from edgefed.trust.credentials import Credentials
from edgefed.trust.signatures import Signer
from edgefed.wire.envelope import encode
from edgefed.wire.messages import CoordinatorState
from edgefed.wire.topics import Topics
from tests.signed_fleet import Trust


def test_a_client_no_longer_accepts_the_coordinators_old_keys(tmp_path: Path) -> None:
    trust = Trust(tmp_path / "trust")
    own = trust.issue("operator", "maria")
    old = trust.issue("coordinator", now=trust.now - timedelta(hours=1))
    new = trust.issue("coordinator")
    topics = Topics(trust.fleet)

    def client() -> CoordinatorClient:
        return CoordinatorClient(trust.address(own), trust.fleet)

    def say(to: CoordinatorClient, signer: Credentials, status: Literal["online", "lost"]) -> bool:
        state = CoordinatorState(session="0123456789abcdef", owner="me", status=status)
        payload = encode(state, topics.coordinator(), Signer(signer))
        to._take(Incoming(topics.coordinator(), payload, True))
        return to.online

    first = client()
    assert [say(first, old, "online"), say(first, new, "online"), say(first, old, "lost")] == [
        True,
        True,
        True,
    ]
    assert say(client(), old, "online") is False  # nor in another process
    assert say(client(), new, "online") is True


def test_credentials_that_are_replaced_again_meanwhile_are_tried_at_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust = Trust(tmp_path / "trust")
    client = CoordinatorClient(trust.address(trust.issue("operator", "maria")), trust.fleet)
    renewed: list[Credentials] = []

    def renew(credentials: Credentials) -> None:
        renewed.append(credentials)
        if len(renewed) == 1:
            raise NotAllowedError("The files do not fit.", code="trust.credentials")

    monkeypatch.setattr(client._link, "renew", renew)
    monkeypatch.setattr(client._link, "wait_until_connected", lambda timeout: True)
    client.refresh_credentials()
    assert renewed == []
    made = trust.issue("operator", "maria")
    for calls in (1, 2, 2):
        client.refresh_credentials()
        assert len(renewed) == calls
    assert renewed[-1].certificate == made.certificate
