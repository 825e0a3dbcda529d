"""Offer a run's model to the devices in stages, and take their answers.

The newest rollout is the one in force. Its offer is repeated to a device in each session of its
agent, so that a device that was away or was killed, and a coordinator that was, lose nothing. The
models that a run's recipe asks for are rolled out as soon as their files are there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from edgefed.config.recipes.recipe import Recipe
from edgefed.config.recipes.rollout_section import RolloutSection
from edgefed.coordinator.devices.device_registry import DeviceRegistry
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.rollouts.rollout_store import ModelRollout, RolloutStore
from edgefed.coordinator.rollouts.staging import (
    LIVE,
    Stages,
    Status,
    drawn_order,
    next_step,
    progress_text,
)
from edgefed.coordinator.storage.run_store import Store
from edgefed.errors import EdgeFedError, StorageError, UnknownNameError, UsageError
from edgefed.files.writing import storage_error
from edgefed.learn.modeling.model_file_reader import BEST_FILE, MODEL_FILE, opened_model_file
from edgefed.process.clock import Clock, timestamp
from edgefed.wire.blobs import BlobCache
from edgefed.wire.rollout_messages import ModelAnswer, ModelOffer

log = logging.getLogger(__name__)

LOOK_EVERY = 1.0
"""Seconds between two looks at a rollout that goes on."""

REPEAT = 60.0
"""Seconds after which a connected device that has not answered is asked again."""

SETTLE = 5.0
"""Seconds after the coordinator's start in which no stage begins: devices are about to connect."""


