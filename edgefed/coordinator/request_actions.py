"""What a request may name: its arguments, what answers it, and whether it changes something."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict


class Arguments(BaseModel):
    """What an action takes."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Nothing(Arguments):
    """For an action that takes nothing."""


@dataclass(frozen=True)
class Action:
    """What a request may name.

    Attributes:
        arguments: checks them.
        act: returns the answer's body.
        order: whether it changes something, and so has to return a challenge.
        costly: whether it makes the coordinator read files that it names, or ask devices; like an
            order, it is not for viewers.
        by_user: whether ``act`` also takes the user who asks.
    """

    arguments: type[Arguments]
    act: Callable[..., Any]
    order: bool = False
    costly: bool = False
    by_user: bool = False
