"""Who may see the page and who may act on it. Knows no web framework.

Any page on the web can let a browser send requests to this machine, and can let its own host name resolve to it (DNS
rebinding). So a request needs this machine's own name as its host and a cookie that only the address with the token
gives, and one that acts must come from the page itself.

A notebook shows the page in a frame. Its kernel shares the token with the server and makes passes from it, each of
which is good for one browser. Whoever brings a pass says under which address the browser sees the page, as behind
Jupyter's proxy, and which pages are around the frame. Only these may then show it.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

HOST = "127.0.0.1"
NAMES = (HOST, "localhost", "[::1]")
MAX_BODY_BYTES = 2_000_000  # a sweep file has at most half of it

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors "
)
HEADERS: Mapping[str, str] = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every answer, besides those of `make_headers`."""
MOST_ANCESTORS = 8  # pages around a frame
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]{0,40}://[A-Za-z0-9._:\[\]-]{1,260}")


def _make_secret() -> str:
    return secrets.token_urlsafe(32)


@dataclass(frozen=True, slots=True)
class Access:
    """The secrets of one server: the token in its address, and the value of the cookie that it is exchanged for."""

    read_only: bool = False
    token: str = field(default_factory=_make_secret)
    cookie: str = field(default_factory=_make_secret)
    frames: Frames | None = None


@dataclass(slots=True)
class Frames:
    """Where the page of a notebook is shown; everything here was said by those who brought a pass."""

    used: set[str] = field(default_factory=set)  # passes
    hosts: set[str] = field(default_factory=set)  # in requests that a proxy hands on
    origins: set[str] = field(default_factory=set)  # of the page, as browsers see it
    ancestors: set[str] = field(default_factory=set)  # origins of the pages around it

    def admit(self, given: str, host: str, origin: str, ancestors: Sequence[str]) -> None:
        """Use up a pass, and remember where its browser shows the page."""
        self.used.add(given)
        self.hosts.add(host.lower())
        self.origins.add(origin)
        self.ancestors.update(ancestors)


def make_pass(token: str) -> str:
    """Return a new pass for a server with this token."""
    number = secrets.token_urlsafe(18)
    return f"{number}.{_sign(token, number)}"


def is_pass(given: str, token: str) -> bool:
    """Return whether a pass was made for a server with this token, used or not."""
    number, _, signature = given.partition(".")
    return is_same(signature, _sign(token, number))


def _sign(token: str, number: str) -> str:
    return hmac.new(token.encode(), number.encode("utf-8", "replace"), "sha256").hexdigest()


def find_wrong_origin(origins: Sequence[str]) -> str | None:
    """Return the first of some origins that a policy cannot name, such as ``null``; None if all are right."""
    return next((origin for origin in origins if not _ORIGIN.fullmatch(origin)), None)


def is_same_site(origin: str, ancestors: Sequence[str]) -> bool:
    """Return whether browsers send a strict cookie of the page in this frame: all have one scheme and host.

    Names that share a registered domain would do as well, but only browsers have the list of these.
    """
    own = urlsplit(origin)
    others = [urlsplit(ancestor) for ancestor in ancestors]
    return all((other.scheme, other.hostname) == (own.scheme, own.hostname) for other in others)


def make_headers(access: Access) -> dict[str, str]:
    """Return the headers of every answer: only the page's own scripts run, and nothing is loaded from other servers.

    Nobody shows it in a frame but the notebooks that have brought a pass.
    """
    ancestors = sorted(access.frames.ancestors) if access.frames is not None else []
    if ancestors:
        return {"Content-Security-Policy": POLICY + " ".join(ancestors), **HEADERS}
    return {"Content-Security-Policy": f"{POLICY}'none'", "X-Frame-Options": "DENY", **HEADERS}


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


def find_refusal_of_method_or_size(asked: Asked) -> Refusal | None:
    """Return why a request is refused for its method or size; None if it is not."""
    if asked.method not in ("GET", "HEAD", "POST"):
        return Refusal(405, "expected GET or POST")
    if asked.size_bytes > MAX_BODY_BYTES:
        return Refusal(413, f"more than {MAX_BODY_BYTES:,} bytes")
    return None


def find_refusal_of_host(asked: Asked, access: Access) -> Refusal | None:
    """Return why a request is refused for the host that it was sent to; None if it is not."""
    if strip_port(asked.host) in NAMES:
        return None
    if access.frames is not None and asked.host.lower() in access.frames.hosts:
        return None
    return Refusal(403, f"this page answers to {', '.join(NAMES)} alone")


def find_refusal(asked: Asked, access: Access) -> Refusal | None:
    """Return why a request is not answered for its sender; None if it is."""
    if not is_same(asked.cookie, access.cookie):
        return Refusal(403, "open the address that `sweep ui` has printed: it has the token that lets you in")
    if asked.method != "POST":
        return None
    if not _is_own_origin(asked, access) or asked.site not in ("", "same-origin"):
        return Refusal(403, "this comes from another page")
    if asked.content_type != "application/json":
        return Refusal(415, "expected application/json")
    return None


def _is_own_origin(asked: Asked, access: Access) -> bool:
    if access.frames is not None and asked.origin in access.frames.origins:
        return True
    return strip_port(asked.host) in NAMES and asked.origin == f"http://{asked.host}"


def strip_port(host: str) -> str:
    """Return a host without its port, which may be forwarded and is therefore not checked."""
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdecimal() else host.lower()


def is_same(given: str, secret: str) -> bool:
    """Return whether a secret was given, in a time that does not depend on how much of it is right."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), secret.encode())
