"""Strategies for input: messages by their models and the topic table, and variants of valid input.

Drawing costs Hypothesis far more than reading most inputs costs EdgeFed. A strategy therefore draws
one valid value and a seed, and returns several inputs: the value, and others that differ from it.
"""

from __future__ import annotations

import json
import random
import struct
import types
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgpack
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from edgefed.version import FIRST_PROTOCOL, PROTOCOL
from edgefed.wire.messages import MESSAGES, Message
from edgefed.wire.topics import PartyTopic, Topics, TopicSpec

T = TypeVar("T")

SIBLINGS = 16
"""Inputs that are made of one drawn value."""

NUMBERS = (0, 1, -1, 7, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63, 2**64, 10**30)
"""Numbers at which something tends to break."""

TEXTS = ("", "a", "ä", "\x00", "\u202e", "x" * 129, "x" * 5000, "../..", "a/b", "+", "#", "NaN")

VALID: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 2, 5, 1000, 2**40, 0.0, 0.5, 1.0, 30.0, "", "fit", "weights"),
    *("delta", "fedavg", "fp32", "mlp", "dev-1", "dev-2", "x", "0" * 8, "f" * 16, "0" * 64, b""),
    *(b"x", bytes(8), bytes(32), bytes(range(30)), bytes(2000), {}, {"a": 1}, {"b": [0.5, None]}),
    "m-00000000",
)
"""Values of which a field takes those that its type allows."""

STRANGE: tuple[Any, ...] = (
    *(number for number in NUMBERS if -(2**63) <= number < 2**64),
    *TEXTS,
    *(None, True, False, 0.5, -0.0, 1e308, float("nan"), float("inf"), -1e-320),
    *(b"", b"x", bytes(range(40)), bytes(3000), "f" * 64),
    *([], {}, [1, "a", None], [0.5] * 3, [["a"]], [2**63, -1], {"": b"x"}, {"a": {"b": [{}]}}),
    *(json.loads("[" * depth + "]" * depth) for depth in (3, 11, 13, 200)),
)
"""Values that a body of msgpack can hold and a field may not expect."""

Pools = Mapping[str, tuple[Any, ...]]
"""Values that a field of a name takes mostly, so that messages refer to one another."""

Lane = tuple[TopicSpec, Collection[str], Pools]
"""A kind of topic, the names that it may have, and the values of its messages."""

Choices = Mapping[str, tuple[Any, ...]]
"""Valid values of each field of a model."""

Seal = Callable[[str, str, bytes, random.Random], tuple[Any, ...]]
"""Signs topic, kind and body, or forges that; returns the envelope's further elements."""

seeds = st.integers(0, 2**32 - 1)


def siblings(
    values: SearchStrategy[T], make: Callable[[T, random.Random], bytes]
) -> SearchStrategy[list[bytes]]:
    """Return a strategy of inputs that are made of one value and random numbers."""

    def several(value: T, seed: int) -> list[bytes]:
        draws = random.Random(seed)
        return [make(value, draws) for _ in range(SIBLINGS)]

    return st.builds(several, values, seeds)


def mostly_broken(values: SearchStrategy[bytes]) -> SearchStrategy[list[bytes]]:
    """Return a strategy of bytes of which most are changed."""
    return siblings(
        values, lambda data, draws: broken(data, draws) if draws.random() < 0.95 else data
    )


def joined(parts: Collection[str], most: int) -> SearchStrategy[str]:
    """Return a strategy of texts that are parts of a grammar in any order."""
    several = st.lists(st.sampled_from(tuple(parts)), max_size=most)
    return several.map("".join)


def broken(data: bytes, draws: random.Random) -> bytes:
    """Return bytes with a few changed, cut out, doubled, or replaced by a number."""
    changed = bytearray(data)
    for _ in range(draws.choice((1, 1, 2, 5, 20))):
        at = draws.randrange(len(changed) + 1)
        how = draws.randrange(4)
        if how == 0 and at < len(changed):
            changed[at] = draws.randrange(256)
        elif how == 1:
            number = draws.choice(NUMBERS) & (2**32 - 1)
            changed[at : at + 4] = struct.pack(draws.choice("<>") + "I", number)
        elif how == 2:
            del changed[at : at + draws.randrange(1, 40)]
        else:
            changed[at:at] = changed[at : at + draws.randrange(1, 40)]
    return bytes(changed)


# -- messages ---------------------------------------------------------------------------------


