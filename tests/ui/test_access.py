"""The rules of who may ask, without a server."""

from __future__ import annotations

import pytest

from sweep.ui.access import (
    MAX_BODY_BYTES,
    Access,
    Asked,
    Frames,
    find_refusal,
    find_refusal_of_host,
    find_refusal_of_method_or_size,
    find_wrong_origin,
    is_pass,
    is_same_site,
    make_headers,
    make_pass,
    strip_port,
)

ACCESS = Access(token="token", cookie="secret")


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("127.0.0.1:80", "127.0.0.1"),
        ("LOCALHOST", "localhost"),
        ("[::1]:8", "[::1]"),
        ("a:b", "a:b"),
    ],
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
    refusal = find_refusal_of_method_or_size(asked) or find_refusal_of_host(asked, ACCESS)
    assert (refusal and refusal.status) == status


def _post(**changed: str) -> Asked:
    given = {
        "origin": "http://localhost:9",
        "cookie": "secret",
        "content_type": "application/json",
        **changed,
    }
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


def test_a_pass_is_made_from_the_token() -> None:
    given = make_pass("token")
    assert given != make_pass("token")
    assert is_pass(given, "token")
    number, signature = given.split(".")
    wrong = [
        "",
        ".",
        number,
        f"{number}.",
        f"x{given}",
        f"{given}0",
        f"{number}.{signature[::-1]}",
        "\udce9.\udce9",
    ]
    assert [one for one in wrong if is_pass(one, "token")] == []
    assert not is_pass(given, "another")


@pytest.mark.parametrize(
    ("origins", "wrong"),
    [
        (
            [
                "http://localhost:8888",
                "https://hub.example",
                "vscode-webview://1abc",
                "vscode-file://vscode-app",
            ],
            None,
        ),
        (["http://[::1]:9"], None),
        (["https://hub.example", "null"], "null"),
        ([""], ""),
        (["https://a;script-src *"], "https://a;script-src *"),
        (["https://a b"], "https://a b"),
        (["https://a,b"], "https://a,b"),
        (["https://a/b"], "https://a/b"),
        (["https://*"], "https://*"),
        (["https:"], "https:"),
        (["https://a\n"], "https://a\n"),
    ],
)
def test_a_policy_names_plain_origins_alone(origins: list[str], wrong: str | None) -> None:
    assert find_wrong_origin(origins) == wrong


@pytest.mark.parametrize(
    ("origin", "ancestors", "same"),
    [
        ("http://localhost:9", [], True),
        ("http://localhost:9", ["http://localhost:8888"], True),
        ("https://hub.example", ["https://hub.example"], True),
        ("http://localhost:9", ["https://localhost:8888"], False),
        ("http://127.0.0.1:9", ["http://localhost:8888"], False),
        ("http://127.0.0.1:9", ["vscode-webview://1abc", "vscode-file://vscode-app"], False),
        ("https://hub.example", ["https://hub.example", "https://school.example"], False),
    ],
)
def test_a_strict_cookie_stays_on_one_site(origin: str, ancestors: list[str], same: bool) -> None:
    assert is_same_site(origin, ancestors) is same


def test_only_those_with_a_pass_show_it_in_a_frame() -> None:
    access = Access(token="token", cookie="secret", frames=Frames())
    assert access.frames is not None
    proxied = Asked(method="GET", host="Hub.example:80", cookie="secret")
    refused = find_refusal_of_host(proxied, access)
    assert refused is not None
    assert refused.status == 403
    assert make_headers(access)["X-Frame-Options"] == "DENY"
    assert make_headers(access)["Content-Security-Policy"].endswith("frame-ancestors 'none'")
    access.frames.admit(
        "a pass",
        "hub.example:80",
        "https://hub.example",
        ["https://hub.example", "https://a.example"],
    )
    assert find_refusal_of_host(proxied, access) is None
    assert "X-Frame-Options" not in make_headers(access)
    policy = make_headers(access)["Content-Security-Policy"]
    assert policy.endswith("frame-ancestors https://a.example https://hub.example")
    assert find_refusal_of_host(Asked(method="GET", host="evil.example"), access) is not None
    assert make_headers(Access())["X-Frame-Options"] == "DENY"


@pytest.mark.parametrize(
    ("host", "origin", "site", "status"),
    [
        ("hub.example", "https://hub.example", "same-origin", None),
        ("hub.example", "https://hub.example", "cross-site", 403),
        ("hub.example", "http://hub.example", "same-origin", 403),
        ("hub.example", "https://evil.example", "", 403),
        ("localhost:9", "http://localhost:9", "same-origin", None),
        ("localhost:9", "http://localhost:8", "same-site", 403),
    ],
)
def test_who_acts_in_a_frame_comes_from_the_page_itself(
    host: str, origin: str, site: str, status: int | None
) -> None:
    frames = Frames(hosts={"hub.example"}, origins={"https://hub.example"})
    access = Access(token="token", cookie="secret", frames=frames)
    asked = Asked(
        method="POST",
        host=host,
        origin=origin,
        site=site,
        cookie="secret",
        content_type="application/json",
    )
    refusal = find_refusal(asked, access)
    assert (refusal and refusal.status) == status
