"""A command line in few lines of a screen, shortened so that its purpose stays readable."""

from __future__ import annotations

import re
from textwrap import wrap

from edgefed.tui.look.text_format import cut_middle

_GLOBAL_OPTIONS = re.compile(r"^edgefed -.*? (?=run start\b)", re.DOTALL)


def shown_command(command: str, width: int, lines: int) -> str:
    """Return ``command`` in at most ``lines`` lines of ``width`` columns.

    Parts that do not fit are replaced by ``…``: first the global options, such as a long path of
    the state folder, then the middle of the rest.
    """
    for text in (command, _GLOBAL_OPTIONS.sub("edgefed … ", command)):
        folded = wrap(text, max(1, width), break_on_hyphens=False)
        if len(folded) <= lines:
            return "\n".join(folded)
    rest = cut_middle(text, width * lines)
    return "\n".join(rest[start : start + width] for start in range(0, len(rest), max(1, width)))
