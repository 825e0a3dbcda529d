"""The agent's part in its own updates: fetch offers, report, and show its updater a trial.

Agent and updater are two programs, of versions that may differ. They talk through the files that
``device_agent.updater.state`` lists. The agent trusts no offer and verifies none: the updater does.
"""

from __future__ import annotations

import json
import logging
import math
import os
import random
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from device_agent.reports.publisher import Publisher
from device_agent.tasks.probe_task import probe_order, probe_problem
from device_agent.tasks.training_messages import TrainingDone
from device_agent.tasks.training_process import Item, TrainingProcess
from device_agent.updater.agent_process import SignsOfLife
from device_agent.updater.disk import read_json
from edgefed.errors import StorageError
from edgefed.files.writing import write_atomic
from edgefed.process.clock import Clock
from edgefed.transport.blob_intake import Ask, BlobIntake
from edgefed.wire.blobs import BlobCache
from edgefed.wire.limits import CHUNK_BYTES, MAX_BLOB_BYTES
from edgefed.wire.messages import Chunk
from edgefed.wire.update_messages import UpdateOffer, UpdateState

log = logging.getLogger(__name__)

LOOK_EVERY = 0.5
"""Seconds between two looks at the updater's state."""

BEAT_EVERY = 5.0
"""Seconds between two signs of life."""

AGAIN = 60.0
"""Seconds after which a blob that did not come is asked for again."""

UpdatesMode = Literal["off", "ask", "auto"]


@dataclass(frozen=True)
class UpdateOptions:
    """How an agent takes part in its updates.

    Attributes:
        home: the updater's folder; None for an agent that no updater started.
        mode: the owner's setting.
        bandwidth: most bytes a second of a download; 0 for no limit.
        probe: returns the process that trains the probe task, given the receiver of its items.
    """

    home: Path | None
    mode: UpdatesMode
    bandwidth: int
    probe: Callable[[Callable[[Item], None]], TrainingProcess]


