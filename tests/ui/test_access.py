"""The rules of who may ask, without a server."""

from __future__ import annotations

import pytest

from sweep.ui.access import MAX_BODY_BYTES, Access, Asked, find_refusal, find_refusal_of_place, strip_port

ACCESS = Access(token="token", cookie="secret")


@pytest.mark.parametrize(
    ("host", "name"), [("127.0.0.1:80", "127.0.0.1"), ("LOCALHOST", "localhost"), ("[::1]:8", "[::1]"), ("a:b", "a:b")]
)
def test_a_port_is_no_part_of_a_name(host: str, name: str) -> None:
    assert strip_port(host) == name


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (Asked(method="GET", host="localhost:9"), None),
        (Asked(method="GET", host="evil.example"), 403),
        (Asked(method="GET", host="127.0.0.1.evil.example:80"), 403),
        (Asked(method="GET", host=""), 403),
        (Asked(method="DELETE", host="localhost"), 405),
        (Asked(method="POST", host="localhost", size_bytes=MAX_BODY_BYTES + 1), 413),
    ],
)
def test_some_requests_are_refused_whoever_sends_them(asked: Asked, status: int | None) -> None:
    refusal = find_refusal_of_place(asked)
    assert (refusal and refusal.status) == status


def _post(**changed: str) -> Asked:
    given = {"origin": "http://localhost:9", "cookie": "secret", "content_type": "application/json", **changed}
    return Asked(method="POST", host="localhost:9", **given)


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (Asked(method="GET", host="localhost", cookie="secret"), None),
        (Asked(method="GET", host="localhost"), 403),
        (Asked(method="GET", host="localhost", cookie="secre"), 403),
        (Asked(method="GET", host="localhost", cookie="\udce9"), 403),
        (_post(), None),
        (_post(site="same-origin"), None),
        (_post(site="cross-site"), 403),
        (_post(origin=""), 403),
        (_post(origin="null"), 403),
        (_post(origin="http://evil.example"), 403),
        (_post(origin="http://localhost:10"), 403),
        (_post(origin="https://localhost:9"), 403),
        (_post(content_type="text/plain"), 415),
    ],
)
def test_who_acts_comes_from_the_page_itself(asked: Asked, status: int | None) -> None:
    refusal = find_refusal(asked, ACCESS)
    assert (refusal and refusal.status) == status


def test_secrets_are_made_anew() -> None:
    made = {secret for access in (Access(), Access()) for secret in (access.token, access.cookie)}
    assert len(made) == 4
    assert min(map(len, made)) > 40
