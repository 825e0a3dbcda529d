"""Colours: the Okabe-Ito palette, which people with any colour vision can tell apart.

The constants are hues; ``contrast`` makes each as light or dark as its background asks for.
"""

from __future__ import annotations

from textual.theme import Theme

SKY = "#56B4E9"
BLUE = "#0072B2"
GREEN = "#009E73"
YELLOW = "#F0E442"
ORANGE = "#E69F00"
VERMILLION = "#D55E00"
PURPLE = "#CC79A7"
MUTED = "#8B98A5"
RULE = "#3A4652"

EDGEFED = Theme(
    name="edgefed",
    primary=SKY,
    secondary=BLUE,
    accent=ORANGE,
    warning=ORANGE,
    error=VERMILLION,
    success=GREEN,
    foreground="#DCE3EA",
    background="#0E1318",
    surface="#131A21",
    panel="#1B242D",
    dark=True,
    variables={
        "border": RULE,
        "border-blurred": RULE,
        "scrollbar": "#33404C",
        "scrollbar-background": "#131A21",
        "scrollbar-corner-color": "#131A21",
    },
)

EDGEFED_LIGHT = Theme(
    name="edgefed-light",
    primary=BLUE,
    secondary=SKY,
    accent=ORANGE,
    warning=ORANGE,
    error=VERMILLION,
    success=GREEN,
    foreground="#14202B",
    background="#FBFCFD",
    surface="#F1F4F7",
    panel="#E3E8ED",
    dark=False,
    variables={
        "border": "#B4BEC8",
        "border-blurred": "#B4BEC8",
        "scrollbar": "#B4BEC8",
        "scrollbar-background": "#F1F4F7",
        "scrollbar-corner-color": "#F1F4F7",
    },
)
