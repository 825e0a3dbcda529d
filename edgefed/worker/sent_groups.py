"""The arrays of a task by role; one that was not sent is a clear error."""

from __future__ import annotations

from edgefed.errors import WireError
from edgefed.learn.types import Tensors


class SentGroups(dict[str, Tensors]):
    """Arrays by role, as a task brought them."""

    def __missing__(self, role: str) -> Tensors:
        """Raise for a role that the algorithm needs.

        Raises:
            WireError: ``wire.missing_group``.
        """
        raise WireError(
            f"The task came without the arrays {role!r} that its algorithm needs.",
            code="wire.missing_group",
            hint="install the same version of EdgeFed on the coordinator and the device",
        )
