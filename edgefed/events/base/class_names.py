"""Names of labels: their classes, or numbers where those have no names."""

from __future__ import annotations

from collections.abc import Sequence


def name_of(label: int, names: Sequence[str]) -> str:
    """Return the name of a label, or else its number."""
    return names[label] if label < len(names) and names[label] else str(label)


def label_names(names: Sequence[str], count: int) -> list[str]:
    """Return the names of the first ``count`` labels."""
    return [name_of(label, names) for label in range(count)]
