"""The web server of the live page, on this machine only; the only module that serves with aiohttp."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

from aiohttp import http_exceptions, web

from sweep import interruption
from sweep.documents.mistakes import describe_error
from sweep.errors import InputError, StoreError, SweepError, UnknownNameError
from sweep.runner import resuming
from sweep.store.features import store_of
from sweep.store.folder import ResultsFolder, free_name, name_uniquely
from sweep.text import printable
from sweep.ui import access, acts, drafts, prefilling, shells, trial_facts
from sweep.ui.access import Access, Asked, Frames, Refusal
from sweep.ui.acts import Commands
from sweep.ui.duplicates import duplicate_file
from sweep.ui.jobs import Job, Jobs, Subject
from sweep.ui.known_trainables import KnownTrainables
from sweep.ui.places import find_folder
from sweep.ui.previews import preview_act
from sweep.ui.watching import Reading, ShelfWatch, Watch, Watches, encode_line, make_comparison

KEEP_ALIVE_S = 15.0
# after the run has ended and the last page is closed, the server of `run --ui` ends
LINGER_S = 60.0
SETTLED_S = 2.0  # pause between two looks whether the server should end
MOST_COMPARED = 20  # maximum number of sweeps that are compared

# one half of a surrogate pair, which JSON can have alone
_HALF_A_CHARACTER = re.compile("[\ud800-\udfff]")

PAGES = ("/-/new", "/-/compare")  # pages for people below `/-/`
READING_POSTS = ("/-/new/check", "/-/new/complete")  # requests that change nothing

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class Page:
    """The state that all handlers of the server share."""

    results: Path
    access: Access
    commands: Commands
    expected: str = ""  # a sweep that may not have begun yet
    folder: Path = field(default_factory=Path.cwd)  # where command lines run and drafts are saved
    reading: Reading = field(default_factory=Reading)
    trainables: KnownTrainables = field(default_factory=KnownTrainables)
    watches: Watches = field(init=False)
    shelf: ShelfWatch = field(init=False)
    jobs: Jobs = field(init=False)
    checking: asyncio.Lock = field(default_factory=asyncio.Lock)  # held while a draft is checked
    ends: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)  # tasks that no request waits for
    # open pages that show what does not change by itself: a draft or a comparison
    quiet_pages: int = 0

    def __post_init__(self) -> None:
        self.watches = Watches(self.reading)
        self.shelf = ShelfWatch(self.results, self.reading)
        self.jobs = Jobs(self.folder)

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Start ``work`` as a task that no request waits for; its exceptions are only logged."""
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    @property
    def place(self) -> str:
        """The results folder, or its URL in an object store."""
        store = store_of(self.results)
        return str(self.results) if store is None else store.url

    @property
    def offered(self) -> Mapping[str, acts.Act]:
        """The acts that the page offers, by name; none with ``--read-only``."""
        return {} if self.access.read_only else acts.list_offered_acts(self.commands)

    @property
    def browsers(self) -> int:
        """Number of open pages, counted by their event streams.

        A request for a report or for the list of sweeps also counts while it waits.
        """
        return self.watches.browsers + self.shelf.browsers + self.quiet_pages


PAGE = web.AppKey("page", Page)


def make_app(page: Page) -> web.Application:
    """Return the web application that serves the results folder of ``page``; `serve` runs it."""
    app = web.Application(middlewares=[_guard], client_max_size=access.MAX_BODY_BYTES)
    app[PAGE] = page
    app.add_routes(
        [
            web.get("/", _show_list),
            web.get("/-/shelf.json", _send_list),
            web.get("/-/events", _stream_list),
            web.get("/-/quiet", _stream_nothing),
            web.get("/-/files/{file}", _send_file),
            web.get("/-/compare", _show_comparison),
            web.get("/-/compare.json", _send_comparison),
            web.get("/-/new", _show_draft),
            web.post("/-/new/check", _check_draft),
            web.post("/-/new/complete", _complete_draft),
            web.post("/-/new/plan", _plan_draft),
            web.post("/-/new/run", _run_draft),
            web.post("/-/new/save", _save_draft),
            web.get("/-/new/files.json", _send_draft_files),
            web.get("/-/jobs.json", _send_jobs),
            web.get("/-/jobs/{job:[0-9]{1,9}}", _send_job),
            web.post("/-/jobs/{job:[0-9]{1,9}}/dismiss", _dismiss_job),
            web.get("/{name}", _show_sweep),
            web.get("/{name}/-/status.json", _send_status),
            web.get("/{name}/-/report.json", _send_report),
            web.get("/{name}/-/report.html", _save_report),
            web.get("/{name}/-/output.json", _send_output),
            web.get("/{name}/-/acts.json", _send_acts),
            web.get("/{name}/-/lines.json", _send_form_lines),
            web.get("/{name}/-/events", _stream_sweep),
            web.post("/{name}/-/acts/{act}", _run_act),
            web.get("/{name}/{trial:[0-9]{1,9}}", _show_trial),
            web.get("/{name}/{trial:[0-9]{1,9}}.json", _send_trial),
        ]
    )
    app.on_shutdown.append(_end_streams)
    return app


