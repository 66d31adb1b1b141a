"""The server: who gets in, what is refused, what is streamed, and that an act is exactly its command line."""

from __future__ import annotations

import asyncio
import html
import json
import logging
import re
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import ClientResponse, CookieJar
from aiohttp.test_utils import TestClient, TestServer
from living import SCRIPT, driving, end, epoch, finished, make_sweep, some_trials, start, trial
from yarl import URL

from sweep.errors import StoreError
from sweep.events import SessionEnded, Status
from sweep.store import object_store
from sweep.ui import acts, drafts, server, trial_facts, watching
from sweep.ui.access import MAX_BODY_BYTES, Access

ACCESS = Access(token="the-token", cookie="the-cookie")
COMMANDS = {
    act.command: frozenset({group[0] for one in acts.ACTS for group in one.options})
    for act in acts.ACTS
}
Client = TestClient[Any, Any]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(watching, "LOOK_S", 0.05)
    monkeypatch.setattr(watching, "IDLE_LOOK_S", 0.05)
    now = time.time()
    make_sweep(tmp_path / "results", "one", some_trials(now))
    make_sweep(tmp_path / "results", "two", finished(now))
    (tmp_path / "secret").write_text("hidden")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "sweep.json").write_text("{}")
    return tmp_path


def visit(
    work: Callable[[Client], Awaitable[None]], *, let_in: bool = True, read_only: bool = False
) -> None:
    """Run ``work`` with a client of a server for the project in the current folder."""

    async def run() -> None:
        secrets = Access(read_only=read_only, token=ACCESS.token, cookie=ACCESS.cookie)
        page = server.Page(Path("results"), secrets, COMMANDS)
        await page.reading.prepare()
        async with TestClient(
            TestServer(server.make_app(page)), cookie_jar=CookieJar(unsafe=True)
        ) as client:
            if let_in:
                assert (await client.get("/?token=the-token")).status == 200
            await work(client)

    asyncio.run(run())


def origin(client: Client) -> str:
    return f"http://{client.host}:{client.port}"


async def post(client: Client, path: str, content: object, **headers: str) -> ClientResponse:
    return await client.post(path, json=content, headers={"Origin": origin(client), **headers})


async def read(client: Client, path: str) -> Any:
    answer = await client.get(path)
    assert answer.status == 200, await answer.text()
    return await answer.json()


def test_the_token_is_exchanged_for_a_cookie(project: Path) -> None:
    async def work(client: Client) -> None:
        assert (await client.get("/")).status == 403
        answer = await client.get("/one?token=the-token&beside=2")
        assert 'content="0;url=./one?beside=2"' in await answer.text()
        cookie = answer.headers["Set-Cookie"]
        assert cookie == f"sweep_ui_{client.port}=the-cookie; HttpOnly; Path=/; SameSite=Strict"
        page = await client.get("/")
        assert page.status == 200
        assert page.headers["Content-Security-Policy"].startswith(
            "default-src 'none'; script-src 'self'; style-src 'self'"
        )
        assert "unsafe" not in page.headers["Content-Security-Policy"]
        for header, value in (
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Referrer-Policy", "no-referrer"),
            ("Cache-Control", "no-store"),
        ):
            assert page.headers[header] == value

    visit(work, let_in=False)


