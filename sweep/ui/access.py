"""Decides which requests the live page answers, and which may change something. Does not depend on a web framework.

Any page on the web can make a browser send requests to this machine, and can let its own host name resolve to this
machine (DNS rebinding). So a request must have this machine's own name as its host, and a cookie that only the address
with the token sets. A request that changes something must also come from the page itself.

A notebook shows the page in a frame. Its kernel shares the token with the server and creates passes from the token,
each of which is valid for one browser. A request with a pass says at which address the browser sees the page, as behind
Jupyter's proxy, and which pages surround the frame. Only these pages may then show it.
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
MAX_BODY_BYTES = 2_000_000  # a sweep file has at most half as many

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
    """Return a random text that cannot be guessed."""
    return secrets.token_urlsafe(32)


@dataclass(frozen=True, slots=True)
class Access:
    """The secrets of one server: the token in its address, and the value of the cookie that a browser gets for it."""

    read_only: bool = False
    token: str = field(default_factory=_make_secret)
    cookie: str = field(default_factory=_make_secret)
    frames: Frames | None = None


@dataclass(slots=True)
class Frames:
    """The notebooks that may show the page in a frame: the used passes, and the addresses that came with them."""

    used: set[str] = field(default_factory=set)  # used passes
    hosts: set[str] = field(default_factory=set)  # host names in requests that a proxy forwards
    origins: set[str] = field(default_factory=set)  # origins of the page, as browsers see them
    ancestors: set[str] = field(default_factory=set)  # origins of the pages around it

    def admit(self, given: str, host: str, origin: str, ancestors: Sequence[str]) -> None:
        """Mark the pass ``given`` as used, and allow frames of the page in the pages with the origins ``ancestors``.

        ``host`` is the request's header Host, ``origin`` the origin of the page as the browser sees it: requests to
        that host are answered from now on, and those from that origin count as the page's own. Nothing is checked, and
        what was allowed before stays allowed.
        """
        self.used.add(given)
        self.hosts.add(host.lower())
        self.origins.add(origin)
        self.ancestors.update(ancestors)


def make_pass(token: str) -> str:
    """Return a new pass for the server with the token ``token``; one browser may open the page in a frame with it."""
    number = secrets.token_urlsafe(18)
    return f"{number}.{_sign(token, number)}"


def is_pass(given: str, token: str) -> bool:
    """Return whether the pass ``given`` is valid for the server with this token, whether it has been used or not.

    A valid pass is one that `make_pass` has returned for this token; any other text is not.
    """
    number, _, signature = given.partition(".")
    return is_same(signature, _sign(token, number))


def _sign(token: str, number: str) -> str:
    """Return the signature (HMAC-SHA-256, hexadecimal) of the pass with the number ``number``."""
    return hmac.new(token.encode(), number.encode("utf-8", "replace"), "sha256").hexdigest()


def find_wrong_origin(origins: Sequence[str]) -> str | None:
    """Return the first origin that a content security policy cannot name, such as ``null``; None if there is none.

    It can name ``scheme://host`` and ``scheme://host:port``.
    """
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            return origin
    return None


def is_same_site(origin: str, ancestors: Sequence[str]) -> bool:
    """Return whether the page at ``origin`` and the pages around its frame have the same scheme and host.

    Returns True if there are no such pages. Ports may differ. Browsers then send a strict cookie of the page. They
    also send it between hosts of one registered domain, but only browsers have the list of such domains.
    """
    own = urlsplit(origin)
    others = [urlsplit(ancestor) for ancestor in ancestors]
    return all((other.scheme, other.hostname) == (own.scheme, own.hostname) for other in others)


def make_headers(access: Access) -> dict[str, str]:
    """Return all headers of every answer by name: those of `HEADERS` and those that depend on ``access``.

    Only the page's own scripts run, nothing is loaded from other servers, and only admitted notebooks may show a frame.
    """
    ancestors: list[str] = []
    if access.frames is not None:
        ancestors = sorted(access.frames.ancestors)
    if ancestors:  # without X-Frame-Options, which can only forbid frames or allow those of the page's own origin
        return {"Content-Security-Policy": POLICY + " ".join(ancestors), **HEADERS}
    return {"Content-Security-Policy": f"{POLICY}'none'", "X-Frame-Options": "DENY", **HEADERS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The parts of a request that decide whether it is answered; "" for a missing header."""

    method: str
    host: str
    cookie: str = ""
    origin: str = ""
    site: str = ""  # the header Sec-Fetch-Site
    content_type: str = ""
    size_bytes: int = 0  # size of the body, as its header says


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a request is not answered, and its HTTP status code."""

    status: int
    reason: str


def find_refusal_of_method_or_size(asked: Asked) -> Refusal | None:
    """Return a refusal if the method or the size of a request is not allowed; None if both are.

    The method must be GET, HEAD or POST, or the status is 405. The body must have at most 2,000,000 bytes according to
    its header, or the status is 413.
    """
    if asked.method not in ("GET", "HEAD", "POST"):
        return Refusal(405, "expected GET or POST")
    if asked.size_bytes > MAX_BODY_BYTES:
        return Refusal(413, f"more than {MAX_BODY_BYTES:,} bytes")
    return None


def find_refusal_of_host(asked: Asked, access: Access) -> Refusal | None:
    """Return a refusal if a request was sent to a host name that is not this machine's; None otherwise.

    This machine's names are `NAMES`, with any port. Hosts at which a notebook's proxy was admitted are allowed too,
    with the port that was admitted. The status of the refusal is 403.
    """
    if strip_port(asked.host) in NAMES:
        return None
    if access.frames is not None and asked.host.lower() in access.frames.hosts:
        return None
    return Refusal(403, f"this page answers to {', '.join(NAMES)} alone")


def find_refusal(asked: Asked, access: Access) -> Refusal | None:
    """Return a refusal if a request lacks the cookie, or is a POST that comes from another page or is not JSON.

    The status is 415 if it is not JSON, otherwise 403. Returns None if the request may be answered, as far as these
    tell; method, size and host are not checked.
    """
    if not is_same(asked.cookie, access.cookie):
        return Refusal(
            403, "open the address that `sweep ui` has printed: it has the token that lets you in"
        )
    if asked.method != "POST":
        return None
    # Early browsers do not send the header of the site, so it may be missing.
    if not _is_own_origin(asked, access) or asked.site not in ("", "same-origin"):
        return Refusal(403, "this comes from another page")
    # A form of another page cannot send this type.
    if asked.content_type != "application/json":
        return Refusal(415, "expected application/json")
    return None


def _is_own_origin(asked: Asked, access: Access) -> bool:
    """Return whether a request comes from the page itself, also in the frame of an admitted notebook.

    That is told from its header Origin. A request without one does not come from the page.
    """
    if access.frames is not None and asked.origin in access.frames.origins:
        return True
    return strip_port(asked.host) in NAMES and asked.origin == f"http://{asked.host}"


def strip_port(host: str) -> str:
    """Return a host in lower case without its port, if it has one.

    The port is not checked anywhere, because it may be forwarded from another one.
    """
    name, colon, port = host.lower().rpartition(":")
    if colon and port.isdecimal():
        return name
    return host.lower()


def is_same(given: str, secret: str) -> bool:
    """Return whether ``given`` is the secret, compared in a time that does not show how much of it is right."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), secret.encode())
