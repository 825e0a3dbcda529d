"""Shards of very many devices, whose samples are copied from the data set when a shard is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import overload

from edgefed.data.base.types import Indices, Shard, take
from edgefed.files.mapped import copied_rows
from edgefed.files.samples import Samples

MANY_DEVICES = 10_000
"""Fewest devices whose shards are copied when they are read.

Copies of all samples take as much memory as the data set, and few of so many devices train at once.
"""


class DealtShards(Sequence[Shard]):
    """The shards of devices by number; every access copies the samples of one.

    Args:
        train: the training samples of all devices.
        parts: the positions of each device's samples.
        form: everything of a shard but its training samples.
    """

    def __init__(self, train: Samples, parts: Sequence[Indices], form: Shard) -> None:
        self._train = train
        self._no_inputs = train.inputs[:0]
        self._parts = parts
        self._form = form

    def __len__(self) -> int:
        return len(self._parts)

    @overload
    def __getitem__(self, number: int) -> Shard: ...
    @overload
    def __getitem__(self, number: slice) -> list[Shard]: ...
    def __getitem__(self, number: int | slice) -> Shard | list[Shard]:
        """Return the shard of one device, or a list of several."""
        if isinstance(number, slice):
            return [self[place] for place in range(len(self))[number]]
        part = self._parts[number]
        inputs = copied_rows(self._train.inputs, part)
        if inputs is None:
            return replace(self._form, train=take(self._train, part))
        shard = self.outline(number)
        return replace(shard, train=replace(shard.train, inputs=inputs))

    def outline(self, number: int) -> Shard:
        """Return the shard of a device without its inputs; targets and input shape are there."""
        part, train = self._parts[number], self._train
        columns = {name: column[part] for name, column in train.columns.items()}
        outlined = Samples(self._no_inputs, train.targets[part], columns, train.scale)
        return replace(self._form, train=outlined)


def outlines(shards: Sequence[Shard]) -> Iterator[Shard]:
    """Yield all shards; those that are copied when they are read come without their inputs."""
    if isinstance(shards, DealtShards):
        return map(shards.outline, range(len(shards)))
    return iter(shards)