HOSTILE: dict[str, tuple[str, str, dict[str, str], object, int]] = {
    # name: method, path, headers, content, status
    "another host": ("GET", "/", {"Host": "evil.example"}, None, 403),
    "a host that begins like ours": ("GET", "/one", {"Host": "127.0.0.1.evil.example"}, None, 403),
    "another host and the token": ("GET", "/?token=the-token", {"Host": "evil.example"}, None, 403),
    "no cookie": ("GET", "/one/-/status.json", {"Cookie": ""}, None, 403),
    "another cookie": ("GET", "/", {"Cookie": "sweep_ui_PORT=guessed"}, None, 403),
    "a wrong token": ("GET", "/?token=guessed", {}, None, 403),
    "an act from another page": (
        "POST",
        "/one/-/acts/resume",
        {"Origin": "http://evil.example"},
        {},
        403,
    ),
    "an act without an origin": ("POST", "/one/-/acts/resume", {"Origin": ""}, {}, 403),
    "an act without a cookie": ("POST", "/one/-/acts/resume", {"Cookie": ""}, {}, 403),
    "an act as a form": ("POST", "/one/-/acts/resume", {"Content-Type": "text/plain"}, {}, 415),
    "an act by GET": ("GET", "/one/-/acts/resume", {}, None, 405),
    "an act by PUT": ("PUT", "/one/-/acts/resume", {}, {}, 405),
    "a path that climbs": ("GET", "/../outside", {}, None, 404),
    "an encoded path that climbs": ("GET", "/..%2Foutside", {}, None, 404),
    "a path that climbs to a file": ("GET", "/%2e%2e%2fsecret/-/report.html", {}, None, 404),
    "an absolute path": ("GET", "/%2Fetc%2Fpasswd", {}, None, 404),
    "a backslash": ("GET", "/..%5Coutside", {}, None, 404),
    "a zero byte": ("GET", "/one%00", {}, None, 404),
    "a file that climbs": ("GET", "/-/files/..%2F..%2Fserver.py", {}, None, 404),
    "a file that is none of the page's": ("GET", "/-/files/base.html.jinja", {}, None, 404),
    "a comparison that climbs": (
        "GET",
        "/-/compare.json?sweep=one&sweep=../outside",
        {},
        None,
        404,
    ),
    "a draft from outside": ("GET", "/-/new?from=..%2Foutside", {}, None, 404),
    "a script as a name": ("GET", f"/{quote(SCRIPT, safe='')}", {}, None, 404),
    "an unknown act": ("POST", "/one/-/acts/rm", {}, {}, 404),
    "an act on a sweep outside": ("POST", "/..%2Foutside/-/acts/stop", {}, {}, 404),
    "fields that are no texts": ("POST", "/one/-/acts/resume", {}, {"a": ["b"]}, 400),
    "no object": ("POST", "/one/-/acts/resume", {}, ["a"], 400),
    "half of a character in a note": ("POST", "/one/-/acts/note", {}, {"text": "a\ud800"}, 400),
    "half of a character in a draft": (
        "POST",
        "/-/new/run",
        {},
        {"file": "a.yaml", "text": "a: \ud800"},
        400,
    ),
    "an encoding that does not exist": (
        *(
            "POST",
            "/one/-/acts/resume",
            {"Content-Type": "application/json; charset=none"},
            ["a"],
            400,
        ),
    ),
    "a draft that climbs": ("POST", "/-/new/run", {}, {"file": "../a.yaml", "text": "a"}, 400),
    "a trial that is none": ("GET", "/one/999.json", {}, None, 404),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_requests_are_refused(project: Path, name: str) -> None:
    method, path, headers, content, status = HOSTILE[name]

    async def work(client: Client) -> None:
        given = {key: value.replace("PORT", str(client.port)) for key, value in headers.items()}
        if method == "POST":
            given = {"Origin": origin(client), "Content-Type": "application/json", **given}
        if "Cookie" in given:
            client.session.cookie_jar.clear()
        body = None if content is None else json.dumps(content)
        target = URL(f"{origin(client)}{path}", encoded=True)
        answer = await client.session.request(method, target, headers=given, data=body)
        text = await answer.text()
        assert answer.status == status, text
        assert "<script>" not in text
        assert "hidden" not in text
        assert answer.headers["X-Content-Type-Options"] == "nosniff"

    visit(work)
    assert not list(project.glob("*.yaml"))
    assert (project / "results" / "one" / "log.jsonl").read_text().count("session_started") == 1


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b'{"text": ' * 100_000, b"9" * 5000, b"\xff\xfe{", b""]
)
def test_what_cannot_be_read_as_json_is_refused(project: Path, body: bytes) -> None:
    async def work(client: Client) -> None:
        headers = {"Origin": origin(client), "Content-Type": "application/json"}
        answer = await client.post("/one/-/acts/note", data=body, headers=headers)
        assert (answer.status, (await answer.json())["error"][0]["is"]) == (
            400,
            "is no object of texts",
        )

    visit(work)


