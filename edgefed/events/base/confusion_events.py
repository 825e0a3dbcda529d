"""Events about the counts of an evaluation, by true and predicted label, and their fold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from edgefed.evaluation.confusion import Confusion
from edgefed.events.base.evaluation_views import ConfusionView


def with_confusion(
    known: Iterable[ConfusionView], fields: Mapping[str, Any]
) -> tuple[ConfusionView, ...]:
    """Return the counts after a ``confusion`` event, which replaces its place's; sorted by place.

    Raises:
        TypeError, ValueError: a field is missing or wrong.
    """
    view = ConfusionView.model_validate(fields)
    confusion_of(view)
    others = (confusion for confusion in known if confusion.place != view.place)
    return tuple(sorted((*others, view), key=lambda confusion: confusion.place))


def confusion_of(view: ConfusionView) -> Confusion:
    """Return the counts of a view.

    Raises:
        ValueError: they are not counts of classes.
    """
    return Confusion.from_rows(view.counts)
