"""Filter of HTTP requests: the dashboard answers those of its own pages on this machine only.

A page of another site can send requests to a loopback address: under its own origin, or, after its
name was made to resolve to 127.0.0.1 (DNS rebinding), under its own name as the host.
"""

from __future__ import annotations

import re

from edgefed.config.address import Address

_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9.-]+))(?::[0-9]{1,5})?", re.ASCII)


def refusal(host: str, origin: str | None) -> str:
    """Return why a request is refused, or an empty text.

    Args:
        host: the server's name in the browser, from the header ``Host``. Its port is ignored,
            because an SSH tunnel may have another one.
        origin: the page that sends the request, from the header ``Origin``; None without one, as
            for an address that the user typed.
    """
    if not _is_loopback(host):
        return "The dashboard is served to browsers of this machine only."
    if origin is not None and origin != f"http://{host}":
        return "The dashboard takes no requests of other pages."
    return ""


def security_headers(host: str) -> dict[str, str]:
    """Return the headers of every response to a request to ``host``.

    They keep the page from loading anything from other machines, such as the web fonts that
    textual-serve names, and other pages from showing it in a frame.
    """
    policy = {
        "default-src": "'self'",
        "script-src": "'self' 'unsafe-inline'",
        "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' data:",
        "connect-src": f"'self' ws://{host}",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }


def _is_loopback(host: str) -> bool:
    found = _HOST.fullmatch(host.lower())
    return found is not None and Address(found[1] or found[2]).is_loopback