async def _end_streams(app: web.Application) -> None:
    """End the open event streams and the threads when the server shuts down."""
    app[PAGE].ends.set()
    app[PAGE].reading.close()


# ---- who may ask ----------------------------------------------------------------------------------------------------


@web.middleware
async def _guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse requests that are not allowed, turn errors into answers, and add the security headers.

    Errors of HTTP and `SweepError` get the answer of `_refuse`. All others pass, and aiohttp answers with the status
    500, without these headers.
    """
    try:
        answer = await _answer_request(request, handler)
    except web.HTTPException as error:
        answer = _refuse(request, Refusal(error.status, error.reason))
    except SweepError as error:
        answer = _refuse(request, Refusal(_find_status(error), printable(str(error))), error)
    if not answer.prepared:  # a stream has been sent, with these headers: see `_open_stream`
        for name, value in access.make_headers(request.app[PAGE].access).items():
            answer.headers.setdefault(name, value)
    return answer


async def _answer_request(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Check a request, and call its handler if it is allowed; answer requests with a token or a pass here.

    A request that is not allowed gets the answer of `_refuse`, as do those with ``--read-only`` that change something.
    """
    secrets = request.app[PAGE].access
    asked = _describe_request(request)
    refusal = access.find_refusal_of_method_or_size(asked)
    if refusal is not None:
        return _refuse(request, refusal)
    # Before the host is checked: a pass makes the host of a notebook's proxy known.
    if secrets.frames is not None and _brings_pass(request):
        return _answer_pass(request, request.query["pass"], secrets.frames)
    refusal = access.find_refusal_of_host(asked, secrets)
    if refusal is not None:
        return _refuse(request, refusal)
    # Before the cookie is checked, because a token is what brings it.
    token = request.query.get("token")
    if token is not None and request.method == "GET":
        return _exchange_token(request, token)
    refusal = access.find_refusal(asked, secrets)
    changes_something = request.method == "POST" and request.path not in READING_POSTS
    if refusal is None and secrets.read_only and changes_something:
        refusal = Refusal(403, "this page was started with --read-only")
    if refusal is not None:
        return _refuse(request, refusal)
    return await handler(request)


def _describe_request(request: web.Request) -> Asked:
    """Return the headers and properties of a request that decide whether it is allowed."""
    return Asked(
        method=request.method,
        host=request.headers.get("Host", ""),
        cookie=request.cookies.get(_name_cookie(request), ""),
        origin=request.headers.get("Origin", ""),
        site=request.headers.get("Sec-Fetch-Site", ""),
        content_type=request.content_type,
        size_bytes=request.content_length or 0,
    )


def _name_cookie(request: web.Request) -> str:
    """Return the name of the cookie that lets a browser in.

    It contains the port in the header Host (80 if there is none), because browsers send the cookies of all ports of a
    host.
    """
    port = request.headers.get("Host", "").rpartition(":")[2]
    return f"sweep_ui_{port if port.isdecimal() else 80}"


def _exchange_token(request: web.Request, token: str) -> web.Response:
    """Answer an address that contains a token: set the cookie, and lead on to the address without the token.

    A wrong token is refused with the status 403. The answer is a page that leads on. With a redirect, browsers would
    not send a strict cookie if the page of another program has led here.
    """
    secrets = request.app[PAGE].access
    if not access.is_same(token, secrets.token):
        return _refuse(
            request,
            Refusal(403, "the token is not that of this server; it may have been started again"),
        )
    # as pairs: a parameter may occur several times, as ``sweep`` does in a comparison
    rest = [(name, value) for name, value in request.query.items() if name != "token"]
    forward = _find_root(request) + str(request.rel_url.with_query(rest)).removeprefix("/")
    answer = _make_html_answer(
        shells.draw_message(
            "sweep", "Opening the page ...", root=_find_root(request), forward=forward
        )
    )
    answer.set_cookie(
        _name_cookie(request), secrets.cookie, httponly=True, samesite="Strict", path="/"
    )
    return answer


def _brings_pass(request: web.Request) -> bool:
    """Return whether a request brings a pass from a notebook, whether or not the pass is valid.

    Such a request is a GET of ``/`` or ``/-/here`` that has the parameter ``pass`` in its query.
    """
    return request.method == "GET" and request.path in ("/", "/-/here") and "pass" in request.query


