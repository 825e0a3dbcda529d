"""Check that a task's sections are complete, so that no device applies its own defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from edgefed.errors import WireError

SectionT = TypeVar("SectionT", bound=BaseModel)


def complete_section(model: type[SectionT], values: Mapping[str, Any], what: str) -> SectionT:
    """Return a section of a task, checked.

    Args:
        model: of the section.
        values: as the task carries them.
        what: name of the section in messages.

    Raises:
        WireError: ``wire.incomplete`` or ``wire.malformed``.
    """
    missing = sorted(model.model_fields.keys() - values.keys())
    if missing:
        raise WireError(
            f"The task does not contain {', '.join(missing)} of {what}.",
            code="wire.incomplete",
            hint="install the same release on coordinator and device",
        )
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise WireError(
            f"{key} of {what}: {first['msg']}.",
            code="wire.malformed",
            hint="install the same release on coordinator and device",
        ) from error
