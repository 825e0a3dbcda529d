"""Defects that are planted in decoders and handlers, to see that the fuzzing finds them."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import Phase

from benchmarks.fuzzing import running
from benchmarks.fuzzing.running import run
from benchmarks.fuzzing.targets import TARGETS
from device_agent.tasks.task_session import TaskSession
from edgefed.coordinator.devices.device_diagnostics import DeviceDiagnostics
from edgefed.coordinator.members.enrolment import Enrolment
from edgefed.data.sets import femnist
from edgefed.trust import sealed_data, signatures
from edgefed.wire import envelope, tensors
from edgefed.wire.chunk_staging import Staging
from edgefed.wire.tensors import FrameContent


@dataclass(frozen=True)
class Defect:
    """A change of one function.

    Attributes:
        name: what is wrong.
        target: of the fuzzing, which must find it.
        function: the one that is changed.
        right, wrong: text of its source, and its replacement.
    """

    name: str
    target: str
    function: Callable[..., Any]
    right: str
    wrong: str

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Let the function be wrong, wherever it has been imported."""
        source = textwrap.dedent(inspect.getsource(self.function))
        assert source.count(self.right) == 1, f"{self.name}: the function has changed"
        made: dict[str, Any] = {}
        text = "from __future__ import annotations\n" + source.replace(self.right, self.wrong)
        exec(text, self.function.__globals__, made)
        before = self.function.__code__
        self.function.__code__ = made[self.function.__name__].__code__
        try:
            yield
        finally:
            self.function.__code__ = before


DEFECTS = (
    Defect(
        "no check of length",
        "tensors",
        tensors.check_body,
        *("len(body) != size or size >", "size >"),
    ),
    Defect(
        "an exception is not caught",
        "codec",
        FrameContent.read,
        *("except zstandard.ZstdError", "except KeyError"),
    ),
    Defect(
        "no bound on a size",
        "chunks",
        Staging.__init__,
        *("not 0 < size <= limits.MAX_BLOB_BYTES", "size <= 0"),
    ),
    Defect(
        "no check of a type",
        "envelope",
        envelope._fields,
        *("not isinstance(fields, dict)", "fields is None"),
    ),
    Defect(
        "no check of a role",
        "signed",
        signatures._check_sender,
        *("signer.role not in roles", "not signer.role"),
    ),
    Defect(
        "no check of a signature",
        "sealed",
        sealed_data._from_sender,
        *("not is_signed(sender, ", "not (sender, "),
    ),
    Defect(
        "an expired token counts",
        "enrolment",
        Enrolment._check,
        *('known.state == "open" and timestamp', 'known.state == "" and timestamp'),
    ),
    Defect(
        "nesting ends in a RecursionError",
        "leaf",
        femnist._users,
        *("(ValueError, RecursionError)", "ValueError"),
    ),
    Defect(
        "the answer to an unknown ping is accepted",
        "dispatcher",
        DeviceDiagnostics.take,
        *("asked is None or (asked", "(asked"),
    ),
    Defect(
        "a chunk counts for a task that is not there",
        "agent",
        TaskSession.received,
        *("inputs is None or digest", "digest"),
    ),
)


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_the_fuzzing_finds(defect: Defect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "PHASES", (Phase.generate,))
    with defect.planted():
        reports = (run(TARGETS[defect.target], 1500, seed) for seed in (1, 2, 3))
        assert any(each.crashes for each in reports)
