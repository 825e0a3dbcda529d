"""Keep a ``current`` model for the inference program: fetch it, have it tested, and swap it in.

It belongs to the agent's main thread. The test and the export run in the training process, which
does tasks first. Nothing of an offer is kept across a kill: the coordinator repeats it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from device_agent.models.model_folder import ModelFolder
from device_agent.tasks.training_messages import MODEL_FILES, ModelChecked, ModelTest
from device_agent.tasks.training_process import TrainingProcess
from edgefed.config.fleet.settings import AgentSettings
from edgefed.errors import EdgeFedError, StorageError
from edgefed.process.clock import Clock, timestamp
from edgefed.transport.downloads import Downloads
from edgefed.wire.blobs import BlobCache
from edgefed.wire.messages import Chunk
from edgefed.wire.rollout_messages import ModelAnswer, ModelOffer, ModelOutcome

log = logging.getLogger(__name__)

LOOK_EVERY = 5.0
"""Seconds between two looks for a model that the device's owner has rolled back."""

BY_OPERATOR = "an operator withdrew it"


class ModelKeeper:
    """At most one offer, from its arrival until its answer.

    Args:
        settings: the owner's.
        models: the device's models.
        downloads: fetches model files.
        cache: of the files that were fetched.
        training: tests models.
        publish: sends an answer.
        clock: for times.
        session: of this process.

    Attributes:
        next_due: the monotonic second from which on ``due`` has work.
    """

    def __init__(
        self,
        settings: AgentSettings,
        models: ModelFolder,
        downloads: Downloads,
        cache: BlobCache,
        training: TrainingProcess,
        publish: Callable[[ModelAnswer], None],
        clock: Clock,
        session: str,
    ) -> None:
        self._settings = settings
        self._models = models
        self.downloads = downloads
        self._cache = cache
        self._training = training
        self._publish = publish
        self._clock = clock
        self._session = session
        self._offer: ModelOffer | None = None
        self._test: ModelTest | None = None
        self._attempts = count()
        self._next_look = self.next_due = 0.0
        self._noted = self._models.outcome()

    def take(self, offer: ModelOffer) -> None:
        """Begin with an offer, or repeat its answer."""
        if offer.session == self._session:
            self._guarded(offer.rollout, lambda: self._take(offer))

    def _take(self, offer: ModelOffer) -> None:
        rollout = offer.rollout
        if offer.action == "withdraw":
            self._withdraw(rollout)
        elif self._settings.models == "off":
            self._answer(rollout, "declined", reason="its owner takes no models (models)")
        elif not self._repeat(rollout) and not self._is_at_hand(rollout):
            self._drop()
            log.info("model of rollout %s offered: %d bytes", rollout, offer.size)
            self._offer, self.next_due = offer, 0.0
            if not self._cache.intact(offer.digest):
                self.downloads.prune([offer.digest])
                self.downloads.want({offer.digest: offer.size})

    def chunk(self, chunk: Chunk) -> bool:
        """Take a chunk if it is of the model at hand; return whether it is."""
        offer = self._offer
        if offer is None or chunk.digest != offer.digest:
            return False
        now = self._clock.monotonic()
        self._guarded(offer.rollout, lambda: self.downloads.take(chunk, now))
        return True

    def subscribed(self, topic_filter: str) -> None:
        """Request the model whose subscription holds now."""
        wanted = () if self._offer is None else (self._offer.digest,)
        self.downloads.subscribed(topic_filter, wanted, self._clock.monotonic())

    def due(self, now: float, *, is_free: bool) -> None:
        """Continue with the offer at hand.

        Args:
            now: the monotonic second.
            is_free: whether no task is at work.
        """
        if now >= self._next_look:
            self._next_look = now + LOOK_EVERY
            self._look()
        offer = self._offer
        if offer is None:
            self.next_due = self._next_look
            return
        if self.downloads.due(now):
            self._fail(offer.rollout, "the model file never came")
        elif is_free and self._cache.has(offer.digest) and not self._is_testing:
            self._guarded(offer.rollout, lambda: self._begin_test(offer))

    def finished(self, checked: ModelChecked) -> None:
        """Install a model that was tested, and answer."""
        if self._offer is not None and self._test is not None and checked.name == self._test.name:
            offer, test = self._offer, self._test
            self._guarded(offer.rollout, lambda: self._finish(offer, test, checked))

    @property
    def _is_testing(self) -> bool:
        """Whether the test was begun; one that a task interrupted begins again."""
        return self._test is not None and self._training.work_on(self._test.name)

    def _begin_test(self, offer: ModelOffer) -> None:
        self.downloads.arrived(offer.digest)
        name = f"{offer.rollout}.{next(self._attempts)}"
        current, folder = self._models.rollout("current"), self._models.folder
        self._test = ModelTest(
            name=name,
            model=str(folder / "blobs" / offer.digest),
            current=str(folder / current / MODEL_FILES["safetensors"]) if current else "",
            draft=str(self._models.draft(name)),
            formats=self._settings.model_formats,
            tolerance=self._settings.model_tolerance,
        )
        self._training.begin(self._test)

    def _finish(self, offer: ModelOffer, test: ModelTest, checked: ModelChecked) -> None:
        scores = {"metric": checked.metric, "score": checked.score, "before": checked.before}
        if checked.outcome == "installed":
            about = {"rollout": offer.rollout, "digest": offer.digest, **checked.description}
            at = timestamp(self._clock.now())
            about = {**about, **scores, "installed": at}
            self._models.install(Path(test.draft), offer.rollout, about)
            log.info("the current model is that of rollout %s", offer.rollout)
        else:
            log.warning("model of rollout %s: %s", offer.rollout, checked.reason)
        self._drop()
        self._answer(offer.rollout, checked.outcome, reason=checked.reason, **scores)

    def _withdraw(self, rollout: str) -> None:
        if self._is_at_hand(rollout):
            self._drop()
        if self._models.rollout("current") == rollout:
            self._noted = self._models.roll_back(BY_OPERATOR)
        self._answer(rollout, "rolled_back", reason=BY_OPERATOR)

    def _repeat(self, rollout: str) -> bool:
        """Answer as before; return whether the rollout had an outcome here."""
        known, current = self._models.outcome(), self._models.description("current")
        if known is not None and known.get("rollout") == rollout:
            self._publish(ModelAnswer(session=self._session, **known))
        elif current is not None and current.get("rollout") == rollout:
            scores = {name: current.get(name) for name in ("metric", "score", "before")}
            self._answer(rollout, "installed", **scores)
        else:
            return False
        return True

    def _look(self) -> None:
        """Send the outcome of a model that the device's owner has rolled back."""
        known = self._models.outcome()
        if known is not None and known != self._noted:
            self._guarded(str(known.get("rollout")), lambda: self._repeat(str(known["rollout"])))
        self._noted = known

    def _answer(self, rollout: str, outcome: ModelOutcome, **about: Any) -> None:
        """Send an answer, and keep one that says that the model is not used."""
        about["reason"] = about.get("reason", "")[:1000]
        answer = ModelAnswer(session=self._session, rollout=rollout, outcome=outcome, **about)
        self._publish(answer)
        if outcome in ("refused", "failed"):
            self._noted = answer.model_dump(exclude={"session"})
            self._models.note_outcome(self._noted)

    def _fail(self, rollout: str, reason: str) -> None:
        log.warning("model of rollout %s: %s", rollout, reason)
        with suppress(StorageError):  # it is offered again, and fails again
            self._drop()
            self._answer(rollout, "failed", reason=reason)

    def _guarded(self, rollout: str, action: Callable[[], object]) -> None:
        """Do a step of an offer; an error ends it, and not the agent's task."""
        try:
            action()
        except EdgeFedError as error:
            self._fail(rollout, error.as_line())
        except Exception as error:
            log.exception("error in the keeper of models")
            self._fail(rollout, f"{type(error).__name__}: {error}")

    def _is_at_hand(self, rollout: str) -> bool:
        return self._offer is not None and self._offer.rollout == rollout

    def _drop(self) -> None:
        offer, test = self._offer, self._test
        self._offer = self._test = None
        if test is not None and self._training.work_on(test.name):
            self._training.give_up()
        if offer is not None:
            self.downloads.drop([offer.digest])
            self.downloads.prune(())
            self._cache.clear()
            self._models.clean()
