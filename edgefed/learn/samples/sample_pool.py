"""Samples of many clients in one tensor for each field, so that one index reaches all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import torch

from edgefed.errors import DataError
from edgefed.learn.base.transfers import upload
from edgefed.learn.base.types import Samples
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_memory import default_memory
from edgefed.learn.samples.sample_cache import CachedSamples, SampleCache, check_samples


@dataclass
class PoolTable:
    """Samples of one kind, one client after another.

    Attributes:
        inputs, targets: tensors (capacity, …) on the device.
        used: rows that belong to a client, or did.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    used: int = 0


@dataclass(frozen=True)
class PooledSamples:
    """A client's samples in a table.

    Attributes:
        data: the samples, which share the table's memory.
        table: all samples; None for images that are read batch by batch.
        start: row of the first sample.
    """

    data: CachedSamples
    table: PoolTable | None = None
    start: int = 0


class SamplePool:
    """Keeps each client's samples while a reference to them exists, uploaded once.

    Args:
        model: takes the samples.
        device: where they are kept.
        rows: samples that are expected in all, for which a table has room from the beginning.
    """

    def __init__(self, model: Model, device: torch.device, rows: int = 0) -> None:
        self._model = model
        self._device = device
        self._rows = rows
        self._cache = SampleCache(model, device)
        self._tables: dict[object, PoolTable] = {}
        self._places: WeakKeyDictionary[Samples, PooledSamples] = WeakKeyDictionary()

    def get(self, all_samples: Sequence[Samples]) -> list[PooledSamples | DataError]:
        """Return each client's samples, or why the model cannot be trained on them.

        Those that are new are uploaded together, with one transfer for each field.
        """
        errors: dict[int, DataError] = {}
        new: dict[object, dict[Samples, tuple[torch.Tensor, torch.Tensor]]] = {}
        for samples in all_samples:
            if samples in self._places or id(samples) in errors:
                continue
            try:
                check_samples(samples, self._model)
            except DataError as error:
                errors[id(samples)] = error
                continue
            inputs, targets = pair = self._cache.on_host(samples)
            # Images that are read batch by batch have no rows in a table
            if len(inputs) < len(targets):
                self._places[samples] = PooledSamples(self._cache.get(samples))
            else:
                key: object = (inputs.dtype, targets.dtype, targets.dim())
                new.setdefault(key, {})[samples] = pair
        for key, group in new.items():
            self._add(key, group)
        return [errors.get(id(samples)) or self._places[samples] for samples in all_samples]

    def _add(self, key: object, group: dict[Samples, tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Upload samples of one kind to the end of their table."""
        count = sum(len(targets) for _, targets in group.values())
        first = next(iter(group.values()))
        row_bytes = sum(part[:1].nbytes for part in first)
        table = self._tables.get(key)
        if table is None or table.used + count > len(table.targets):
            live = [] if table is None else self._live(table)
            kept = sum(len(place.data.targets) for _, place in live)
            # Twice as many as are kept, so that live samples are seldom copied
            rows = max(self._rows, kept + count, 2 * kept)
            # Too large for the device: each client's samples have tensors of their own
            if rows * row_bytes > default_memory(self._device):
                for samples in group:
                    self._places[samples] = PooledSamples(self._cache.get(samples))
                return
            table = self._tables[key] = self._rebuilt(rows, first, live)
        fields = zip((table.inputs, table.targets), zip(*group.values(), strict=True), strict=True)
        for field, parts in fields:
            together = upload(torch.cat(parts), self._device, "samples")
            field[table.used : table.used + count] = together
        for samples in group:
            self._place(samples, table, len(samples))

    def _live(self, table: PoolTable) -> list[tuple[Samples, PooledSamples]]:
        """Return the samples in a table that still exist."""
        return [(key, place) for key, place in self._places.items() if place.table is table]

    def _rebuilt(
        self,
        rows: int,
        like: tuple[torch.Tensor, torch.Tensor],
        live: Sequence[tuple[Samples, PooledSamples]],
    ) -> PoolTable:
        """Return a table of so many rows with the live samples, copied on the device."""
        inputs, targets = (
            torch.empty(rows, *part.shape[1:], dtype=part.dtype, device=self._device)
            for part in like
        )
        table = PoolTable(inputs, targets)
        for samples, place in live:
            here = slice(table.used, table.used + len(samples))
            table.inputs[here], table.targets[here] = place.data.inputs, place.data.targets
            self._place(samples, table, len(samples))
        return table

    def _place(self, samples: Samples, table: PoolTable, count: int) -> None:
        """Note that a client's samples are the next rows of a table."""
        start, stop = table.used, table.used + count
        table.used = stop
        inputs, targets = table.inputs[start:stop], table.targets[start:stop]
        old = self._places.get(samples)
        if old is None:
            data = self._cache.cached(samples, inputs, targets)
        else:
            data = replace(old.data, inputs=inputs, targets=targets)
        self._places[samples] = PooledSamples(data, table, start)
