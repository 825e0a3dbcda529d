"""Check that samples have the targets of a run's loss: labels, label distributions, or numbers."""

from __future__ import annotations

from edgefed.config.recipes.sections import LossName
from edgefed.errors import DataError
from edgefed.files.samples import Samples
from edgefed.learn.training.user_losses import is_user_loss
from edgefed.sharing.packing import are_shares


def misfit(loss: LossName, samples: Samples) -> str:
    """Return why a loss cannot take these targets, as text that follows "targets"; else ""."""
    if not len(samples) or is_user_loss(loss):
        return ""
    if loss == "squared_error":
        return "are labels, and squared error needs numbers" if samples.has_labels else ""
    if samples.has_labels or are_shares(samples.targets):
        return ""
    return "are numbers, not the label distributions that cross-entropy needs"


def check_targets(loss: LossName, where: str, *parts: Samples) -> None:
    """Check that a loss can be of the targets of all ``parts``.

    Args:
        loss: the run's.
        where: whose samples they are, for the error.
        parts: those to train on, those to test on; any may be empty.

    Raises:
        DataError: ``data.targets``.
    """
    wrong = next(filter(None, (misfit(loss, part) for part in parts)), "")
    if not wrong:
        return
    squared = loss == "squared_error"
    other, kind = ("cross_entropy", "floats") if squared else ("squared_error", "integers")
    raise DataError(
        f"The targets of {where} {wrong}.",
        code="data.targets",
        hint=f'set training.loss = "{other}", or store the targets as {kind}',
    )


def has_accuracy(loss: LossName, samples: Samples) -> bool:
    """Return whether right answers can be counted: where targets name labels.

    With a user's own loss, integers are labels and floats are numbers.
    """
    return samples.has_labels if is_user_loss(loss) else loss != "squared_error"