def _answer_pass(request: web.Request, given: str, frames: Frames) -> web.Response:
    """Answer a request that brings the pass ``given``: set the cookie for the frame of a notebook's cell.

    The answer is a page that leads on to the sweep in the query ``sweep``, or to the list of sweeps without one. From
    now on, the pages around the frame, whose origins are in the query, may show this server's pages. A pass that is
    invalid, or that was used in another browser, is refused, and so is a frame inside pages whose origins are not valid
    or that are too many. At ``/-/here``, only confirm to the cell's script, with the status 204, that the pass is valid
    and this server can be reached.
    """
    secrets = request.app[PAGE].access
    if not access.is_pass(given, secrets.token):
        return _refuse(
            request, Refusal(403, "this is the page of another kernel; run the cell again")
        )
    if request.path == "/-/here":
        # The script runs in the notebook's page, whose origin is not known here.
        return web.Response(status=204, headers={"Access-Control-Allow-Origin": "*"})
    forward = f"./{quote(request.query.get('sweep', ''), safe='')}"
    # still without the cookie, which a browser that has it need not get again
    answer = _make_html_answer(
        shells.draw_message(
            "sweep", "Opening the page ...", root=_find_root(request), forward=forward
        )
    )
    if given in frames.used:  # the notebook has created its frame again
        # The cookie shows that this browser has used the pass before.
        if access.is_same(request.cookies.get(_name_cookie(request), ""), secrets.cookie):
            return answer
        return _refuse(
            request,
            Refusal(403, "this cell has opened the page in another browser; run the cell again"),
        )
    origin, ancestors = request.query.get("origin", ""), request.query.getall("ancestor", [])
    wrong = access.find_wrong_origin([origin, *ancestors])
    if wrong is not None or len(ancestors) > access.MOST_ANCESTORS:
        around = "so many pages"
        if wrong is not None:
            around = printable(wrong)[:100] or "a page without an origin"
        what = f"the page cannot be shown in a frame of {around}"
        return _refuse(
            request, Refusal(400, f"{what}; open it in a tab, or with python -m sweep ui")
        )
    frames.admit(given, request.headers.get("Host", ""), origin, ancestors)
    # Without a path, browsers take that of this address as they see it, which a proxy may have made longer.
    kind = (
        "SameSite=Strict"
        if access.is_same_site(origin, ancestors)
        else "SameSite=None; Secure; Partitioned"
    )
    answer.headers["Set-Cookie"] = f"{_name_cookie(request)}={secrets.cookie}; HttpOnly; {kind}"
    return answer


def _find_status(error: SweepError) -> int:
    """Return the HTTP status for an error: 404 for an unknown name, 400 for other wrong input, 500 for the rest."""
    if isinstance(error, UnknownNameError):
        return 404
    return 400 if isinstance(error, InputError) else 500


def _refuse(
    request: web.Request, refusal: Refusal, error: SweepError | None = None
) -> web.Response:
    """Return the answer to a request that is refused: an error document for a script, a page for a person.

    A page is sent for a GET or HEAD of one of `PAGES`, or of an address that has no ``/-/`` and does not end in
    ``.json``. Both have the status of ``refusal``. ``error`` is the error that the document describes; by default, it
    has the reason of ``refusal``.
    """
    is_page = request.path in PAGES or not (request.path.endswith(".json") or "/-/" in request.path)
    if is_page and request.method in ("GET", "HEAD"):
        title = f"{refusal.status} {HTTPStatus(refusal.status).phrase}"
        # 403 is the answer to a request without the cookie
        is_let_in = refusal.status != HTTPStatus.FORBIDDEN
        page = shells.draw_message(
            title, refusal.reason, root=_find_root(request), is_let_in=is_let_in
        )
        return web.Response(text=page, content_type="text/html", status=refusal.status)
    content = describe_error(error or SweepError(refusal.reason))
    return web.Response(
        text=encode_line(content), content_type="application/json", status=refusal.status
    )


def _make_html_answer(text: str) -> web.Response:
    """Return an answer with an HTML page."""
    return web.Response(text=text, content_type="text/html")


def _make_json_answer(content: object) -> web.Response:
    """Return an answer with ``content``, which may be or contain records, as a JSON document (see `encode_line`)."""
    return web.Response(text=encode_line(content), content_type="application/json")


# ---- pages and documents --------------------------------------------------------------------------------------------


def _open_folder(request: web.Request, name: str) -> ResultsFolder:
    """Return the folder of the sweep ``name``; of a sweep in an object store, the copy here, which is not updated.

    Raises `UnknownNameError` if there is none.
    """
    return find_folder(request.app[PAGE].results, name)


def _draw_page(request: web.Request, page: str, title: str, **values: object) -> web.Response:
    """Return an answer with the HTML frame of a page, whose scripts read ``values`` and whether it is read-only.

    ``page`` is one of `shells.PAGES`.
    """
    read_only = "yes" if request.app[PAGE].access.read_only else ""
    root = _find_root(request)
    return _make_html_answer(
        shells.draw_shell(page, title, root=root, read_only=read_only, **values)
    )


def _find_root(request: web.Request) -> str:
    """Return the relative address of ``/`` from the page of a request, such as ``../``, or ``./`` directly below it.

    It also works behind a proxy that adds a path.
    """
    # Relative to `/a/b`, the root is one folder up: the last part of an address is no folder.
    return "../" * (request.rel_url.raw_path.count("/") - 1) or "./"


async def _send_file(request: web.Request) -> web.Response:
    """Send a script or style sheet, which browsers may keep; 404 if there is none with this name."""
    name = request.match_info["file"]
    content = shells.read_file(name)
    if content is None:
        raise web.HTTPNotFound
    answer = web.Response(
        body=content, content_type=shells.KINDS[name.rpartition(".")[2]], charset="utf-8"
    )
    # the file's address changes with the file
    answer.headers["Cache-Control"] = "private, max-age=31536000, immutable"
    return answer


