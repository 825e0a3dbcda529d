"""Read the arrays in a device's folder that an order to train names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from edgefed.errors import WireError
from edgefed.wire.messages import Task
from edgefed.wire.tensors import packed_names, unpack
from edgefed.worker.outcomes import PersistentState

if TYPE_CHECKING:
    from edgefed.algorithms.interface.device_side import LedgerEntry
    from edgefed.learn.base.types import Tensors


@dataclass(frozen=True)
class TrainingOrder:
    """A task to train, with the state that its device has stored.

    Attributes:
        task: the question; its blobs are in the device's folder.
        private: digest of the blob with the run's private state; empty without one.
        device_state: digests of the blobs of state across runs, by group.
        ledger: entries of the device's ledger.
    """

    task: Task
    private: str = ""
    device_state: Mapping[str, str] = field(default_factory=dict)
    ledger: tuple[LedgerEntry, ...] = ()

    @property
    def name(self) -> str:
        """The exchange, which names the order to the training process."""
        return self.task.exchange


class StoredArrays:
    """Reads blobs that were checked before; groups of state across runs stay in memory.

    Args:
        folder: of the blobs, each in a file that its digest names.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._unpacked: dict[str, Tensors] = {}

    def read(self, digest: str) -> bytes:
        """Return the bytes of a blob.

        Raises:
            WireError: ``wire.blob``: it is not here.
        """
        try:
            return (self._folder / digest).read_bytes()
        except OSError as error:
            raise WireError(f"Blob {digest[:12]} is not in the cache.", code="wire.blob") from error

    def arrays(self, digest: str) -> Tensors:
        """Return the arrays of a blob.

        Raises:
            WireError: it is not here, or holds no arrays.
        """
        data = self.read(digest)
        return unpack(data, None, max_bytes=len(data))

    def private(self, digest: str) -> Mapping[str, Tensors]:
        """Return groups of private state, each read when it is used; empty for no digest."""
        return _StoredGroups(lambda: self.read(digest)) if digest else {}

    def persistent(self, order: TrainingOrder) -> PersistentState:
        """Return the state across runs that an order names."""
        before, self._unpacked = self._unpacked, {}
        for digest in order.device_state.values():
            self._unpacked[digest] = before[digest] if digest in before else self.arrays(digest)
        groups = {name: self._unpacked[digest] for name, digest in order.device_state.items()}
        return PersistentState(groups, order.ledger)


class _StoredGroups(Mapping[str, "Tensors"]):
    """Groups of arrays in a blob. Each is read anew when it is used, and not kept."""

    def __init__(self, read: Callable[[], bytes]) -> None:
        self._read = read
        self._groups = dict.fromkeys(name.partition("|")[0] for name in packed_names(read()))

    def __getitem__(self, group: str) -> Tensors:
        if group not in self._groups:
            raise KeyError(group)
        data, prefix = self._read(), f"{group}|"
        arrays = unpack(
            data, None, max_bytes=len(data), wanted=lambda name: name.startswith(prefix)
        )
        return {name.removeprefix(prefix): array for name, array in arrays.items()}

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)