class ModelRollouts:
    """The rollouts of models; safe from any thread.

    Args:
        store: keeps them.
        runs: the runs, with their model files.
        registry: the connected devices.
        cache: blobs that devices may fetch.
        journal: receives the changes.
        clock: for times.
        send: sends a device an offer.
        new_id: returns a random name of hexadecimal digits.
        site_of: returns the gateway that speaks for a device, whose devices are not asked.

    Attributes:
        next_due: the monotonic second of the next look.
    """

    def __init__(
        self,
        store: RolloutStore,
        runs: Store,
        registry: DeviceRegistry,
        cache: BlobCache,
        journal: EventJournal,
        clock: Clock,
        send: Callable[[str, ModelOffer], None],
        new_id: Callable[[], str],
        site_of: Callable[[str], str] = lambda device: "",
    ) -> None:
        self._site_of = site_of
        self._store = store
        self._runs = runs
        self._registry = registry
        self._cache = cache
        self._journal = journal
        self._clock = clock
        self._send = send
        self._new_id = new_id
        self._lock = threading.RLock()
        self.next_due = clock.monotonic() + SETTLE
        self._sent: dict[str, float] = {}
        self._section: tuple[str, RolloutSection] = "", RolloutSection()
        self._followed = 0  # time of the file that was rolled out last
        newest = self._newest()
        if newest is not None and newest.stages.status in LIVE:
            cache.pin(newest.digest)
        registry.listen(self._meet)

    # -- orders -------------------------------------------------------------------------------

    def start(
        self, run: str, *, best: bool, shares: Sequence[float], stop_at: float, by: str
    ) -> ModelRollout:
        """Begin to offer a run's model; a rollout that goes on is replaced.

        Args:
            run: its id.
            best: the model of its best round, and not the last one's.
            shares: of the devices that each stage asks, with those before.
            stop_at: share of refusals above which the rollout stops.
            by: the user that orders it.

        Raises:
            UnknownNameError: there is no such model.
            UsageError: its models cannot predict together; there are no devices.
            DataError, StorageError: its file is damaged, or cannot be read.
        """
        data, number = self._model(run, best=best)
        with self._lock:
            online = {member.device for member in self._registry.roster()}
            names = (member.device for member in self._registry.known())
            known = [device for device in names if not self._site_of(device)]
            if not known:
                raise UsageError(
                    "No device has joined this fleet.",
                    code="rollout.devices",
                    hint="edgefed-agent run",
                )
            before = self._newest()
            if before is not None:
                self._end(before, "replaced")
            digest = self._cache.put(data)
            self._cache.pin(digest)
            rollout = f"m-{self._new_id()}"
            order = sorted(drawn_order(rollout, known), key=lambda device: device not in online)
            made = ModelRollout(
                number=1 if before is None else before.number + 1,
                rollout=rollout,
                run=run,
                round=number,
                best=best,
                digest=digest,
                size=len(data),
                by=by,
                begun=timestamp(self._clock.now()),
                stages=Stages(tuple(order), tuple(shares), stop_at),
            )
            self._store.save(made)
            self._sent.clear()
            self._tell(made)
            self._offer_all(made)
            return made

    def _model(self, run: str, *, best: bool) -> tuple[bytes, int]:
        """Return a run's model file and its round."""
        path = self._runs.run_folder(run) / (BEST_FILE if best else MODEL_FILE)
        if not path.is_file():
            raise UnknownNameError(
                f"Run {run} has no {path.name}.",
                code="model.none",
                hint="leave --best out" if best else "a run writes its model when it ends",
            )
        with opened_model_file(path) as file:
            description = file.description
        if len(description.models) > 1 and not description.shares:
            raise UsageError(
                f"Run {run} has several models, which its file does not say how to combine.",
                code="model.several",
                hint="only models that predict together can be rolled out",
            )
        try:
            return path.read_bytes(), description.round
        except OSError as error:
            raise storage_error(path, error) from error

    def roll_back(self) -> ModelRollout:
        """Order the devices to go back from the newest rollout's model to the one before.

        Raises:
            UnknownNameError: there is no rollout.
            UsageError: it was withdrawn already.
        """
        with self._lock:
            newest = self.find("")
            if newest.stages.status == "withdrawn":
                raise UsageError(
                    f"The newest rollout, {newest.rollout}, was withdrawn already.",
                    code="rollout.withdrawn",
                    hint="edgefed model rollout RUN offers another model",
                )
            withdrawn = self._end(newest, "withdrawn")
            self._sent.clear()
            self._offer_all(withdrawn)
            return withdrawn

    def find(self, rollout: str) -> ModelRollout:
        """Return a rollout by its id; the newest for an empty one.

        Raises:
            UnknownNameError: ``rollout.unknown``: there is none.
        """
        for known in self._store.all():
            if rollout in ("", known.rollout):
                return known
        raise UnknownNameError(
            f"There is no rollout {rollout}." if rollout else "No model was rolled out yet.",
            code="rollout.unknown",
            hint="edgefed model rollout RUN",
        )

    # -- devices ------------------------------------------------------------------------------

    def take(self, device: str, answer: ModelAnswer) -> None:
        """Take a device's answer.

        Raises:
            StorageError: the disk does not take it; the device is asked again.
        """
        with self._lock:
            known = next((r for r in self._store.all() if r.rollout == answer.rollout), None)
            if known is None or device not in known.stages.asked:
                return
            fields = answer.model_dump(exclude={"session", "rollout"})
            if (
                answer.session != self._registry.session(device)
                or known.answers.get(device) == fields
            ):
                return
            known = known.with_answer(device, fields)
            self._store.save(known, device)
            self._journal.emit("device", device=device, board_model=_in_words(known, answer))

    def offered(self, digest: str) -> int:
        """Return how many connected devices may need a blob; 0 if no device may have it."""
        with self._lock:
            newest = self._newest()
            if newest is None or newest.digest != digest or newest.stages.status not in LIVE:
                return 0
            return max(1, len(newest.stages.waited(self._online())))

    def due(self, now: float) -> None:
        """Begin the next stage if it is time, and repeat offers without an answer.

        A change that the disk does not take is tried again.
        """
        if now < self.next_due:
            return
        self.next_due = now + LOOK_EVERY
        with self._lock:
            self._follow()
            newest = self._newest()
            if newest is None:
                return
            stages = next_step(newest.stages, self._online())
            changed = replace(newest, stages=stages)
            if stages is not newest.stages and self._is_saved(changed):
                newest = changed
                self._tell(newest)
                if stages.status == "stopped":
                    self._cache.unpin(newest.digest)
            self._offer_all(newest)

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def _meet(self, device: str) -> None:
        """Make an offer to a device that has come; it repeats its answer, if it has given one."""
        with self._lock:
            self._sent.pop(device, None)
            newest = self._newest()
            if newest is None or self._site_of(device) or not self._registry.online(device):
                return
            if newest.stages.status in LIVE and device not in newest.stages.order:
                newest = replace(newest, stages=newest.stages.with_device(device))
                if not self._is_saved(newest):
                    return
            if device in newest.stages.asked:
                self._offer(newest, device)

    # -- with the lock held -------------------------------------------------------------------

    def _follow(self) -> None:
        """Roll out the model that the last run's recipe asks for, once its file is there."""
        view = self._journal.snapshot.run
        if view is None:
            return
        if view.run != self._section[0]:
            self._section = view.run, self._section_of(view.run)
        section = self._section[1]
        best = section.when == "best"
        if not best and (section.when == "never" or view.status != "finished"):
            return
        path = self._runs.run_folder(view.run) / (BEST_FILE if best else MODEL_FILE)
        changed = path.stat().st_mtime_ns if path.is_file() else 0
        if not changed or changed == self._followed:
            return
        self._followed = changed
        try:
            _, number = self._model(view.run, best=best)
            known = {(rollout.run, rollout.round, rollout.best) for rollout in self._store.all()}
            if (view.run, number, best) not in known:
                self.start(
                    view.run, best=best, shares=section.stages, stop_at=section.stop_at, by=""
                )
        except StorageError as error:
            self._followed = 0  # tried again
            log.warning("%s", error.as_line())
        except EdgeFedError as error:
            self._journal.emit("note", level="warning", text=f"No rollout: {error.message}")

    def _section_of(self, run: str) -> RolloutSection:
        """Return the table of a run's recipe; the default of one that cannot be read."""
        try:
            return Recipe.model_validate_json(self._runs.run(run).recipe).rollout
        except (EdgeFedError, ValidationError):
            return RolloutSection()

    def _newest(self) -> ModelRollout | None:
        return next(iter(self._store.all()), None)

    def _is_saved(self, rollout: ModelRollout) -> bool:
        """Write a rollout; return whether the disk took it."""
        try:
            self._store.save(rollout)
        except StorageError as error:
            log.warning("%s", error.as_line())
            return False
        return True

    def _online(self) -> set[str]:
        return {device for device in self._registry.devices() if self._registry.online(device)}

    def _end(self, rollout: ModelRollout, status: Status) -> ModelRollout:
        """End a rollout, unless it has stopped or was withdrawn before."""
        stages = rollout.stages
        if status == "replaced" and stages.status not in LIVE:
            return rollout
        if stages.status in LIVE:
            self._cache.unpin(rollout.digest)
        ended = replace(rollout, stages=replace(stages, status=status))
        self._store.save(ended)
        self._tell(ended)
        return ended

    def _offer_all(self, rollout: ModelRollout) -> None:
        """Send the offer to the devices that have not answered it, each at most once a while."""
        online, stages, now = self._online(), rollout.stages, self._clock.monotonic()
        waited: list[str] = []
        if stages.status in LIVE:
            waited = stages.waited(online)
        elif stages.status == "withdrawn":
            outcomes = {device: answer["outcome"] for device, answer in rollout.answers.items()}
            may_use = {d for d in stages.asked if outcomes.get(d, "installed") == "installed"}
            waited = [device for device in stages.asked if device in may_use & online]
        for device in waited:
            if now - self._sent.get(device, -REPEAT) >= REPEAT:
                self._offer(rollout, device)

    def _offer(self, rollout: ModelRollout, device: str) -> None:
        status = rollout.stages.status
        session = self._registry.session(device)
        if status not in (*LIVE, "withdrawn") or not session:
            return
        self._sent[device] = self._clock.monotonic()
        offer = ModelOffer(
            session=session,
            rollout=rollout.rollout,
            action="withdraw" if status == "withdrawn" else "install",
            digest=rollout.digest,
            size=rollout.size,
        )
        self._send(device, offer)

    def _tell(self, rollout: ModelRollout) -> None:
        """Emit the state of a rollout after a change."""
        level, text = progress_text(rollout.about, rollout.stages)
        self._journal.emit("note", level=level, text=text)


def _in_words(rollout: ModelRollout, answer: ModelAnswer) -> str:
    """Return a device's answer for its view."""
    scores: dict[str, Any] = {answer.metric: answer.score, "before": answer.before}
    numbers = [f"{name} {value:.4g}" for name, value in scores.items() if value is not None]
    words = [f"{rollout.about} {answer.outcome.replace('_', ' ')}", *numbers, answer.reason]
    return ", ".join(filter(None, words))[:400]