async def _show_list(request: web.Request) -> web.Response:
    """Show the page with the list of sweeps."""
    return _draw_page(request, "shelf", "sweeps", results=request.app[PAGE].place)


async def _send_list(request: web.Request) -> web.Response:
    """Send the list of sweeps as JSON, as it was last read; wait for the first reading, and send [] if that fails."""
    shelf = request.app[PAGE].shelf
    async with shelf.keep_up_to_date():
        while not shelf.version:  # it also grows if reading fails
            await shelf.news.wait(KEEP_ALIVE_S)
    return web.Response(text=shelf.content or "[]", content_type="application/json")


async def _show_sweep(request: web.Request) -> web.Response:
    """Show the page of a sweep; until the expected sweep has begun, a page that loads itself again every second.

    The expected sweep is `Page.expected`. Raises `UnknownNameError` for any other name without a sweep.
    """
    name = request.match_info["name"]
    try:
        folder = _open_folder(request, name)
    except UnknownNameError:
        if name != request.app[PAGE].expected:
            raise
        text = "The sweep has not begun yet ..."
        # This page again, by a relative address, which also works behind a proxy that adds a path. The path is "/" and
        # the sweep's name alone (see the route), so "./" is the folder of this page.
        this_page = f"./{request.rel_url.raw_path.removeprefix('/')}"
        return _make_html_answer(
            shells.draw_message(name, text, root=_find_root(request), forward=this_page, after_s=1)
        )
    state = "running" if folder.runs_here else ""  # all that can be said before the log is read
    return _draw_page(request, "sweep", name, sweep=name, state=state)


async def _send_status(request: web.Request) -> web.Response:
    """Send what ``status --json`` prints for a sweep.

    Raises `UnknownNameError` if there is no such sweep, and `StoreError` if it is damaged.
    """
    from sweep.documents.status import describe_status  # a slow import, for programs alone

    folder = _open_folder(request, request.match_info["name"])

    def read() -> str:
        return encode_line(
            describe_status(resuming.open_stored_sweep(folder.path.parent, folder.name))
        )

    return web.Response(
        text=await request.app[PAGE].reading.run(read), content_type="application/json"
    )


async def _send_report(request: web.Request) -> web.Response:
    """Send the latest report of a sweep as JSON, as `encode_report` makes it, waiting for the first one.

    If there is a report, it is sent even if a newer one could not be made. Raises `UnknownNameError` if there is no
    such sweep, and `StoreError` if there is no report because the sweep cannot be read or the report cannot be made.
    """
    watch = _find_watch(request)
    async with watch.keep_up_to_date():
        while watch.report is None:
            problem = watch.problem or watch.report_problem
            if problem:
                raise StoreError(problem)
            await watch.news.wait(KEEP_ALIVE_S)
        content = watch.report.content
    return web.Response(body=content, content_type="application/json")


async def _save_report(request: web.Request) -> web.Response:
    """Send the report of a sweep, as one HTML page, as a file to download.

    Raises `UnknownNameError` if there is no such sweep, and `StoreError` if it cannot be read.
    """
    from sweep.render.report import page

    folder = _open_folder(request, request.match_info["name"])
    html = await request.app[PAGE].reading.run(page, [folder])
    answer = web.Response(
        body=html.encode("utf-8", "backslashreplace"), content_type="text/html", charset="utf-8"
    )
    # In this form, the name of the file may have any characters.
    answer.headers["Content-Disposition"] = (
        f"attachment; filename*=UTF-8''{quote(folder.name, safe='')}.html"
    )
    return answer


async def _send_output(request: web.Request) -> web.Response:
    """Send the ends of the output files of a sweep as JSON, as `_read_outputs` returns them.

    Raises `UnknownNameError` if there is no such sweep.
    """
    folder = _open_folder(request, request.match_info["name"])
    return _make_json_answer(await request.app[PAGE].reading.run(_read_outputs, folder))


OUTPUT_BYTES = 20_000  # bytes at the end of a file that are sent


def _read_outputs(folder: ResultsFolder) -> list[dict[str, str]]:
    """Return the last 20,000 bytes of each file that the driver, Ray or TensorFlow has printed to, as texts.

    The keys of each are ``file``, its name, and ``text``, without terminal colours. Files that are missing or cannot be
    read are left out.
    """
    found = []
    for name in ("driver.log", folder.debug_log.name):
        path = folder.path / name
        with suppress(OSError), path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(size - OUTPUT_BYTES, 0))
            found.append({"file": name, "text": printable(file.read().decode("utf-8", "replace"))})
    return found


async def _show_trial(request: web.Request) -> web.Response:
    """Show the page of a trial of a sweep; the trial itself is not looked for.

    Raises `UnknownNameError` if there is no such sweep.
    """
    name, trial = request.match_info["name"], request.match_info["trial"]
    _open_folder(request, name)
    return _draw_page(request, "trial", f"{name} · trial {trial}", sweep=name, trial=trial)


