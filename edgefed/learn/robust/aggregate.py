"""One update in place of a cohort's, by the rule of the recipe's ``[merging]`` table."""

from __future__ import annotations

from collections.abc import Sequence

from edgefed.config.recipes.merging_section import MergingSection
from edgefed.learn.base.types import Tensors
from edgefed.learn.robust.coordinate_rules import coordinate_mean, median_count, trimmed_count
from edgefed.learn.robust.distances import integer_medians, mixed, squared_distances
from edgefed.learn.robust.geometric_median import weiszfeld_shares
from edgefed.learn.robust.krum import krum_shares
from edgefed.learn.robust.updates import BATCH_BYTES, Updates, is_statistic


def aggregated(updates: Updates, section: MergingSection) -> Tensors:
    """Return the common update; every device counts once.

    Args:
        updates: of at least one device, in an order that does not depend on arrival.
        section: the rule, which must be one that ``replaces``.
    """
    if section.rule == "median":
        merged = coordinate_mean(updates, median_count(updates.count))
    elif section.rule == "trimmed_mean":
        merged = coordinate_mean(updates, trimmed_count(section.trimmed, updates.count))
    elif section.rule in ("krum", "multi_krum"):
        merged = _nearest(updates, section)
    elif section.rule == "geometric_median":
        merged = _geometric(updates, section)
    else:
        raise ValueError(f"{section.rule} replaces no update")
    return {name: merged[name] for name in updates.shapes}


def _nearest(updates: Updates, section: MergingSection) -> Tensors:
    """Return Krum's choice, or the mean of Multi-Krum's."""
    names = updates.names("f")
    selected = 1
    if section.rule == "multi_krum":
        # m = n - f, unless the recipe has an m
        selected = section.selected or max(1, updates.count - section.malicious)
    distances = squared_distances(updates, names)
    shares = krum_shares(distances, section.malicious, selected)
    return {**mixed(updates, shares, names), **integer_medians(updates)}


def _geometric(updates: Updates, section: MergingSection) -> Tensors:
    """Return the geometric median of the weights and, apart from it, of running statistics."""
    medians = integer_medians(updates)
    for names in _parts(updates):
        shares = weiszfeld_shares(
            squared_distances(updates, names),
            section.smoothing,
            section.iterations,
            section.tolerance,
        )
        medians |= mixed(updates, shares, names)
    return medians


def _parts(updates: Updates) -> list[Sequence[str]]:
    names = updates.names("f")
    weights = tuple(name for name in names if not is_statistic(name))
    running = tuple(name for name in names if is_statistic(name))
    return [part for part in (weights, running) if part]


def merging_bytes(section: MergingSection, update_bytes: int, devices: int) -> int:
    """Return the memory that a rule takes beside the model, the merge and one decoded reply.

    Replies that wait to be merged are on disk; in a simulation they are in memory.
    """
    if not section.replaces:
        return 0
    batch = min(devices * update_bytes, max(BATCH_BYTES, 4 * devices))
    if section.rule in ("median", "trimmed_mean"):
        return batch + update_bytes
    # The distances in float64; the sums of the mixture in float64, and its float32 result
    return batch + 8 * devices * devices + 3 * update_bytes
