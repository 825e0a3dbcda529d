"""The version of the program and of the protocol it speaks."""

from __future__ import annotations

VERSION = "0.1.0"
PROTOCOL = 4
"""Version of the wire; a message of another version is refused."""