async def _send_trial(request: web.Request) -> web.Response:
    """Send the facts about a trial, and about the trial in the query ``beside`` that it is compared with.

    The keys are ``trial``, with the facts about both, and ``data``, the data for the curves. If ``beside`` is not a
    number of at most 9 digits, it is ignored. Only the events that were read so far for open pages are sent. Raises
    `UnknownNameError` if there is no such sweep or one of the trials does not exist, and `StoreError` if the sweep is
    damaged.
    """
    from sweep.render.report.page_data import as_json

    watch = _find_watch(request)
    numbers = [int(request.match_info["trial"])]
    beside = request.query.get("beside", "")
    if beside.isdecimal() and len(beside) < 10:  # as the route allows for the trial itself
        numbers.append(int(beside))
    events = {}
    if watch.sweep is not None:
        events = {number: watch.sweep.list_events(number) for number in numbers}
    chosen = tuple(dict.fromkeys(numbers))
    document, data = await request.app[PAGE].reading.run(
        trial_facts.read_trials, watch.folder, chosen, events
    )
    text = f'{{"trial":{encode_line(document)},"data":{as_json(data)}}}'
    return web.Response(text=text, content_type="application/json")


def _list_compared(request: web.Request) -> list[ResultsFolder]:
    """Return the folders of the sweeps that the queries ``sweep`` of a request name, each once, in their order.

    Raises `InputError` unless they have 2 to 20 different names, and `UnknownNameError` if one of the sweeps does not
    exist.
    """
    names = [*dict.fromkeys(request.query.getall("sweep", []))]
    if not 1 < len(names) <= MOST_COMPARED:
        raise InputError.one("sweep", f"names {len(names)} sweeps, expected 2 to {MOST_COMPARED}")
    return [*name_uniquely(_open_folder(request, name) for name in names).values()]


async def _show_comparison(request: web.Request) -> web.Response:
    """Show the page that compares the sweeps in the queries ``sweep``; raises what `_list_compared` raises."""
    names = [folder.name for folder in _list_compared(request)]
    place = acts.make_results_option(request.app[PAGE].place)
    command = acts.show_command(["compare", *names, *place])
    return _draw_page(request, "compare", " · ".join(names), command=command)


async def _send_comparison(request: web.Request) -> web.Response:
    """Send the report on the sweeps that the queries ``sweep`` name, as JSON with ``line``, ``html`` and ``data``.

    Raises `InputError` unless they name 2 to 20 different sweeps with the same objectives, `UnknownNameError` if there
    is no such sweep, and `StoreError` if a sweep cannot be read.
    """
    content = await request.app[PAGE].reading.run(make_comparison, _list_compared(request))
    return web.Response(body=content, content_type="application/json")


# ---- what changes, as server-sent events ----------------------------------------------------------------------------


def _find_watch(request: web.Request) -> Watch:
    """Return the watch of the sweep in a request's path. Raises `UnknownNameError` if there is no such sweep."""
    return request.app[PAGE].watches.find(_open_folder(request, request.match_info["name"]))


async def _open_stream(request: web.Request) -> web.StreamResponse:
    """Start an answer that is a stream of server-sent events, with the security headers."""
    headers = access.make_headers(request.app[PAGE].access)
    stream = web.StreamResponse(
        headers={**headers, "Content-Type": "text/event-stream; charset=utf-8"}
    )
    await stream.prepare(request)
    return stream


async def _send_event(
    stream: web.StreamResponse, event: str, data: str, number: int | None = None
) -> None:
    """Send the server-sent event ``event`` with the text ``data``, which may have several lines.

    ``number`` is its id, if it has one: a browser that reconnects sends back the last one as ``Last-Event-ID``. Raises
    `ConnectionError` if the browser has left.
    """
    head = "" if number is None else f"id: {number}\n"
    body = "".join(f"data: {line}\n" for line in data.split("\n"))
    await stream.write(f"event: {event}\n{head}{body}\n".encode())


async def _stream_list(request: web.Request) -> web.StreamResponse:
    """Send the list of sweeps and the problem of reading it, once they have been read and whenever they change.

    They are the events ``shelf`` and ``problem``. Returns when the browser leaves or the server ends.
    """
    page = request.app[PAGE]
    shelf = page.shelf
    stream = await _open_stream(request)
    sent_version = 0
    with suppress(ConnectionError):  # raised by a write after the browser has left
        async with shelf.keep_up_to_date():
            while not page.ends.is_set():
                if shelf.version != sent_version:
                    sent_version = shelf.version
                    await _send_event(stream, "shelf", shelf.content)
                    await _send_event(stream, "problem", json.dumps(shelf.problem))
                if not await _wait_for_news(page, shelf.news.wait(KEEP_ALIVE_S)):
                    await stream.write(b": still here\n\n")
    return stream


async def _stream_nothing(request: web.Request) -> web.StreamResponse:
    """Keep a stream without events open as long as a page is, so that the server does not end in the meantime.

    Until then, the page counts as one of `Page.quiet_pages`.
    """
    page = request.app[PAGE]
    stream = await _open_stream(request)
    page.quiet_pages += 1
    try:
        # raised by a write after the browser has left, which is how that is noticed
        with suppress(ConnectionError):
            while not page.ends.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(page.ends.wait(), KEEP_ALIVE_S)
                await stream.write(b": still here\n\n")
    finally:
        page.quiet_pages -= 1
    return stream


