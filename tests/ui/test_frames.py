"""The server of a notebook: who may show the page in a frame, and that it works below any path."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientResponse, CookieJar
from aiohttp.test_utils import TestClient, TestServer
from living import finished, make_sweep, some_trials

from sweep.ui import server
from sweep.ui.access import Access, Frames, make_pass

Client = TestClient[Any, Any]
HUB = {"Host": "hub.example"}
ORIGIN = "https://hub.example"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    make_sweep(tmp_path / "results", "one", some_trials(time.time()))
    make_sweep(tmp_path / "results", "a:b ü", finished(time.time()))
    return tmp_path


def visit(work: Callable[[Client], Awaitable[None]], frames: Frames | None = None) -> None:
    async def run() -> None:
        access = Access(token="the-token", cookie="the-cookie", frames=frames)
        page = server.Page(Path("results"), access, {})
        await page.reading.prepare()
        async with TestClient(
            TestServer(server.make_app(page)), cookie_jar=CookieJar(unsafe=True)
        ) as client:
            await work(client)

    asyncio.run(run())


async def bring(client: Client, given: str, *ancestors: str, **more: str) -> ClientResponse:
    query = [
        ("pass", given),
        ("origin", more.get("origin", ORIGIN)),
        ("sweep", more.get("sweep", "one")),
    ]
    query += [("ancestor", ancestor) for ancestor in ancestors]
    headers = {"Host": more["host"]} if "host" in more else {}
    return await client.get("/", params=query, headers=headers)


def test_a_pass_opens_the_page_once(project: Path) -> None:
    async def work(client: Client) -> None:
        given = make_pass("the-token")
        for path in ("/one", "/-/shelf.json", "/-/here/more"):
            assert (
                await client.get(path, headers=HUB, params={"pass": given, "origin": ORIGIN})
            ).status == 403
        answer = await bring(client, given, ORIGIN, host="hub.example", sweep="a:b ü")
        assert answer.status == 200
        assert 'content="0;url=./a%3Ab%20%C3%BC"' in await answer.text()
        assert answer.headers["Set-Cookie"] == "sweep_ui_80=the-cookie; HttpOnly; SameSite=Strict"
        assert answer.headers["Content-Security-Policy"].endswith(f"frame-ancestors {ORIGIN}")
        assert "X-Frame-Options" not in answer.headers
        known = {**HUB, "Cookie": "sweep_ui_80=the-cookie"}
        assert (await client.get("/one", headers=known)).status == 200
        client.session.cookie_jar.clear()
        again = await bring(client, given, ORIGIN, host="hub.example")
        assert again.status == 403
        assert "run the cell again" in await again.text()
        assert "Set-Cookie" not in again.headers
        same = await client.get("/", params={"pass": given, "sweep": "one"}, headers=known)
        assert same.status == 200
        assert "Set-Cookie" not in same.headers

    visit(work, Frames())


def test_a_frame_of_another_site_gets_a_cookie_for_it_alone(project: Path) -> None:
    async def work(client: Client) -> None:
        around = ["vscode-webview://1abc", "vscode-file://vscode-app"]
        answer = await bring(
            client, make_pass("the-token"), *around, origin=f"http://127.0.0.1:{client.port}"
        )
        kind = "HttpOnly; SameSite=None; Secure; Partitioned"
        assert answer.headers["Set-Cookie"] == f"sweep_ui_{client.port}=the-cookie; {kind}"
        assert answer.headers["Content-Security-Policy"].endswith(
            f"frame-ancestors {around[1]} {around[0]}"
        )

    visit(work, Frames())


@pytest.mark.parametrize(
    ("given", "query", "status"),
    [
        ("guessed", {}, 403),
        ("", {}, 403),
        (make_pass("another token"), {}, 403),
        (make_pass("the-token"), {"origin": "null"}, 400),
        (make_pass("the-token"), {"origin": ""}, 400),
        (make_pass("the-token"), {"ancestor": "null"}, 400),
        (make_pass("the-token"), {"ancestor": "https://a;b"}, 400),
    ],
    # the same each time
    ids=[
        "guessed",
        "none",
        "of another server",
        "null",
        "no origin",
        "null around",
        "two around",
    ],
)
def test_a_wrong_pass_opens_nothing(
    project: Path, given: str, query: dict[str, str], status: int
) -> None:
    frames = Frames()

    async def work(client: Client) -> None:
        answer = await client.get(
            "/", params={"pass": given, "origin": ORIGIN, **query}, headers=HUB
        )
        assert answer.status == status
        assert "Set-Cookie" not in answer.headers
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert (await client.get("/one", headers=HUB)).status == 403

    visit(work, frames)
    assert frames == Frames()


def test_many_ancestors_are_refused(project: Path) -> None:
    async def work(client: Client) -> None:
        answer = await bring(
            client, make_pass("the-token"), *(f"https://a{number}.example" for number in range(9))
        )
        assert answer.status == 400
        assert "in a frame of so many pages" in await answer.text()

    visit(work, Frames())


def test_a_missing_origin_is_not_said_to_be_many_pages(project: Path) -> None:
    async def work(client: Client) -> None:
        answer = await bring(client, make_pass("the-token"), origin="")
        assert answer.status == 400
        assert "in a frame of a page without an origin" in await answer.text()

    visit(work, Frames())


def test_a_page_of_the_command_line_takes_no_passes(project: Path) -> None:
    async def work(client: Client) -> None:
        assert (
            await bring(client, make_pass("the-token"), ORIGIN, host="hub.example")
        ).status == 403
        answer = await client.get("/", params={"pass": make_pass("the-token"), "origin": ORIGIN})
        assert answer.status == 403
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert (await client.get("/-/here", params={"pass": make_pass("the-token")})).status == 403

    visit(work)


def test_only_a_pass_is_told_that_the_server_is_here(project: Path) -> None:
    frames = Frames()

    async def work(client: Client) -> None:
        given = make_pass("the-token")
        for headers in ({}, HUB):
            answer = await client.get("/-/here", params={"pass": given}, headers=headers)
            assert answer.status == 204
            assert answer.headers["Access-Control-Allow-Origin"] == "*"
        assert (await client.get("/-/here", params={"pass": "guessed"})).status == 403
        assert (await client.get("/-/here")).status == 403
        assert (await client.post("/-/here", params={"pass": given})).status == 403

    visit(work, frames)
    assert frames == Frames()


def test_acts_come_from_the_page_as_its_browser_sees_it(project: Path) -> None:
    async def work(client: Client) -> None:
        await bring(client, make_pass("the-token"), ORIGIN, host="hub.example")
        known = {**HUB, "Cookie": "sweep_ui_80=the-cookie", "Content-Type": "application/json"}
        statuses = []
        for origin in (ORIGIN, "https://evil.example", "http://hub.example", "null", ""):
            answer = await client.post(
                "/-/new/check", data="{}", headers={**known, "Origin": origin}
            )
            statuses.append(answer.status)
        assert statuses == [200, 403, 403, 403, 403]

    visit(work, Frames())


ADDRESS = re.compile(r"""(?:href|src)="([^"]*)"|url=([^"]*)""")


@pytest.mark.parametrize(
    "path", ["/", "/one", "/one/3", "/-/new", "/-/compare?sweep=one&sweep=a:b ü", "/a:b ü"]
)
def test_every_address_of_a_page_is_relative(project: Path, path: str) -> None:
    """So a proxy may have the page below any path."""

    async def work(client: Client) -> None:
        await client.get("/", params={"token": "the-token"})
        answer = await client.get(path)
        assert answer.status == 200
        text = await answer.text()
        found = [one or other for one, other in ADDRESS.findall(text)]
        assert [one for one in found if not one.startswith(("./", "../", "#", "data:"))] == []
        depth = answer.url.raw_path.count("/") - 1
        root = "../" * depth or "./"
        assert f'data-root="{root}"' in text
        assert {one for one in found if one.startswith("../../")} == set()

    visit(work)


def test_no_script_has_an_address_that_begins_at_the_host() -> None:
    for script in Path(server.__file__).parent.joinpath("page").glob("*.js"):
        assert re.findall(r"""["'`]/(?:-|\$\{)[^"'`]*""", script.read_text()) == [], script.name
