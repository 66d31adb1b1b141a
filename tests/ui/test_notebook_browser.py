"""The live page in the output of a real kernel's cell, in a real browser.

A small server stands in for Jupyter: it shows outputs in a page below a path, and hands requests on as
jupyter-server-proxy does, with the prefix cut off and all headers as they are.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from browsers import launched, needs_chromium
from living import driving, epoch, finished, make_sweep, some_trials, start, trial

from sweep.ui.access import make_pass

# those of the kernel's client
pytestmark = [
    pytest.mark.slow,
    needs_chromium,
    pytest.mark.filterwarnings("ignore"),
]

BASE = "/user/ada/"


class Jupyter:
    """Shows outputs at ``/user/ada/lab`` and hands on what is below ``/user/ada/proxy/PORT/``, if it has a proxy."""

    def __init__(self) -> None:
        self.outputs: list[str] = []
        self.has_proxy = True
        self.port = 0
        self._loop = asyncio.new_event_loop()

    @contextmanager
    def serving(self) -> Iterator[None]:
        thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        thread.start()
        runner = asyncio.run_coroutine_threadsafe(self._begin(), self._loop).result(30)
        try:
            yield
        finally:
            asyncio.run_coroutine_threadsafe(self._end(runner), self._loop).result(30)
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(30)
            self._loop.close()

    async def _begin(self) -> web.AppRunner:
        app = web.Application()
        app.add_routes(
            [
                web.get(f"{BASE}lab", self._show),
                web.route("*", f"{BASE}proxy/{{port:[0-9]+}}/{{tail:.*}}", self._proxy),
            ]
        )
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        self._client = aiohttp.ClientSession(auto_decompress=False)
        return runner

    async def _end(self, runner: web.AppRunner) -> None:
        await runner.cleanup()
        await self._client.close()
        streams = asyncio.all_tasks() - {asyncio.current_task()}
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)

    async def _show(self, request: web.Request) -> web.Response:
        config = f'<script id="jupyter-config-data" type="application/json">{{"baseUrl": "{BASE}"}}</script>'
        head = f'<title>lab</title><link rel="icon" href="data:,">{config}'
        text = f"<!DOCTYPE html>{head}<body>{''.join(self.outputs)}</body>"
        return web.Response(text=text, content_type="text/html")

    async def _proxy(self, request: web.Request) -> web.StreamResponse:
        if not self.has_proxy:
            raise web.HTTPNotFound
        tail = request.rel_url.raw_path.split("/", 5)[5]
        target = f"http://127.0.0.1:{request.match_info['port']}/{tail}"
        query = f"?{request.query_string}" if request.query_string else ""
        async with self._client.request(
            request.method,
            aiohttp.client.URL(target + query, encoded=True),
            headers={
                **request.headers,
                "X-Forwarded-Context": f"{BASE}proxy/{request.match_info['port']}",
            },
            data=await request.read(),
            allow_redirects=False,
        ) as found:
            answer = web.StreamResponse(status=found.status)
            for name, value in found.headers.items():
                if name not in ("Transfer-Encoding", "Content-Length", "Connection"):
                    answer.headers.add(name, value)
            await answer.prepare(request)
            async for chunk in found.content.iter_any():
                await answer.write(chunk)
            return answer


class Kernel:
    """A kernel that runs cells in a folder."""

    def __init__(self, folder: Path) -> None:
        from jupyter_client.manager import start_new_kernel

        root = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": path}
        environment.pop("PYTEST_CURRENT_TEST", None)
        self.manager, self.client = start_new_kernel(
            cwd=str(folder), env=environment, startup_timeout=120
        )

    def run(self, code: str) -> str:
        """Run a cell; return the HTML of its output."""
        found: list[str] = []

        def take(message: dict[str, Any]) -> None:
            content = message["content"]
            assert message["msg_type"] != "error", content
            found.append(content.get("data", {}).get("text/html", ""))

        self.client.execute_interactive(code, output_hook=take, timeout=300)
        return "".join(found)

    def end(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched("--host-resolver-rules=MAP *.example 127.0.0.1") as found:
        yield found


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("notebook")
    make_sweep(folder / "results", "done", finished(time.time() - 60))
    make_sweep(folder / "results", "lives", some_trials(time.time(), 4))
    return folder


@pytest.fixture(scope="module")
def kernel(project: Path) -> Iterator[Kernel]:
    pytest.importorskip("ipykernel", reason="of the extra test")
    found = Kernel(project)
    found.run("import sweep")
    yield found
    found.end()


@pytest.fixture
def jupyter() -> Iterator[Jupyter]:
    found = Jupyter()
    with found.serving():
        yield found


class Notebook:
    """A browser that shows the notebook, and all that went wrong in it."""

    def __init__(self, browser: Any, jupyter: Jupyter, host: str) -> None:
        self.troubles: list[str] = []
        self.host = host
        self.context = browser.new_context(viewport={"width": 1200, "height": 900})
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        self.page.on("console", self._look_at_message)
        self.page.goto(f"http://{host}:{jupyter.port}{BASE}lab")

    def _look_at_message(self, message: Any) -> None:
        # A header for pages that are no frames is of no use on a host without https, which the browser says.
        if "Cross-Origin-Opener-Policy" not in message.text:
            self.troubles.append(f"console: {message.text}")

    def frame(self, at: int = 0) -> Any:
        """The frame of an output, when its page is there."""
        self.page.wait_for_function(
            "(at) => document.querySelectorAll('iframe').length > at", arg=at
        )
        frame = self.page.query_selector_all("iframe")[at].content_frame()
        frame.wait_for_selector("html[data-ready], body.shelf #sweeps li", state="attached")
        return frame

    def close(self) -> None:
        self.context.close()
        assert self.troubles == []


def test_a_remote_notebook_shows_the_page_through_jupyter(
    browser: Any, jupyter: Jupyter, kernel: Kernel, project: Path
) -> None:
    jupyter.outputs = [kernel.run("sweep.show('done')"), kernel.run("sweep.show()")]
    notebook = Notebook(browser, jupyter, "hub.example")
    frame = notebook.frame()
    origin = f"http://hub.example:{jupyter.port}"
    assert frame.url.startswith(f"{origin}{BASE}proxy/")
    assert frame.url.endswith("/done")
    assert "finished" in frame.inner_text("#state")
    assert frame.evaluate("document.cookie") == ""  # scripts cannot read it
    cookies = {one["name"]: one for one in notebook.context.cookies()}
    (cookie,) = cookies.values()
    assert cookie["path"] == f"{BASE}proxy/{frame.url.split('/proxy/')[1].split('/')[0]}"
    assert cookie["sameSite"] == "Strict"
    frame.click("a:has-text('sweeps')")  # links, streams and acts work below the path
    shelf = notebook.frame()
    shelf.wait_for_selector("#sweeps li")
    make_sweep(project / "results", f"later_{jupyter.port}", finished(time.time()))
    shelf.wait_for_selector(f"#sweeps li:has-text('later_{jupyter.port}')")
    shelf.click("#new")
    shelf.wait_for_selector("#verdict:has-text('no mistake')")
    shelf.click("text=sweeps")
    shelf.click("#sweeps a:has-text('lives')")
    shelf.wait_for_selector("html[data-ready]", state="attached")
    shelf.wait_for_selector("#command:has-text('python -m sweep')")
    with driving_lives(project) as driver:
        driver.write(start(20, time.time()))
        driver.write(epoch(20, 1, time.time()))
        shelf.wait_for_selector("#workers tbody tr")
    # the second output is another frame with a pass of its own
    assert notebook.frame(1).query_selector("#sweeps li") is not None
    notebook.close()


@contextmanager
def driving_lives(project: Path) -> Iterator[Any]:
    from sweep.store.folder import ResultsFolder

    with driving(ResultsFolder(project / "results" / "lives")) as driver:
        yield driver
        driver.write(*trial(21, time.time()))


def test_a_frame_that_is_made_anew_needs_no_new_pass(
    browser: Any, jupyter: Jupyter, kernel: Kernel
) -> None:
    jupyter.outputs = [kernel.run("sweep.show('done')")]
    notebook = Notebook(browser, jupyter, "hub.example")
    notebook.frame()
    notebook.page.evaluate("() => { const f = document.querySelector('iframe'); f.src = f.src }")
    notebook.page.wait_for_timeout(500)
    notebook.frame()
    notebook.page.reload()
    assert notebook.frame().url.endswith("/done")
    # another browser with the same, saved output
    stranger = Notebook(browser, jupyter, "hub.example")
    stranger.page.wait_for_selector("iframe")
    stranger.page.frame_locator("iframe").locator("text=run the cell again").wait_for()
    stranger.context.close()
    notebook.close()


def test_a_local_notebook_without_a_proxy_goes_straight_to_the_server(
    browser: Any, jupyter: Jupyter, kernel: Kernel
) -> None:
    jupyter.has_proxy = False
    jupyter.outputs = [kernel.run("sweep.show('done')")]
    for host in ("localhost", "127.0.0.1"):
        jupyter.outputs = [kernel.run("sweep.show('done')")]
        notebook = Notebook(browser, jupyter, host)
        frame = notebook.frame()
        assert frame.url.startswith(f"http://{host}:")
        assert frame.url.endswith("/done")
        with notebook.context.expect_page() as opened:
            notebook.page.click("text=open in a tab")
        opened.value.wait_for_selector("html[data-ready]", state="attached")
        assert opened.value.url == frame.url
        # of the way through Jupyter
        assert [one for one in notebook.troubles if "404" not in one] == []
        notebook.context.close()


def test_a_remote_notebook_without_a_proxy_says_what_to_install(
    browser: Any, jupyter: Jupyter, kernel: Kernel
) -> None:
    jupyter.has_proxy = False
    jupyter.outputs = [kernel.run("sweep.show('done')")]
    notebook = Notebook(browser, jupyter, "hub.example")
    notebook.page.wait_for_selector("text=pip install jupyter-server-proxy")
    assert notebook.page.query_selector("iframe") is None
    notebook.context.close()


def test_a_frame_on_another_site_keeps_its_cookie(
    browser: Any, jupyter: Jupyter, kernel: Kernel
) -> None:
    """As in VS Code, whose pages are of another scheme: here, of another host."""
    port = kernel.run("from sweep.ui import notebook; import IPython; server = notebook.find_server('results')\n"
                      "IPython.display.display(IPython.display.HTML(f'{server.port} {server.token}'))")  # fmt: skip
    number, token = port.split()
    around = f"http://elsewhere.example:{jupyter.port}"
    own = f"http://127.0.0.1:{number}"
    src = f"{own}/?pass={make_pass(token)}&sweep=done&origin={own}&ancestor={around}"
    jupyter.outputs = [f'<iframe src="{src.replace("&", "&amp;")}"></iframe>']
    notebook = Notebook(browser, jupyter, "elsewhere.example")
    frame = notebook.frame()
    assert frame.url == f"{own}/done"
    answer = frame.evaluate(
        "async () => (await post(`${ROOT}-/new/check`, { text: '', file: 'a.yaml' })).mistakes.length"
    )
    assert answer == 1
    notebook.close()
    # A page that has brought no pass cannot show it.
    jupyter.outputs = [f'<iframe src="{own}/done"></iframe>']
    thief = Notebook(browser, jupyter, "evil.example")
    thief.page.wait_for_timeout(1500)
    assert any("frame-ancestors" in one for one in thief.troubles)
    thief.context.close()


def test_a_saved_page_of_the_notebook_has_a_link(
    browser: Any, kernel: Kernel, tmp_path: Path
) -> None:
    file = tmp_path / "notebook.html"
    output = kernel.run("sweep.show('done')")
    file.write_text(f"<!DOCTYPE html><body>{output}</body>")
    page = browser.new_page()
    page.goto(file.as_uri())
    with page.context.expect_page() as opened:
        page.click("text=open in a tab")
    opened.value.wait_for_selector("html[data-ready]", state="attached")
    assert page.query_selector("iframe") is None
    page.context.close()


def test_the_page_ends_with_the_kernel(browser: Any, jupyter: Jupyter, project: Path) -> None:
    kernel = Kernel(project)
    jupyter.outputs = [kernel.run("import sweep; sweep.show('done')")]
    notebook = Notebook(browser, jupyter, "hub.example")
    frame = notebook.frame()
    kernel.manager.interrupt_kernel()  # the notebook's stop button ends no page
    frame.evaluate("() => { location.reload() }")
    notebook.page.wait_for_timeout(500)
    notebook.frame()
    kernel.end()
    jupyter_says = "async (address) => (await fetch(address)).status"
    deadline = time.monotonic() + 60
    while notebook.page.evaluate(jupyter_says, frame.url) == 200:
        assert time.monotonic() < deadline
        time.sleep(0.3)
    notebook.page.reload()
    notebook.page.wait_for_selector(
        "text=If the kernel was started again since, run the cell again"
    )
    notebook.context.close()