def choices(model: type[BaseModel], pools: Pools) -> Choices:
    """Return valid values of each field of a model; those of a pool make up nine tenths."""
    hints, found = get_type_hints(model, include_extras=True), {}
    for name in model.model_fields:
        typed, pool = _valid(hints[name], pools) or (None,), pools.get(name, ())
        more = -(-9 * len(typed) // max(1, len(pool)))
        found[name] = pool * more + typed * max(1, len(pool) // (9 * len(typed)))
    return found


def _valid(hint: Any, pools: Pools) -> tuple[Any, ...]:
    """Return values that a field of this type may have."""
    bare = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    origin, arguments = get_origin(bare), get_args(bare)
    if origin is Literal:
        return arguments
    if origin in (Union, types.UnionType):
        return tuple(value for each in arguments for value in _valid(each, pools))
    if origin is tuple:
        values = _valid(arguments[0], pools)
        return (), values[:1], values[-3:]
    if origin is dict and arguments[1] is not Any:
        keys, values = (_valid(each, pools) for each in arguments)
        return {}, *({key: value} for key, value in zip(keys, values * 9, strict=False))
    if isinstance(bare, type) and issubclass(bare, BaseModel):
        fields = choices(bare, pools).items()
        return tuple({name: some[i % len(some)] for name, some in fields} for i in range(4))
    with warnings.catch_warnings():  # of what a field's annotation says about its model
        warnings.simplefilter("ignore")
        adapter = TypeAdapter[Any](hint, config=ConfigDict(strict=True))
    return tuple(value for value in (*pools.get("digest", ()), *VALID) if _allows(adapter, value))


def _allows(adapter: TypeAdapter[Any], value: Any) -> bool:
    try:
        adapter.validate_python(value)
    except ValidationError:
        return False
    return True


@dataclass(frozen=True)
class Draft:
    """Valid fields of a message, and others that they may have."""

    model: type[Message]
    fields: Mapping[str, Any]
    choices: Choices

    def envelope(self, draws: random.Random) -> tuple[Any, str, bytes]:
        """Return version, kind and body of the message or of one that is similar or wrong."""
        fields, how = dict(self.fields), draws.random()
        version: Any = PROTOCOL
        kind = self.model.kind
        names = (*self.choices, "more")
        if how < 0.35:
            for name in draws.choices(names[:-1], k=2):
                fields[name] = draws.choice(self.choices[name])
        elif how < 0.65:
            fields[draws.choice(names)] = draws.choice(STRANGE)
        elif how < 0.7:
            fields.pop(draws.choice(names), None)
        elif how < 0.72:
            version = draws.choice((FIRST_PROTOCOL - 1, FIRST_PROTOCOL, PROTOCOL + 1, "3"))
        elif how < 0.74:
            kind = draws.choice(MESSAGES).kind
        elif how < 0.76:
            return version, kind, msgpack.packb(draws.choice(STRANGE))
        return version, kind, msgpack.packb(fields)

    def payload(self, draws: random.Random) -> bytes:
        """Return the payload of an unsigned message, now and then broken as bytes."""
        packed: bytes = msgpack.packb(self.envelope(draws))
        return broken(packed, draws) if draws.random() < 0.25 else packed


def drafts(model: type[Message], pools: Pools) -> SearchStrategy[Draft]:
    """Return a strategy of valid messages of a class; fields of a pool are always set."""
    known = cache(lambda: choices(model, pools))

    @st.composite
    def draft(draw: st.DrawFn) -> Draft:
        fields = {}
        for name, values in known().items():
            if model.model_fields[name].is_required() or name in pools or draw(st.booleans()):
                fields[name] = values[draw(st.integers(0, len(values) - 1))]
        return Draft(model, fields, known())

    return draft()


def payloads(model: type[Message], pools: Pools) -> SearchStrategy[list[bytes]]:
    """Return a strategy of payloads of a class, of which many are wrong."""
    return siblings(drafts(model, pools), lambda draft, draws: draft.payload(draws))


# -- what a broker delivers -------------------------------------------------------------------


def lane_topic(topics: Topics, spec: TopicSpec, who: str) -> str:
    """Return a topic of a lane; ``who`` is its device, client or token, or empty."""
    if isinstance(spec, PartyTopic):
        return topics.of(spec, who)
    chunk = topics.broadcast_chunk("0" * 64)
    return {"events": topics.events(), "coordinator": topics.coordinator()}.get(spec.leaf, chunk)


def arrivals(
    topics: Topics, lanes: Iterable[Lane], seal: Seal | None = None
) -> SearchStrategy[list[bytes]]:
    """Return a strategy of messages as a broker delivers them.

    Args:
        topics: of the fleet.
        lanes: of which messages come.
        seal: signs the messages; None in a fleet without signatures.
    """
    strategies = []
    for spec, names, pools in lanes:
        places = st.sampled_from([lane_topic(topics, spec, who) for who in names])
        drawn = st.tuples(places, drafts(spec.message, pools))
        strategies.append(siblings(drawn, lambda value, draws: _arrival(*value, seal, draws)))

    @st.composite
    def message(draw: st.DrawFn) -> list[bytes]:  # describes itself in a word, unlike ``one_of``
        return draw(strategies[draw(st.integers(0, len(strategies) - 1))])

    return message()


def _arrival(topic: str, draft: Draft, seal: Seal | None, draws: random.Random) -> bytes:
    if seal is None:
        return join(topic, draft.payload(draws), draws)
    version, kind, body = draft.envelope(draws)
    payload: bytes = msgpack.packb((version, kind, body, *seal(topic, kind, body, draws)))
    return join(topic, broken(payload, draws) if draws.random() < 0.05 else payload, draws)


def join(topic: str, payload: bytes, draws: random.Random) -> bytes:
    """Return a message as one input; now and then it is retained, or its topic is broken."""
    text = topic.encode()
    if draws.random() < 0.02:
        text = broken(text, draws).replace(b"\n", b"")
    retained = b"r" if draws.random() < 0.1 else b"-"
    return retained + text + b"\n" + payload
