"""What the tables of a recipe are made of: their base classes, and kinds of values."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

CodecName = Literal["fp32", "bf16", "int8"]

USER_FUNCTION = r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*"

LOSS_PATTERN = rf"^(cross_entropy|squared_error|{USER_FUNCTION})$"
"""A loss of ours, or ``package.module:function``."""

FUNCTION_PATTERN = rf"^{USER_FUNCTION}$"

LossName = Annotated[str, Field(max_length=256, pattern=LOSS_PATTERN)]

UserFunction = Annotated[str, Field(max_length=256, pattern=FUNCTION_PATTERN)]

FiniteNumber = Annotated[float, Field(allow_inf_nan=False)]

PositiveNumber = Annotated[float, Field(gt=0, allow_inf_nan=False)]

WeightPattern = Annotated[str, Field(min_length=1, max_length=256)]

TrainChoice = Annotated[str, Field(pattern=r"^(all|head|last:[1-9][0-9]{0,3})$")]


class Section(BaseModel):
    """A table of a recipe; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class OpenSection(BaseModel):
    """A table whose further keys belong to what its ``name`` names, which checks them."""

    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)

    def settings(self) -> dict[str, Any]:
        """Return the further keys."""
        return dict(self.__pydantic_extra__ or {})
