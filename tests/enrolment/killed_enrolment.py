"""``edgefed-agent enroll`` that is killed at a point, or finds the disk full there.

``python -m tests.enrolment.killed_enrolment POINT HOW STATE TOKEN``; HOW is ``kill`` or the file
that fills the disk.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import device_agent.commands.cli
from edgefed.control import enrolment_client
from edgefed.files import writing as files
from edgefed.transport.enrolment_link import EnrolmentLink
from edgefed.trust import credentials
from tests.coordinator.full_disk import fill

Point = Callable[[Callable[[], None]], None]


def _keys(happen: Callable[[], None]) -> None:
    """Between the two keys."""
    whole = files.write_atomic

    def patched(path: Path, data: bytes, **how: Any) -> None:
        if path.name == credentials.ENCRYPTION:
            happen()
        whole(path, data, **how)

    setattr(enrolment_client, "write_atomic", patched)  # noqa: B010 - not exported


def _sent(happen: Callable[[], None]) -> None:
    """After the request; the coordinator may have used the token up."""
    whole = EnrolmentLink.response

    def patched(self: EnrolmentLink, timeout: float) -> Any:
        answer = whole(self, timeout)
        happen()
        return answer

    EnrolmentLink.response = patched  # type: ignore[method-assign]


def _half_saved(happen: Callable[[], None]) -> None:
    """With the files of the credentials written and not yet in their place."""
    whole = credentials.write_private

    def patched(path: Path, data: bytes) -> None:
        if path.name == credentials.FLEET:
            happen()
        whole(path, data)

    credentials.write_private = patched


def _saved(happen: Callable[[], None]) -> None:
    """With the credentials in their place, before the token is noted as used."""
    whole = enrolment_client._forget_keys

    def patched(folder: Path, user: str) -> None:
        happen()
        whole(folder, user)

    enrolment_client._forget_keys = patched


POINTS: dict[str, Point] = {
    "keys": _keys,
    "sent": _sent,
    "half-saved": _half_saved,
    "saved": _saved,
}


def main() -> None:
    point, how, state, token = sys.argv[1:]

    def happen() -> None:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif not Path(how).exists():
            fill(Path(how))

    POINTS[point](happen)
    sys.argv = ["edgefed-agent", "--state", state, "enroll", token]
    device_agent.commands.cli.main()


if __name__ == "__main__":
    main()
