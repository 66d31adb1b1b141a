"""optuna-dashboard over the log of a sweep: what it serves, and what a real browser shows of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from browsers import launched, needs_chromium
from hostile import STATUSES, story, trial

from sweep.errors import InputError
from sweep.events import Status
from sweep.export import dashboard
from sweep.export.dashboard import DashboardServer
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log

pytest.importorskip("optuna_dashboard", reason="an extra of its own")
pytestmark = pytest.mark.filterwarnings("default")


@contextmanager
def served(*folders: ResultsFolder) -> Iterator[DashboardServer]:
    with dashboard.make_server(folders, 0, pytest.fail) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server: DashboardServer, path: str) -> dict[str, object]:
    with urlopen(server.url.replace("/dashboard/", path)) as answer:
        return json.load(answer)


def test_studies_with_the_states_of_their_trials(made: Callable[..., ResultsFolder]) -> None:
    first, second = made(story()), made([], "empty")
    with served(first, second) as server:
        studies = ask(server, "/api/studies")["study_summaries"]
        assert [one["study_name"] for one in studies] == [first.name, "empty"]
        assert studies[0]["directions"] == ["maximize", "minimize"]
        detail = ask(server, "/api/studies/0")
        assert [one["state"] for one in detail["trials"]] == [
            *("Waiting", "Complete", "Complete", "Pruned", "Fail", "Fail", "Fail", "Waiting")
        ]
        assert detail["objective_names"] == ["val/acc", "cost"]
        notes = {one["key"]: one["value"] for one in detail["trials"][6]["user_attrs"]}
        assert (notes["status"], notes["reason"], notes["seed"]) == (
            "failed",
            "because, of\nfailed",
            "13",
        )
        assert ask(server, "/api/studies/1")["trials"] == []


def test_nothing_can_be_edited(hostile: ResultsFolder) -> None:
    before = {path: path.read_bytes() for path in hostile.path.rglob("*") if path.is_file()}
    with served(hostile) as server:
        for method, path in (
            ("DELETE", "studies/0"),
            ("POST", "studies"),
            ("PUT", "studies/0/note"),
        ):
            request = Request(server.url.replace("dashboard/", f"api/{path}"), b"{}", method=method)
            with pytest.raises(HTTPError) as refused:
                urlopen(request)
            assert refused.value.code == 403
            assert "not edited here" in json.load(refused.value)["reason"]
        assert len(ask(server, "/api/studies/0")["trials"]) == len(STATUSES)
    assert {path: path.read_bytes() for path in hostile.path.rglob("*") if path.is_file()} == before


def test_it_answers_to_its_own_name_alone(hostile: ResultsFolder) -> None:
    """A page whose name points to this machine (DNS rebinding) is answered under that name, or not at all."""
    with served(hostile) as server:
        own = f"127.0.0.1:{server.server_port}"
        for host in (own, own.replace("127.0.0.1", "LOCALHOST"), "localhost:9000", "127.0.0.1"):
            with urlopen(Request(f"http://{own}/api/studies", headers={"Host": host})) as answer:
                assert answer.status == 200
        for host in (
            "evil.example",
            f"evil.example:{server.server_port}",
            "127.0.0.1.evil.example",
            "",
        ):
            with pytest.raises(HTTPError) as caught:
                urlopen(Request(f"http://{own}/api/studies", headers={"Host": host}))
            assert caught.value.code == 403
            assert json.load(caught.value) == {
                "reason": "This dashboard answers to 127.0.0.1 and localhost alone."
            }


def test_it_listens_on_this_machine_alone_and_a_taken_port_is_named(hostile: ResultsFolder) -> None:
    with served(hostile) as server:
        assert server.server_address[0] == "127.0.0.1"
        port = server.server_port
        with pytest.raises(
            InputError, match=rf"--port {port}: cannot listen on 127.0.0.1:{port} \(Address already"
        ):
            dashboard.make_server([hostile], port, pytest.fail)


def test_where_the_library_is_missing(
    hostile: ResultsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna_dashboard", None)
    with pytest.raises(
        InputError,
        match=r'optuna-dashboard: is not installed; pip install "sweep-keras\[dashboard\]"',
    ):
        dashboard.make_server([hostile], 0, pytest.fail)


def test_sweeps_of_one_name_are_told_apart_by_their_path(
    made: Callable[..., ResultsFolder], tmp_path: Path
) -> None:
    first = made(story())
    second = ResultsFolder.create(tmp_path / "other", first.name, "", first.read_info().content)
    with served(first, second) as server:
        names = [one["study_name"] for one in ask(server, "/api/studies")["study_summaries"]]
    assert names == [str(first.path), str(second.path)]


@pytest.mark.slow
@needs_chromium
def test_in_a_browser(made: Callable[..., ResultsFolder]) -> None:
    folder = made(
        [event for number in range(8) for event in trial(number, STATUSES[1 + number % 4])]
    )
    info = folder.read_info()
    folder.write_info(info.changed(objectives=info.content["objectives"][:1]))
    wrong: list[str] = []
    with served(folder) as server, launched() as browser:
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.on(
            "console",
            lambda message: (
                wrong.append(message.text) if message.type in ("error", "warning") else None
            ),
        )
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("requestfailed", lambda request: wrong.append(request.url))
        page.goto(server.url)
        page.get_by_text(folder.name).click()
        points = page.locator("#graph-history .point, .js-plotly-plot .scatterlayer .point")
        points.first.wait_for()
        for plot in page.locator(".js-plotly-plot").all():
            plot.locator("path.point, .point path, .bars path, .js-line").first.wait_for(
                state="attached"
            )
        page.get_by_text("Best Trial (number=4)").wait_for()
        before = points.count()
        with Log(folder.log) as log:
            log.append(trial(8, Status.COMPLETED))
        page.reload()  # it asks by itself as well, every ten seconds
        page.get_by_text("Best Trial (number=8)").wait_for(timeout=60_000)
        points.nth(before).wait_for()  # one more than before
        page.goto(f"{server.url}studies/0/trials?numbers=2")
        page.get_by_text("because, of").first.wait_for()
        assert "pruned" in page.inner_text("body").lower()
    assert wrong == []
