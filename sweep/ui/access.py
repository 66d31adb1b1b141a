"""Who may see the page and who may act on it. Knows no web framework.

Any page on the web can let a browser send requests to this machine, and can let its own host name resolve to it (DNS
rebinding). So a request needs this machine's own name as its host and a cookie that only the address with the token
gives, and one that acts must come from the page itself.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

HOST = "127.0.0.1"
NAMES = (HOST, "localhost", "[::1]")
MAX_BODY_BYTES = 2_000_000  # a sweep file has at most half of it

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every answer: only the page's own scripts run, and nothing is loaded from other servers."""


def _make_secret() -> str:
    return secrets.token_urlsafe(32)


@dataclass(frozen=True, slots=True)
class Access:
    """The secrets of one server: the token in its address, and the value of the cookie that it is exchanged for."""

    read_only: bool = False
    token: str = field(default_factory=_make_secret)
    cookie: str = field(default_factory=_make_secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What decides whether a request is answered; "" stands for what it lacks."""

    method: str
    host: str
    cookie: str = ""
    origin: str = ""
    site: str = ""  # the header Sec-Fetch-Site
    content_type: str = ""
    size_bytes: int = 0  # as announced


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not answered, and the status code that says so."""

    status: int
    reason: str


def find_refusal_of_place(asked: Asked) -> Refusal | None:
    """Return why a request cannot be answered whoever sends it; None if it can."""
    if strip_port(asked.host) not in NAMES:
        return Refusal(403, f"this page answers to {', '.join(NAMES)} alone")
    if asked.method not in ("GET", "HEAD", "POST"):
        return Refusal(405, "expected GET or POST")
    if asked.size_bytes > MAX_BODY_BYTES:
        return Refusal(413, f"more than {MAX_BODY_BYTES:,} bytes")
    return None


def find_refusal(asked: Asked, access: Access) -> Refusal | None:
    """Return why a request is not answered for its sender; None if it is."""
    if not is_same(asked.cookie, access.cookie):
        return Refusal(403, "open the address that `sweep ui` has printed: it has the token that lets you in")
    if asked.method != "POST":
        return None
    if asked.origin != f"http://{asked.host}" or asked.site not in ("", "same-origin"):
        return Refusal(403, "this comes from another page")
    if asked.content_type != "application/json":
        return Refusal(415, "expected application/json")
    return None


def strip_port(host: str) -> str:
    """Return a host without its port, which may be forwarded and is therefore not checked."""
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdecimal() else host.lower()


def is_same(given: str, secret: str) -> bool:
    """Return whether a secret was given, in a time that does not depend on how much of it is right."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), secret.encode())