async def _wait_for_news(page: Page, news: Awaitable[bool]) -> bool:
    """Wait for a change or the end of the server, whichever comes first.

    ``news`` waits for the change, and gives False if none came in time (see `News.wait`). Returns False then, and True
    at a change or when the server shuts down.
    """
    waiting = asyncio.ensure_future(news)
    ends = asyncio.ensure_future(page.ends.wait())
    await asyncio.wait((waiting, ends), return_when=asyncio.FIRST_COMPLETED)
    ends.cancel()  # it would otherwise wait as long as the server runs
    if not waiting.done():  # the server shuts down
        waiting.cancel()
        return True
    return waiting.result()


async def _stream_sweep(request: web.Request) -> web.StreamResponse:
    """Send new lines of the log, the state, problems of reading and a notice of each new report, as server-sent events.

    Returns when the browser leaves or the server ends. The first line is the one after the number in the header
    ``Last-Event-ID`` or else the query ``after``; without a number there, the next new one. Raises `UnknownNameError`
    if there is no such sweep.
    """
    page, watch = request.app[PAGE], _find_watch(request)
    after = request.headers.get("Last-Event-ID", request.query.get("after", ""))
    last_line = int(after) if after.isdecimal() and len(after) < 16 else None
    stream = await _open_stream(request)
    reader = _StreamReader(watch, stream, last_line)
    with suppress(ConnectionError):  # raised by a write after the browser has left
        async with watch.keep_up_to_date():
            while not page.ends.is_set():
                await reader.send_news(page.reading)
                if not await _wait_for_news(page, watch.news.wait(KEEP_ALIVE_S)):
                    await stream.write(b": still here\n\n")
    return stream


class _StreamReader:
    """What one browser has received of a sweep so far."""

    def __init__(self, watch: Watch, stream: web.StreamResponse, line: int | None) -> None:
        self._watch, self._stream = watch, stream
        # last line of the log that the browser has; None: the last one at the first look
        self._line = line
        # what was sent last
        self._facts_version = 0
        self._report_key: tuple[int, int, bool] | None = None
        self._problem = ""
        # how often the log had been replaced at the last look; None before the first one
        self._replaced: int | None = None

    async def send_news(self, reading: Reading) -> None:
        """Send the browser the problem, log lines and state that are new since the last call, as events.

        Of a new report, only the number of lines of the log that it covers is sent. Before the sweep was read for the
        first time, only a problem is sent. Raises `ConnectionError` if the browser has left.
        """
        watch = self._watch
        problem = watch.problem or watch.report_problem
        if problem != self._problem:
            self._problem = problem
            await _send_event(self._stream, "problem", json.dumps(printable(self._problem)))
        if watch.sweep is None:
            return
        await self._send_log(reading)
        if watch.facts_version != self._facts_version:
            self._facts_version = watch.facts_version
            await _send_event(self._stream, "facts", watch.facts)
        if watch.report is not None and watch.report.key != self._report_key:
            self._report_key = watch.report.key
            await _send_event(self._stream, "report", str(watch.report.line))

    async def _send_log(self, reading: Reading) -> None:
        """Send the new lines of the log; before them an event ``replaced`` if the log was replaced.

        After ``replaced``, the lines that were read already are not sent; nor are they at the first call, if the
        browser has not said which line it has.
        """
        sweep = self._watch.sweep
        if sweep is None:
            return
        lines = sweep.lines
        was_replaced = self._replaced not in (None, sweep.replaced)
        # More lines than there are: of a log that was replaced while the browser was not connected.
        has_other_lines = (self._line or 0) > lines.lines > 0
        self._replaced = sweep.replaced
        if was_replaced or has_other_lines:
            self._line = lines.lines
            await _send_event(self._stream, "replaced", "")
        if self._line is None:
            self._line = lines.lines
        if self._line >= lines.lines:
            return
        parts = lines.read(self._line)
        # each part, about a megabyte, is read in a thread
        while (part := await reading.run(next, parts, None)) is not None:
            self._line, found = part
            text = "\n".join(line.decode("ascii", "replace") for line in found)
            await _send_event(self._stream, "log", text, self._line)


# ---- acts -----------------------------------------------------------------------------------------------------------


async def _send_acts(request: web.Request) -> web.Response:
    """Send all acts that the page offers, whatever the state of the sweep; none with ``--read-only``.

    Raises `UnknownNameError` if there is no such sweep.
    """
    _open_folder(request, request.match_info["name"])
    return _make_json_answer(list(request.app[PAGE].offered.values()))


async def _send_form_lines(request: web.Request) -> web.Response:
    """Send the lines with which the forms of a sweep are filled in; none if its log has not been read yet.

    Raises `UnknownNameError` if there is no such sweep.
    """
    followed = _find_watch(request).sweep
    return _make_json_answer(
        prefilling.NOTHING if followed is None else prefilling.list_form_lines(followed.standing)
    )


