"""The base classes of a recipe's tables, and kinds of values."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

CodecName = Literal["fp32", "bf16", "int8", "topk"]

USER_FUNCTION = r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*"

LOSS_PATTERN = rf"^(cross_entropy|squared_error|{USER_FUNCTION})$"
"""A loss of ours, or ``package.module:function``."""

FUNCTION_PATTERN = rf"^{USER_FUNCTION}$"

LossName = Annotated[str, Field(max_length=256, pattern=LOSS_PATTERN)]

UserFunction = Annotated[str, Field(max_length=256, pattern=FUNCTION_PATTERN)]

FiniteNumber = Annotated[float, Field(allow_inf_nan=False)]

PositiveNumber = Annotated[float, Field(gt=0, allow_inf_nan=False)]

WeightPattern = Annotated[str, Field(min_length=1, max_length=256)]

WeightPatterns = Annotated[tuple[WeightPattern, ...], Field(max_length=64)]

_TRAIN = re.compile(r"all|head|last:[1-9][0-9]{0,3}")


def _known_part(value: Any) -> Any:
    """Refuse a value that names no part of a model, in one sentence for both kinds of value."""
    known = isinstance(value, str) and _TRAIN.fullmatch(value)
    names = isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)
    if not known and not names:
        raise ValueError("must be all, head, last:N from 1, or a list of names of weights")
    # Behind this function, a strict tuple is not made of an array any more.
    return tuple(value) if isinstance(value, list) else value


TrainChoice = Annotated[str | WeightPatterns, BeforeValidator(_known_part)]
"""Which part of a model is trained."""


class Section(BaseModel):
    """A table of a recipe; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class OpenSection(BaseModel):
    """A table whose further keys belong to the object that ``name`` selects, which checks them."""

    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)

    def settings(self) -> dict[str, Any]:
        """Return the further keys."""
        return dict(self.__pydantic_extra__ or {})