class AgentUpdates:
    """Owned by the agent's thread.

    Args:
        options: of the agent.
        device, session: of this agent.
        publisher: silent during a trial: nothing of an agent that may be switched back leaves it.
        cache: the device's blobs, for the probe task.
        clock: for the rate of downloads.

    Attributes:
        on_trial: whether this process is a new version that its updater judges.
        next_due: the monotonic second from which on ``due`` has work; ``math.inf`` for never.
    """

    def __init__(
        self,
        options: UpdateOptions,
        device: str,
        session: str,
        publisher: Publisher,
        cache: BlobCache,
        clock: Clock,
    ) -> None:
        self._options, self._device, self._session = options, device, session
        self._publisher = publisher
        self._clock = clock
        self._offer: UpdateOffer | None = None
        self._written = ""
        self._state: Mapping[str, Any] = {}
        self._reported: UpdateState | None = None
        self._signs, self._beat_at = SignsOfLife(), 0.0
        self._look_at = self._free_at = self._again_at = 0.0
        self._held, self._stamp = False, 0
        self._probe: TrainingProcess | None = None
        self._probe_done: TrainingDone | None = None
        self._intake: BlobIntake | None = None
        self.on_trial, self.next_due = False, math.inf
        if options.home is not None:
            incoming = options.home / "incoming"
            blobs = BlobCache(incoming / "blobs", MAX_BLOB_BYTES)
            jitter = random.Random(secrets.randbits(64))
            self._intake = BlobIntake(blobs, incoming / "staging", jitter)
            self._look(options.home)
            self.next_due = 0.0
            self.on_trial = self._state.get("phase") == "trial"
        if self.on_trial:
            publisher.silent = True
            self._probe = options.probe(self._take_probe)
            self._probe.begin(probe_order(cache, device))

    def _take_probe(self, item: Item) -> None:
        """Take what the probe's process says, on its thread."""
        if isinstance(item, TrainingDone):
            self._probe_done = item

    # -- what the agent calls -----------------------------------------------------------------

    def take(self, offer: UpdateOffer) -> None:
        """Take an offer: its metadata are fetched, and the updater then looks at it."""
        if offer.session != self._session:
            return
        if self._intake is None or self._options.mode == "off":
            why = "the owner has switched updates off"
            if self._options.mode != "off":
                why = "no updater has started this agent: edgefed-agent update run"
            self._report(UpdateState(**self._own("off"), offer=offer.offer, reason=why))
        elif offer.offer not in (self._written, self._state.get("offer")):
            self._offer, self.next_due = offer, 0.0

    def take_chunk(self, chunk: Chunk, now: float) -> None:
        """Take a chunk; those of other blobs are ignored."""
        if self._intake is not None:
            self._send(self._intake.chunk(chunk, now), now)
            self.next_due = 0.0

    def reconnected(self, now: float) -> None:
        """Ask again for the blobs on their way, and report the version."""
        self.forget_report()
        if self._intake is not None:
            for ask in self._intake.reconnected(now):
                self._send(ask, now)

    def forget_report(self) -> None:
        """Report again: the coordinator is another process."""
        self._reported = None
        if self._intake is not None:
            self.next_due = 0.0

    def due(self, now: float, connected: bool, quiet: bool) -> bool:
        """Do the work that is due; return whether a trial has just been passed.

        Args:
            now: the monotonic second.
            connected: whether the broker is connected.
            quiet: whether neither a run nor a task is at work.
        """
        home, intake = self._options.home, self._intake
        if home is None or intake is None:
            return False
        passed = False
        if now >= self._look_at:
            self._look_at = now + LOOK_EVERY
            self._look(home)
            passed = self.on_trial and self._state.get("phase") != "trial"
        if passed:
            self.on_trial = self._publisher.silent = False
        self.next_due = self._look_at
        self._show_signs(home, now, connected, quiet)
        if connected and not self.on_trial:
            self._download(home, intake, now)
            state = self._state
            reason = str(state.get("reason", ""))[:1000]
            own = self._own(str(state.get("phase", "idle")))
            self._report(UpdateState(**own, offer=str(state.get("offer", "")), reason=reason))
        return passed

    def close(self) -> None:
        """End the probe task, and downloads; chunks stay on disk."""
        if self._probe is not None:
            self._probe.stop()
        if self._intake is not None:
            self._intake.close()

    # -- the updater --------------------------------------------------------------------------

    def _look(self, home: Path) -> None:
        path = home / "state.json"
        try:
            stamp = path.stat().st_mtime_ns
        except OSError:
            return
        if stamp != self._stamp:
            self._stamp, self._state = stamp, read_json(path)

    def _show_signs(self, home: Path, now: float, connected: bool, quiet: bool) -> None:
        """Write signs of life for the updater, when they change and every few seconds."""
        done = self._probe_done
        if done is not None and self._probe is not None:
            self._probe.stop()
            self._probe = None
        problem = "" if done is None else probe_problem(done.outcome)
        probed = done is not None and not problem
        signs = SignsOfLife(self._signs.beat, True, probed, connected, quiet, problem)
        if signs == self._signs and now < self._beat_at:
            return
        self._beat_at = now + BEAT_EVERY
        self._signs = SignsOfLife(**{**vars(signs), "beat": signs.beat + 1})
        try:
            text = json.dumps({"pid": os.getpid(), **vars(self._signs)})
            if home.is_dir():  # else it was moved away, and nothing is put in its place
                write_atomic(home / "agent.json", text.encode(), sync=False)
        except StorageError as error:
            log.warning("the updater gets no sign of life: %s", error.message)

    def _own(self, phase: str) -> dict[str, str]:
        release = str(self._state.get("current", "base"))
        return {"session": self._session, "release": release, "phase": phase}

    def _report(self, state: UpdateState) -> None:
        if state != self._reported:
            self._reported = state
            self._publisher.update_state(state)

    # -- downloads ----------------------------------------------------------------------------

    def _download(self, home: Path, intake: BlobIntake, now: float) -> None:
        if self._held and now >= self._free_at:
            self._held = False
            for ask in intake.reconnected(now):
                self._send(ask, now)
        elif not self._held:
            for ask in intake.due(now):
                self._send(ask, now)
        if intake.failures:
            intake.failures.clear()
            self._again_at = now + AGAIN
        offer, needs = self._offer, self._needs()
        missing = {digest: size for digest, size in needs.items() if not intake.cache.has(digest)}
        if missing and now >= self._again_at and not any(map(intake.coming, missing)):
            digest, size = next(iter(missing.items()))
            self._send(intake.fetch("", digest, size, "pull", now), now)
        elif offer is not None and not missing:
            self._hand_over(home, offer)
        elif not needs and self._written in ("", self._state.get("offer")):
            intake.cache.shed()
            intake.prune()

    def _needs(self) -> dict[str, int]:
        """Return the blobs to fetch, by digest and size: those of an offer, or its files."""
        if self._offer is not None:
            return {ref.digest: ref.size for ref in self._offer.metadata.values()}
        return dict(self._state.get("needs", {}))

    def _hand_over(self, home: Path, offer: UpdateOffer) -> None:
        """Let the updater look at an offer whose metadata is here."""
        body = {
            "id": offer.offer,
            "release": offer.release,
            "during_run": offer.during_run,
            "withdraw": offer.withdraw,
            "metadata": {name: ref.digest for name, ref in offer.metadata.items()},
        }
        write_atomic(home / "offer.json", json.dumps(body).encode())
        self._offer, self._written = None, offer.offer

    def _send(self, ask: Ask | None, now: float) -> None:
        """Ask for chunks, or hold the request back until the bandwidth allows it."""
        if ask is None:
            return
        if now < self._free_at:
            self._held = True
            return
        self._publisher.need(ask.need)
        if self._options.bandwidth:
            seconds = len(ask.need.chunks) * CHUNK_BYTES / self._options.bandwidth
            self._free_at = now + seconds