async def _read_fields(request: web.Request) -> dict[str, str]:
    """Return the fields of a request by name: its body must be a JSON object whose values are texts.

    Raises `InputError` for any other body, and if a text has half a surrogate pair.
    """
    try:
        content = json.loads(await request.read())
    except (ValueError, RecursionError):  # RecursionError: thousands of brackets
        content = None
    if not isinstance(content, dict) or not all(_is_text(value) for value in content.values()):
        raise InputError.one("request", "is no object of texts")
    return {str(name): value for name, value in content.items()}


def _is_text(value: object) -> bool:
    """Return whether ``value`` is a text that a file or a command line can have: one without half a surrogate pair."""
    return isinstance(value, str) and not _HALF_A_CHARACTER.search(value)


async def _run_act(request: web.Request) -> web.Response:
    """Start the command line of an act and send its job; with ``preview``, only send what `preview_act` returns.

    Raises `UnknownNameError` if there is no such sweep or the act is not offered, and `InputError` for wrong fields,
    which a preview tells instead.
    """
    page = request.app[PAGE]
    folder = _open_folder(request, request.match_info["name"])
    given = {**await _read_fields(request), "sweep": folder.name}
    act = acts.find_act(page.offered, request.match_info["act"])
    if given.get("preview"):
        return _make_json_answer(
            await page.reading.run(preview_act, act, given, page.place, folder)
        )
    arguments = acts.make_arguments(act, given, page.place, folder.submission)
    trial = given["trial"] if act.scope == "trial" else ""
    subject = Subject(title=acts.name_act(act, given), sweep=folder.name, trial=trial)
    return _make_json_answer(page.jobs.start(subject, arguments).describe())


async def _send_jobs(request: web.Request) -> web.Response:
    """Send the command lines that were started for a sweep and its trials, one trial, or the file of a draft.

    The queries ``sweep``, ``trial`` and ``file`` name these. The oldest comes first. Dismissed command lines are left
    out.
    """
    query = request.query
    subject = Subject(
        sweep=query.get("sweep", ""), trial=query.get("trial", ""), file=query.get("file", "")
    )
    return _make_json_answer([job.describe() for job in request.app[PAGE].jobs.list_shown(subject)])


def _find_job(request: web.Request) -> Job:
    """Return the job whose number is in a request's path. Raises `HTTPNotFound` if it is not kept any more."""
    job = request.app[PAGE].jobs.find(int(request.match_info["job"]))
    if job is None:
        raise web.HTTPNotFound
    return job


async def _send_job(request: web.Request) -> web.Response:
    """Send the state and the output of a command line that the page has started; 404 if it is not kept any more."""
    return _make_json_answer(_find_job(request).describe())


async def _dismiss_job(request: web.Request) -> web.Response:
    """Hide a command line from all pages and send its state; it continues if it has not ended.

    The answer is 404 if it is not kept any more.
    """
    job = _find_job(request)
    job.is_dismissed = True
    return _make_json_answer(job.describe())


# ---- a new sweep ----------------------------------------------------------------------------------------------------


async def _show_draft(request: web.Request) -> web.Response:
    """Show the page on which a new sweep file is written.

    Its text is the file in the query ``file`` or else that of the sweep in the query ``from``, under a free name;
    without either, a template, which takes seconds. Also starts to read what completions need. Raises
    `UnknownNameError` if there is no such sweep or file, and `InputError` or `StoreError` if its file cannot be opened.
    """
    page = request.app[PAGE]
    text, file = "", drafts.FILE
    source = request.query.get("from")
    if source is not None:
        folder = _open_folder(request, source)
        name = free_name(page.results, folder.name)
        text, file = await page.reading.run(duplicate_file, folder, name), f"{name}.yaml"
    opened = request.query.get("file")
    if opened is not None:
        text, file = drafts.read_file(page.folder, opened), opened
    page.start_task(page.reading.run(drafts.prepare_proposals))
    # the template names a trainable of the folder, so the search comes first
    if source is None and opened is None:
        await page.reading.run(page.trainables.search_folder, page.folder)
        text = await page.reading.run(drafts.write_template, page.trainables, file)
    else:
        page.start_task(page.reading.run(page.trainables.search_folder, page.folder))
    title = "new sweep" if opened is None else file
    return _draw_page(
        request, "draft", title, text=text, file=file, folder=page.folder, opened=opened or ""
    )


async def _send_draft_files(request: web.Request) -> web.Response:
    """Send the names of the sweep files in the folder of drafts and its ``search_spaces``, those changed last first.

    At most 200 are sent.
    """
    page = request.app[PAGE]
    return _make_json_answer(await page.reading.run(drafts.list_files, page.folder))


async def _save_draft(request: web.Request) -> web.Response:
    """Save a draft and send its ``file`` and whether it was ``saved``.

    If another text would be lost, it is not saved unless the request has ``replace``. Raises `InputError` for a file
    name that is not plain, and `StoreError` if the file cannot be read or written.
    """
    page, given = request.app[PAGE], await _read_fields(request)
    file, text = given.get("file", ""), given.get("text", "")
    replace = bool(given.get("replace"))
    is_saved = replace or not drafts.has_other_text(page.folder, file, text)
    if is_saved:
        drafts.save_draft(page.folder, file, text, replace=replace)
    return _make_json_answer({"file": file, "saved": is_saved})