def test_a_body_of_100_megabytes_is_refused(project: Path) -> None:
    async def work(client: Client) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
        head = f"POST /-/new/check HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {10**8}\r\n\r\n"
        writer.write(head.encode())
        assert b"413" in await reader.readline()
        writer.close()

        async def body() -> Any:
            for _ in range(5):
                yield b"x" * (MAX_BODY_BYTES // 4)

        headers = {"Origin": origin(client), "Content-Type": "application/json"}
        # in chunks, of no announced size
        answer = await client.post("/-/new/check", data=body(), headers=headers)
        assert answer.status == 413

    visit(work)


def test_read_only_shows_all_and_does_nothing(project: Path) -> None:
    async def work(client: Client) -> None:
        assert await read(client, "/one/-/acts.json") == []
        for path in ("/one/-/acts/resume", "/-/new/run", "/-/new/plan"):
            assert (await post(client, path, {})).status == 403
        assert (await post(client, "/-/new/check", {"text": "", "file": "a.yaml"})).status == 200
        assert (await post(client, "/-/new/complete", {"before": "", "after": ""})).status == 200
        assert 'data-read-only="yes"' in await (await client.get("/one")).text()

    visit(work, read_only=True)


def test_proposals_come_from_the_text_and_change_nothing(project: Path) -> None:
    (project / "typed.py").write_text("def train(hp, report):\n    report(loss=hp.depth)\n")
    before = sorted(path.name for path in project.rglob("*"))

    async def work(client: Client) -> None:
        given = {
            "before": "trainable: typed:train\nparameters:\n  de",
            "after": "\nepochs: 3",
            "file": "new.yaml",
        }
        labels: list[str] = []
        deadline = time.monotonic() + 30
        while "depth" not in labels and time.monotonic() < deadline:  # its source is read meanwhile
            answer = await post(client, "/-/new/complete", given)
            assert answer.status == 200
            found = await answer.json()
            labels = [one["label"] for one in found["proposals"]]
            await asyncio.sleep(0.05)
        assert labels == ["depth"]
        assert (found["before"], found["after"], found["unread"]) == (2, 0, "")
        assert found["proposals"][0] == {
            "label": "depth",
            "insert": "depth: ",
            "about": "Read by the trainable.",
            "default": "",
        }
        assert (await client.post("/-/new/complete", json=given)).status == 403
        assert (await post(client, "/-/new/complete", {"before": ["a"]})).status == 400

    visit(work)
    assert sorted(path.name for path in project.rglob("*")) == before


def test_a_page_that_only_says_something_has_the_styles_and_leads_back(project: Path) -> None:
    async def work(client: Client) -> None:
        answer = await client.get("/nothing")
        text = await answer.text()
        assert answer.status == 404
        assert "<h1>404 Not Found</h1>" in text
        assert '<a href="./">sweeps</a>' in text
        for style in re.findall(r'<link rel="stylesheet" href="([^"]+)">', text):
            assert (await client.get(style)).status == 200
        for path in ("/-/new?from=nothing", "/-/compare?sweep=one&sweep=nothing"):
            answer = await client.get(path)
            assert answer.status == 404
            assert '<a href="../">sweeps</a>' in await answer.text()
        client.session.cookie_jar.clear()
        for path in ("/nothing", "/-/new", "/-/compare?sweep=one&sweep=two"):
            text = await (await client.get(path)).text()
            assert "<h1>403 Forbidden</h1>" in text
            assert "stylesheet" not in text  # which would be refused as well

    visit(work)


def test_command_lines_name_the_place_in_an_object_store(tmp_path: Path) -> None:
    object_store.mark_as_copy(tmp_path / "copy", object_store.ObjectStore("s3://bucket/team"))
    page = server.Page(tmp_path / "copy", ACCESS, COMMANDS)
    assert page.place == "s3://bucket/team"
    assert acts.make_results_option(page.place) == ["--results", "s3://bucket/team"]
    assert server.Page(Path("results"), ACCESS, COMMANDS).place == "results"
    assert acts.make_results_option("results") == []


def test_names_are_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = '"><script>alert(1)<'
    make_sweep(tmp_path / "results", "plain", finished(time.time()))
    (tmp_path / "results" / "plain").rename(tmp_path / "results" / name)

    async def work(client: Client) -> None:
        answer = await client.get(
            f"/{name.replace('%', '%25').replace('<', '%3C').replace('>', '%3E')}"
        )
        text = await answer.text()
        assert answer.status == 200
        assert "<script>" not in text
        assert "&#34;&gt;&lt;script&gt;alert(1)&lt;" in text

    visit(work)


def test_documents_are_those_of_the_commands(project: Path) -> None:
    import jsonschema

    from sweep.documents import schemas

    async def work(client: Client) -> None:
        status = await read(client, "/one/-/status.json")
        jsonschema.validate(status, schemas.find_schema("status"))
        shelf = await read(client, "/-/shelf.json")
        jsonschema.validate(shelf, schemas.find_schema("list"))
        assert [row["name"] for row in shelf] == ["two", "one"]
        answer = await client.get("/nowhere/-/status.json")
        jsonschema.validate(await answer.json(), schemas.find_schema("error"))

    visit(work)


def test_the_report_and_the_file(project: Path) -> None:
    async def work(client: Client) -> None:
        content = await read(client, "/one/-/report.json")
        assert content["line"] == (project / "results" / "one" / "log.jsonl").read_text().count(
            "\n"
        )
        assert content["data"]["trials"]["trial"] == list(range(8))
        assert "The best was learning_rate=" in content["html"]
        answer = await client.get("/one/-/report.html")
        assert answer.headers["Content-Disposition"] == "attachment; filename*=UTF-8''one.html"
        assert "script-src &#39;sha256-" in await answer.text()
        compared = await read(client, "/-/compare.json?sweep=one&sweep=two")
        assert [one["name"] for one in compared["data"]["sweeps"]] == ["one", "two"]

    visit(work)


def test_a_comparison_shows_a_command_line_that_a_shell_reads(project: Path) -> None:
    name = "a b; $(rm x)"
    make_sweep(project / "results", name, finished(time.time()))

    async def work(client: Client) -> None:
        path = f"/-/compare?sweep=one&sweep={quote(name)}"
        # the address may have the token as well
        for address in (path, f"{path}&token=the-token"):
            answer = await client.get(address)
            assert answer.status == 200
        forward = re.search(r'content="0;url=([^"]+)"', await answer.text())
        assert forward
        text = html.unescape(await (await client.get(path)).text())
        assert f"python -m sweep compare one '{name}'</output>" in text
        assert URL(html.unescape(forward[1])).query.getall("sweep") == ["one", name]

    visit(work)


def test_all_curves_of_a_trial_are_there_however_long_it_is(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_facts, "POINTS", 24)

    async def work(client: Client) -> None:
        content = await read(client, "/two/4.json?beside=1")
        curves = [one["name"] for one in content["data"]["curves"]["metrics"]]
        assert curves == ["val_accuracy", "val_loss", "loss"]
        assert content["trial"]["drawn_epochs"] == 8

    visit(work)


def test_a_trial_and_another_beside_it(project: Path) -> None:
    async def work(client: Client) -> None:
        content = await read(client, "/one/3.json?beside=1")
        failed, other = content["trial"]["trials"]
        assert (failed["trial"], failed["status"], failed["params"]["units"]) == (3, "failed", 8)
        assert failed["error"].endswith(SCRIPT)
        assert failed["retrain"] == "python -m sweep retrain one --trial 3"
        assert other["metrics"].keys() == {"val_accuracy", "val_loss", "loss"}
        assert [part["name"] for part in other["times"]] == ["training", "compile", "wait"]
        assert [one["name"] for one in content["data"]["curves"]["metrics"]] == [
            "val_accuracy",
            "val_loss",
            "loss",
        ]
        assert content["trial"]["drawn_epochs"] is None

    visit(work)


# ---- streams --------------------------------------------------------------------------------------------------------


class Stream:
    """Server-sent events, read one by one."""

    def __init__(self, answer: ClientResponse) -> None:
        self._answer = answer

    async def next(self, kind: str) -> tuple[str, str]:
        """The number and the data of the next event of a kind; others are passed over."""
        event, number, data = "", "", []
        while True:
            line = (
                (await asyncio.wait_for(self._answer.content.readline(), 20)).decode().rstrip("\n")
            )
            name, _, value = line.partition(": ")
            if name == "event":
                event, number, data = value, "", []
            elif name == "id":
                number = value
            elif name == "data":
                data.append(value)
            elif not line and event == kind:
                return number, "\n".join(data)


def test_what_is_new_is_streamed_and_a_stream_goes_on_where_it_broke_off(project: Path) -> None:
    async def work(client: Client) -> None:
        from sweep.store.folder import ResultsFolder

        folder = ResultsFolder(project / "results" / "one")
        before = folder.log.read_text().count("\n")
        with driving(folder) as driver:
            first = Stream(await client.get("/one/-/events"))
            second = Stream(await client.get(f"/one/-/events?after={before - 1}"))
            facts = json.loads((await first.next("facts"))[1])
            assert (facts["state"], facts["done"]) == ("running", 8)
            number, lines = await second.next("log")
            assert (number, len(lines.splitlines())) == (str(before), 1)
            now = time.time()
            driver.write(start(8, now), epoch(8, 1, now))
            for stream in (first, second):
                number, lines = await stream.next("log")
                assert number == str(before + 2)
                assert [json.loads(line)["event"] for line in lines.splitlines()] == [
                    "trial_started",
                    "epoch_reported",
                ]
            while json.loads((await first.next("facts"))[1])["counts"].get("running") != 1:
                pass
            driver.write(epoch(8, 2, now), end(8, Status.COMPLETED, now))
            again = Stream(
                await client.get("/one/-/events", headers={"Last-Event-ID": str(before + 1)})
            )
            events: list[dict[str, Any]] = []
            while len(events) < 3:
                events += map(json.loads, (await again.next("log"))[1].splitlines())
            assert [(event["event"], event.get("epoch")) for event in events] == [
                ("epoch_reported", 1),
                ("epoch_reported", 2),
                ("trial_ended", None),
            ]
            assert int((await again.next("report"))[1]) >= before
        while json.loads((await first.next("facts"))[1])["state"] != "killed":
            pass
        with driving(folder) as driver:
            driver.write(SessionEnded(time=now, reason="finished"))
        while json.loads((await first.next("facts"))[1])["reason"] != "finished":
            pass

    visit(work)


def test_a_log_that_was_replaced_is_said(project: Path) -> None:
    async def work(client: Client) -> None:
        from sweep.store.folder import ResultsFolder

        folder = ResultsFolder(project / "results" / "one")
        stream = Stream(await client.get("/one/-/events"))
        await stream.next("facts")
        folder.log.unlink()
        with driving(folder) as driver:
            driver.write(*trial(0, time.time()))
            await stream.next("replaced")

    visit(work)


def test_a_damaged_sweep_is_said(project: Path) -> None:
    async def work(client: Client) -> None:
        with (project / "results" / "one" / "log.jsonl").open("a") as log:
            log.write("nonsense\n{}\n")
        stream = Stream(await client.get("/one/-/events"))
        assert "keep what can be read with" in (await stream.next("problem"))[1]
        answer = await client.get("/one/-/report.json")
        assert answer.status == 500
        assert "damaged record" in (await answer.json())["error"][0]["is"]

    visit(work)


def test_a_problem_that_is_over_is_said_to_be_over(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that was away comes back, and meanwhile nothing has changed."""
    look = watching.FollowedSweep.read_on
    away = False

    def look_if_it_is_there(sweep: watching.FollowedSweep) -> bool:
        if away:
            raise StoreError("the store is away")
        return look(sweep)

    monkeypatch.setattr(watching.FollowedSweep, "read_on", look_if_it_is_there)

    async def work(client: Client) -> None:
        nonlocal away
        stream = Stream(await client.get("/two/-/events"))
        await stream.next("report")
        away = True
        assert (await stream.next("problem"))[1] == '"the store is away"'
        away = False
        assert (await stream.next("problem"))[1] == '""'

    visit(work)


def test_the_shelf_is_streamed(project: Path) -> None:
    async def work(client: Client) -> None:
        stream = Stream(await client.get("/-/events"))
        rows = json.loads((await stream.next("shelf"))[1])
        assert {row["name"] for row in rows} == {"one", "two"}
        make_sweep(project / "results", "three", finished(time.time()))
        assert len(json.loads((await stream.next("shelf"))[1])) == 3

    visit(work)


# ---- acts -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """In place of sweep, a program that writes down what it was given."""
    record = tmp_path / "record.txt"
    program = tmp_path / "program.sh"
    program.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" >> {record}\ncat >> {record}\necho said; exit 4\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    return record


async def finish(client: Client, job: dict[str, Any]) -> dict[str, Any]:
    while job["exit_code"] is None:
        await asyncio.sleep(0.05)
        job = await read(client, f"/-/jobs/{job['job']}")
    return job


def test_an_act_is_exactly_its_command_line(project: Path, recorded: Path) -> None:
    async def work(client: Client) -> None:
        text = "second try; $(touch hacked) `touch hacked` | & > hacked"
        shown = await (
            await post(
                client, "/one/-/acts/note_trial", {"trial": "3", "text": text, "preview": "yes"}
            )
        ).json()
        assert not recorded.exists()
        job = await (
            await post(client, "/one/-/acts/note_trial", {"trial": "3", "text": text})
        ).json()
        assert shown == {"command": job["command"], "wrong": "", "note": ""}
        done = await finish(client, job)
        assert (done["exit_code"], done["output"]) == (4, "said\n")
        wrong = await (
            await post(client, "/one/-/acts/extend", {"run_cap": "many", "preview": "yes"})
        ).json()
        told = "Configurations in all: is 'many', expected a whole number"
        assert wrong == {"command": "", "wrong": told, "note": ""}
        answer = await post(client, "/one/-/acts/extend", {"run_cap": "many"})
        assert (answer.status, (await answer.json())["error"][0]["where"]) == (
            400,
            "Configurations in all",
        )
        assert (await client.get("/-/jobs/99")).status == 404

    visit(work)
    assert recorded.read_text().split("\n") == [
        *("-m", "sweep", "note", "one", "3"),
        *("second try; $(touch hacked) `touch hacked` | & > hacked", ""),
    ]
    assert not (project / "hacked").exists()


def test_a_draft_is_planned_saved_and_run(project: Path, recorded: Path) -> None:
    async def work(client: Client) -> None:
        given = {"file": "new.yaml", "text": "name: new\n"}
        plan = await (await post(client, "/-/new/plan", given)).json()
        assert plan["command"] == "python -m sweep plan new.yaml"
        await finish(client, plan)
        assert recorded.read_text() == "-m\nsweep\nplan\n--stdin\n--\nnew.yaml\nname: new\n"
        recorded.unlink()
        timed = await (await post(client, "/-/new/plan", {**given, "time": "yes"})).json()
        assert timed["command"] == "python -m sweep plan new.yaml --time"
        await finish(client, timed)
        assert recorded.read_text() == "-m\nsweep\nplan\n--stdin\n--time\n--\nnew.yaml\nname: new\n"
        recorded.unlink()
        preview = await (await post(client, "/-/new/run", {**given, "preview": "yes"})).json()
        assert preview == {"command": "python -m sweep run new.yaml --detach"}
        assert not (project / "new.yaml").exists()
        await finish(client, await (await post(client, "/-/new/run", given)).json())
        assert (project / "new.yaml").read_text() == "name: new\n"
        assert recorded.read_text() == "-m\nsweep\nrun\nnew.yaml\n--detach\n"
        answer = await post(client, "/-/new/run", {**given, "text": "name: other\n"})
        assert answer.status == 400
        text = await (await client.get("/-/new?from=two")).text()
        assert "name: two-2" in text
        assert 'value="two-2.yaml"' in text

    visit(work)


def test_a_file_is_opened_and_overwritten_on_purpose(project: Path) -> None:
    (project / "mine.yaml").write_text("name: mine\nparameters:\n")

    async def work(client: Client) -> None:
        assert await read(client, "/-/new/files.json") == ["mine.yaml"]
        text = await (await client.get("/-/new?file=mine.yaml")).text()
        assert "name: mine" in text
        assert 'value="mine.yaml"' in text
        assert (await client.get("/-/new?file=../secret.yaml")).status == 400
        assert (await client.get("/-/new?file=none.yaml")).status == 404
        given = {"file": "mine.yaml", "text": "name: yours\n"}
        assert await (await post(client, "/-/new/save", given)).json() == {
            "file": "mine.yaml",
            "saved": False,
        }
        assert (project / "mine.yaml").read_text() == "name: mine\nparameters:\n"
        answer = await post(client, "/-/new/save", {**given, "replace": "yes"})
        assert await answer.json() == {"file": "mine.yaml", "saved": True}
        assert (project / "mine.yaml").read_text() == "name: yours\n"
        answer = await post(
            client, "/-/new/save", {**given, "file": "../mine.yaml", "replace": "yes"}
        )
        assert answer.status == 400

    visit(work)


def test_forms_get_lines_while_a_page_shows_the_sweep(project: Path) -> None:
    async def work(client: Client) -> None:
        nothing = {"configuration": [], "parameters": [], "keys": []}
        assert await read(client, "/one/-/lines.json") == nothing
        stream = await client.get("/one/-/events")
        await Stream(stream).next("facts")
        lines = await read(client, "/one/-/lines.json")
        assert lines["configuration"][0].startswith("learning_rate=")
        assert "parameters.units.values=[8, 16, 32]" in lines["keys"]
        stream.close()

    visit(work)


@pytest.mark.slow
def test_a_real_command_is_run(project: Path) -> None:
    async def work(client: Client) -> None:
        job = await (await post(client, "/one/-/acts/stop", {})).json()
        done = await finish(client, job)
        assert (done["command"], done["exit_code"]) == ("python -m sweep stop one", 4)
        assert "is not running" in done["output"]

    visit(work)


@pytest.mark.parametrize("path", ["/one/-/events", "/-/events", "/-/quiet"])
def test_an_open_page_is_counted(project: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """Nothing is read while nobody looks, and the server of `run --ui` does not end while somebody does."""
    monkeypatch.setattr(server, "KEEP_ALIVE_S", 0.1)

    async def work(client: Client) -> None:
        await read(client, "/one/-/status.json")
        page = client.app[server.PAGE]
        assert page.browsers == 0
        stream = await client.get(path)
        await stream.content.readline()
        assert page.browsers == 1
        stream.close()
        for _ in range(100):
            await asyncio.sleep(0.1)
            if page.browsers == 0:
                break
        assert page.browsers == 0

    visit(work)


def test_a_check_that_was_given_up_is_left_out(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one text is checked, the browser gives up the next one for a newer one."""
    checked: list[str] = []
    goes_on = threading.Event()

    def check(text: str, file: str) -> drafts.DraftFacts:
        checked.append(text)
        assert goes_on.wait(30)
        return drafts.DraftFacts(mistakes=(), name=text, work="")

    monkeypatch.setattr(drafts, "check_draft", check)

    async def work(client: Client) -> None:
        first = asyncio.ensure_future(post(client, "/-/new/check", {"text": "first", "file": ""}))
        while not checked:
            await asyncio.sleep(0.01)
        second = asyncio.ensure_future(post(client, "/-/new/check", {"text": "second", "file": ""}))
        await asyncio.sleep(0.1)
        second.cancel()
        await asyncio.sleep(0.1)
        third = asyncio.ensure_future(post(client, "/-/new/check", {"text": "third", "file": ""}))
        await asyncio.sleep(0.1)
        assert checked == ["first"]  # one at a time
        goes_on.set()
        assert [(await (await one).json())["name"] for one in (first, third)] == ["first", "third"]

    visit(work)
    assert checked == ["first", "third"]


def test_what_was_done_is_shown_again_until_it_is_dismissed(project: Path, recorded: Path) -> None:
    async def work(client: Client) -> None:
        async def titles(query: str) -> list[str]:
            return [job["title"] for job in await read(client, f"/-/jobs.json?{query}")]

        starred = await (await post(client, "/one/-/acts/star", {"trial": "3"})).json()
        await finish(client, await (await post(client, "/one/-/acts/resume", {})).json())
        await finish(
            client, await (await post(client, "/-/new/plan", {"file": "a.yaml", "text": ""})).json()
        )
        assert (starred["title"], starred["detaches"]) == ("Star trial 3 of one", False)
        assert await titles("sweep=one") == ["Star trial 3 of one", "Resume one"]
        assert await titles("sweep=one&trial=3") == ["Star trial 3 of one"]
        assert (
            await titles("sweep=one&trial=2")
            == await titles("sweep=two")
            == await titles("file=b.yaml")
            == []
        )
        assert await titles("file=a.yaml") == ["Plan"]
        (resumed,) = (await read(client, "/-/jobs.json?sweep=one"))[1:]
        assert (resumed["output"], resumed["exit_code"], resumed["detaches"]) == ("said\n", 4, True)
        assert (await post(client, f"/-/jobs/{resumed['job']}/dismiss", {})).status == 200
        assert await titles("sweep=one") == ["Star trial 3 of one"]
        assert (await post(client, "/-/jobs/99/dismiss", {})).status == 404

    visit(work)


def test_a_request_that_is_no_http_is_refused_and_not_logged(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.getLogger("aiohttp.server")

    async def work(client: Client) -> None:
        for head in ("GET / HTTP/1.1\r\n\r\n", "nothing that HTTP knows\r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
            writer.write(head.encode())
            assert b" 400 " in await reader.readline()
            writer.close()

    visit(work)
    refused = [record for record in caplog.records if record.name == logger.name]
    assert refused
    assert not any(map(server.is_own_error, refused))


def test_an_error_of_the_server_is_logged() -> None:
    error = ValueError("no")
    record = logging.LogRecord(
        "aiohttp.server", logging.ERROR, "", 0, "x", None, (ValueError, error, None)
    )
    assert server.is_own_error(record)
    assert server.is_own_error(
        logging.LogRecord("aiohttp.server", logging.ERROR, "", 0, "x", None, None)
    )
