"""Messages of every class at random: valid ones by their fields' types, and damaged ones."""

from __future__ import annotations

import random
import types
import typing
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, Union

import msgpack
from pydantic import BaseModel

from benchmarks.fuzzing.mutations import broken, strange_value
from edgefed.version import PROTOCOL
from edgefed.wire.messages import MESSAGES, Message

Pools = Mapping[str, tuple[Any, ...]]
"""Values that a field of a name takes mostly, so that messages refer to one another."""

NOTHING: Pools = {}


def payload(
    draws: random.Random, kinds: tuple[type[Message], ...], pools: Pools = NOTHING
) -> bytes:
    """Return the payload of a message that may be valid, wrong in a field, or broken as bytes."""
    model = draws.choice(kinds)
    fields = fields_of(model, draws, pools)
    how = draws.random()
    if how < 0.25:
        fields[draws.choice((*fields, "more"))] = strange_value(draws)
    elif how < 0.3 and fields:
        del fields[draws.choice(tuple(fields))]
    kind = draws.choice(MESSAGES).kind if draws.random() < 0.02 else model.kind
    version = draws.choice((PROTOCOL - 1, PROTOCOL + 1, 0, "3")) if how > 0.99 else PROTOCOL
    packed: bytes = msgpack.packb((version, kind, msgpack.packb(fields)))
    return broken(packed, draws) if draws.random() < 0.25 else packed


def fields_of(model: type[BaseModel], draws: random.Random, pools: Pools) -> dict[str, Any]:
    """Return values for a model's fields; fields with a default are left out now and then."""
    chosen = {}
    hints = _hints(model)
    for name, field in model.model_fields.items():
        pool = pools.get(name)
        if not field.is_required() and draws.random() < (0.04 if pool else 0.4):
            continue
        if pool and draws.random() < 0.9:
            chosen[name] = draws.choice(pool)
        else:
            chosen[name] = _value(hints[name], draws, pools)
    return chosen


@lru_cache
def _hints(model: type[BaseModel]) -> dict[str, Any]:
    return typing.get_type_hints(model, include_extras=True)


def _value(hint: Any, draws: random.Random, pools: Pools) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _annotated(arguments[0], arguments[1:], draws, pools)
    if origin is Literal:
        return draws.choice(arguments)
    if origin in (Union, types.UnionType):
        return _value(draws.choice(arguments), draws, pools)
    if origin is tuple:
        return [_value(arguments[0], draws, pools) for _ in range(draws.choice((0, 1, 3)))]
    if origin is dict:
        count = draws.choice((0, 1, 2))
        return {
            _value(arguments[0], draws, pools): _value(arguments[1], draws, pools)
            for _ in range(count)
        }
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return fields_of(hint, draws, pools)
    return _plain(hint, draws)


def _annotated(hint: Any, extra: tuple[Any, ...], draws: random.Random, pools: Pools) -> Any:
    pattern = next((p for each in extra if (p := _pattern(each))), "")
    if "{64}" in pattern:
        digests = pools.get("digest", ())
        return draws.choice(digests) if digests else f"{draws.getrandbits(256):064x}"
    if "0-9a-f" in pattern and "a-z" not in pattern.replace("a-f", ""):
        return f"{draws.getrandbits(64):016x}"
    if "a-z0-9" in pattern:
        return draws.choice(pools.get("device", ("dev-1", "dev-2", "x")))
    if hint is int and draws.random() < 0.8:
        return draws.choice((0, 1, 2, 5, 1000))
    if hint is float:
        return draws.choice((0.0, 0.5, 1.0))
    return _value(hint, draws, pools)


def _pattern(extra: Any) -> str:
    for each in (extra, *getattr(extra, "metadata", ())):
        found = getattr(each, "pattern", None)
        if isinstance(found, str):
            return found
    return ""


def _plain(hint: Any, draws: random.Random) -> Any:
    if hint is bool:
        return draws.random() < 0.5
    if hint is int:
        return draws.choice((0, 1, 2, 77, 2**40))
    if hint is float:
        return draws.choice((0.0, 0.5, 30.0, -1.0))
    if hint is str:
        return draws.choice(("", "fit", "weights", "delta", "fedavg", "fp32", "mlp", "loss"))
    if hint is bytes:
        return draws.randbytes(draws.choice((0, 1, 30, 2000)))
    if hint is type(None):
        return None
    return strange_value(draws, 2)