async def _check_draft(request: web.Request) -> web.Response:
    """Send the mistakes of a draft or, if it has none, the sweep's name and what it would train (`DraftFacts`).

    Drafts are checked one after the other, so that fast typing does not occupy all threads. If the browser gave a check
    up before it began, it is skipped: `HTTPRequestTimeout` is raised, whose answer nobody gets.
    """
    page, given = request.app[PAGE], await _read_fields(request)
    async with page.checking:
        if request.transport is None:  # the browser has closed the connection
            raise web.HTTPRequestTimeout
        found = await page.reading.run(
            drafts.check_draft, given.get("text", ""), given.get("file", "")
        )
    return _make_json_answer(found)


async def _complete_draft(request: web.Request) -> web.Response:
    """Send the completions at the cursor; start to read the trainable's source if it is not known as it is now.

    In the value of ``trainable``, start to search the modules of the folder instead, if that has not been done. If a
    person has asked for completions (``why`` is "wanted"), start this search in any case. The answer waits for neither.
    """
    page, given = request.app[PAGE], await _read_fields(request)
    before, after = given.get("before", ""), given.get("after", "")
    asked = given.get("why") == "wanted"
    found = drafts.complete_draft(before, after, page.trainables, page.results, asked=asked)
    if asked or found.unread == drafts.FOLDER:
        page.start_task(page.reading.run(page.trainables.search_folder, page.folder))
    if found.unread not in ("", drafts.FOLDER):
        page.start_task(page.reading.run(page.trainables.read, found.unread, given.get("file", "")))
    return _make_json_answer(found)


async def _plan_draft(request: web.Request) -> web.Response:
    """Start `plan` for a draft and send its job; the text is passed as standard input because it may not be saved.

    With ``time`` in the request, `plan` trains two epochs of two trials; otherwise it uses the durations of earlier
    sweeps in the results folder.
    """
    page, given = request.app[PAGE], await _read_fields(request)
    more = [*acts.make_results_option(page.place), *(["--time"] if given.get("time") else [])]
    file = given.get("file", "") or drafts.FILE
    subject = Subject(title="Plan", file=file)
    # The command line that is shown reads the file, as a person would type it.
    job = page.jobs.start(
        subject,
        ["plan", "--stdin", *more, "--", file],
        given.get("text", ""),
        ["plan", file, *more],
    )
    return _make_json_answer(job.describe())


async def _run_draft(request: web.Request) -> web.Response:
    """Save a draft, start it as a new detached sweep and send the job; with ``preview``, only send the ``command``.

    Raises `RefusedError` if another text would be lost, unless the request has ``replace``, `InputError` for a file
    name that is not plain, and `StoreError` if the file cannot be read or written. The draft is not checked: `run` does
    so. With ``preview``, nothing is checked or saved.
    """
    page, given = request.app[PAGE], await _read_fields(request)
    more = acts.make_results_option(page.place)
    arguments = ["run", given.get("file", ""), *more, "--detach"]
    if given.get("preview"):
        return _make_json_answer({"command": acts.show_command(arguments)})
    drafts.save_draft(
        page.folder,
        given.get("file", ""),
        given.get("text", ""),
        replace=bool(given.get("replace")),
    )
    return _make_json_answer(
        page.jobs.start(Subject(title="Run", file=given["file"]), arguments).describe()
    )


# ---- the process ----------------------------------------------------------------------------------------------------


def serve(
    page: Page, listening: socket.socket, beside: int | None = None, within: int | None = None
) -> None:
    """Run the server on the socket ``listening`` until Ctrl-C (KeyboardInterrupt), or until another process has ended.

    With ``beside``, the id of a process, it ends when that process has ended and `Page.browsers` has been 0 for a
    minute since. With ``within``, the id of the parent process, it ends within seconds of that process. With both, the
    first of these ends it. Also keeps aiohttp from logging requests that are no valid HTTP.
    """
    logging.getLogger("aiohttp.server").addFilter(is_own_error)
    asyncio.run(_serve(page, listening, beside, within))


def is_own_error(record: logging.LogRecord) -> bool:
    """Return False for a log record of aiohttp that is about a request that is no valid HTTP, and True for all others.

    Such a request is refused, and a terminal need not show it. This is a filter of the logger.
    """
    error = None if record.exc_info is None else record.exc_info[1]
    return not isinstance(error, http_exceptions.HttpProcessingError)


async def _serve(
    page: Page, listening: socket.socket, beside: int | None, within: int | None
) -> None:
    """Run the server until one of the conditions of `serve` ends it, and shut it down."""
    runner = web.AppRunner(make_app(page), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.SockSite(runner, listening).start()
    preparing = asyncio.create_task(page.reading.prepare())
    try:
        # when a page was last open, or the process `beside` last seen alive
        last_needed = time.monotonic()
        while beside is None or time.monotonic() - last_needed < LINGER_S:
            await asyncio.sleep(SETTLED_S)
            # An orphan gets another parent at once; the number of the old one stays taken until somebody waits for it.
            if within is not None and os.getppid() != within:
                break
            if page.browsers or (beside is not None and interruption.is_running(beside)):
                last_needed = time.monotonic()
    finally:
        preparing.cancel()
        await runner.cleanup()
