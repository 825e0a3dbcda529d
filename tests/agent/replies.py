"""Replies for tests of the device store and the resender."""

from __future__ import annotations

from edgefed.wire.messages import BlobRef, Reply
from edgefed.wire.tensors import digest

SESSION = "0123456789abcdef"


def reply(index: int, run: str = "r-1", blob: bytes = b"") -> Reply:
    """A reply to exchange ``index`` of a run; its loss is the index."""
    refs = {"delta": BlobRef(digest=digest(blob), size=len(blob))} if blob else {}
    return Reply(
        run=run,
        exchange=f"{run}-{index}",
        index=index,
        device="device-1",
        session=SESSION,
        bases={},
        status="ok",
        samples=3,
        metrics={"loss": float(index)},
        blobs=refs,
    )
