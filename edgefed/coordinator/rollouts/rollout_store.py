"""The rollouts of models on disk: a row for each, and one for each device's answer."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from edgefed.coordinator.rollouts.staging import Stages, Verdict
from edgefed.database.database import Database, DatabaseTable, Schema
from edgefed.wire.rollout_messages import ModelOutcome

FILE = "rollouts.db"

KEPT = 32
"""Rollouts that are kept; the oldest is deleted for a new one."""

_SCHEMA = Schema(
    1,
    {
        "rollouts": DatabaseTable(
            {"number": "integer not null", "rollout": "text not null", "record": "text not null"},
            ("number",),
        ),
        "answers": DatabaseTable(
            {"rollout": "text not null", "device": "text not null", "record": "text not null"},
            ("rollout", "device"),
            "rollout",
        ),
    },
    "the database of rollouts",
)

_VERDICTS: Mapping[ModelOutcome, Verdict] = {"installed": "taken", "declined": "skipped"}


@dataclass(frozen=True)
class ModelRollout:
    """A rollout of a model.

    Attributes:
        number: counts the rollouts.
        rollout: its id.
        run, round, best: the model's; ``best`` for the run's best round.
        digest, size: of its file.
        by: the user that ordered it; empty for a setting.
        begun: UTC time.
        stages: its plan and progress.
        answers: outcome, scores and reason of each device, as in ``ModelAnswer``.
    """

    number: int
    rollout: str
    run: str
    round: int
    best: bool
    digest: str
    size: int
    by: str
    begun: str
    stages: Stages
    answers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def about(self) -> str:
        """The rollout and its model in words."""
        return f"model {self.rollout} (run {self.run}, round {self.round})"

    def with_answer(self, device: str, answer: Mapping[str, Any]) -> ModelRollout:
        """Return the rollout after a device's answer."""
        verdict = _VERDICTS.get(answer["outcome"], "refused")
        stages = self.stages.with_verdict(device, verdict)
        return replace(self, stages=stages, answers={**self.answers, device: dict(answer)})

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``edgefed model status --json`` prints."""
        fields, stages = asdict(self), self.stages
        del fields["stages"]
        counts = {"outcomes": dict(Counter(answer["outcome"] for answer in self.answers.values()))}
        progress = {"status": stages.status, "stage": stages.stage + 1, "shares": stages.shares}
        whole = {"devices": len(stages.order), "asked": len(stages.asked), **counts}
        return {**fields, **progress, "stop_at": stages.stop_at, **whole}


class RolloutStore:
    """Rollouts by number; safe from any thread.

    Args:
        folder: the coordinator's state directory; None to keep nothing, as in tests.

    Raises:
        StorageError: the file cannot be used, or is damaged.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._lock = threading.Lock()
        self._db = None if folder is None else Database(folder / FILE, _SCHEMA)
        rows = () if self._db is None else self._db.rows("rollouts")
        self._known = {int(str(row[0])): self._read(str(row[1]), str(row[2])) for row in rows}

    def _read(self, rollout: str, record: str) -> ModelRollout:
        assert self._db is not None
        fields = json.loads(record)
        plan = fields.pop("stages")
        stages = Stages(tuple(plan.pop("order")), tuple(plan.pop("shares")), **plan)
        made = ModelRollout(**fields, stages=stages)
        for _, device, answer in self._db.rows("answers", rollout):
            made = made.with_answer(str(device), json.loads(str(answer)))
        return made

    def close(self) -> None:
        """Close the file."""
        if self._db is not None:
            self._db.close()

    def all(self) -> list[ModelRollout]:
        """Return the rollouts, newest first."""
        with self._lock:
            return [self._known[number] for number in sorted(self._known, reverse=True)]

    def save(self, rollout: ModelRollout, *devices: str) -> None:
        """Write a rollout and the answers of these devices, in one transaction.

        Raises:
            StorageError: the disk does not take it; nothing changes.
        """
        with self._lock:
            dropped = sorted({*self._known, rollout.number}, reverse=True)[KEPT:]
            if self._db is not None:
                with self._db.transaction():
                    known = self._known.get(rollout.number)
                    if known is None or _row(known) != _row(rollout):
                        record = json.dumps(asdict(_row(rollout)))
                        self._db.put("rollouts", rollout.number, rollout.rollout, record)
                    for device in devices:
                        answer = json.dumps(rollout.answers[device])
                        self._db.put("answers", rollout.rollout, device, answer)
                    for number in dropped:
                        self._db.delete("rollouts", number=number)
                        self._db.delete("answers", rollout=self._known[number].rollout)
            self._known[rollout.number] = rollout
            for number in dropped:
                del self._known[number]


def _row(rollout: ModelRollout) -> ModelRollout:
    """Return a rollout without the answers, which have rows of their own."""
    return replace(rollout, answers={}, stages=replace(rollout.stages, verdicts={}))
