"""The form of a request's action: arguments, handler, and whether it changes something."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict


class Arguments(BaseModel):
    """The arguments of an action."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Nothing(Arguments):
    """The arguments of an action that takes none."""


@dataclass(frozen=True)
class RequestAction:
    """An action that a request may name.

    Attributes:
        arguments: checks them.
        act: returns the answer's body.
        order: whether it changes something, and so must return a challenge.
        costly: whether the coordinator reads files that it names, or asks devices; like an order,
            it is not for viewers.
        by_user: whether ``act`` also takes the requesting user.
    """

    arguments: type[Arguments]
    act: Callable[..., Any]
    order: bool = False
    costly: bool = False
    by_user: bool = False
