"""The report holds what the log holds, and nothing of it acts."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from sweep.analysis import account
from sweep.events import EpochReported, Event, Facts, Params, SessionStarted, Status, TrialEnded, TrialStarted
from sweep.render.report import page
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log

EVIL = '<script>alert("x")</script>'
VOID = {"meta", "link", "br", "rect", "line", "circle"}


class Tags(HTMLParser):
    """Counts tags, and finds those that are not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def count(self, tag: str, kind: str = "") -> int:
        return sum(tag == one and kind in str(about.get("class", "")) for one, about in self.seen)


def parsed(html: str) -> Tags:
    tags = Tags()
    tags.feed(html)
    tags.close()
    assert tags.open == []
    return tags


def trial(number: int, params: Params, scores: list[float], status: Status, error: str | None = None) -> list[Event]:
    begun = 10.0 * number
    events: list[Event] = [
        TrialStarted(trial=number, trial_id=f"t{number}", params=params, seed=0, repeat=0, time=begun)
    ]
    for epoch, score in enumerate(scores, 1):
        events.append(EpochReported(trial=number, epoch=epoch, metrics={"acc": score}, time=begun + epoch, time_s=1.0))
    if status is not Status.RUNNING:
        facts = Facts(started=begun, train_s=2.0, overhead_s={"compile": 1.5})
        reason = f"why {EVIL}" if error else ""
        events.append(TrialEnded(trial=number, status=status, reason=reason, time=begun + 5, error=error, facts=facts))
    return events


def written(tmp_path: Path, events: list[Event]) -> ResultsFolder:
    info = {"objectives": [{"name": "acc", "goal": "maximize"}], "provenance": {"python": "3.11", "gpus": []}}
    folder = ResultsFolder.create(tmp_path, "first", f"# what? {EVIL}\nepochs: 3\n", info)
    with Log(folder.log) as log:
        log.append([SessionStarted(time=0.0, resumed=False, version="1"), *events])
    return folder


@pytest.fixture
def full(tmp_path: Path) -> ResultsFolder:
    rates = [0.1, 0.01, 0.001]
    events = [
        *trial(0, {"lr": rates[0], "kind": EVIL}, [0.2, 0.5, 0.9], Status.COMPLETED),
        *trial(1, {"lr": rates[1], "kind": "b"}, [0.2, 0.4, 0.8], Status.COMPLETED),
        *trial(2, {"lr": rates[2], "kind": "b"}, [0.1], Status.PRUNED),
        *trial(3, {"lr": rates[0], "kind": "b"}, [], Status.FAILED, f"Traceback {EVIL}"),
        *trial(4, {"lr": rates[1], "kind": "c"}, [0.3, float("nan")], Status.DIVERGED, None),
        *trial(5, {"lr": rates[2], "kind": "c"}, [0.3], Status.RUNNING),
    ]
    return written(tmp_path, events)


def test_all_of_a_sweep_is_told(full: ResultsFolder) -> None:
    html = page(account.of(full))
    tags = parsed(html)
    assert "0.9000 in trial 0" in html
    assert "2 completed, 1 pruned, 1 failed, 1 diverged, 1 running" in html
    assert "it runs, or was killed" in html
    assert (tags.count("polyline"), tags.count("polyline", "best")) == (2, 2)
    assert tags.count("svg", "") == 4  # definitions, curves, two parameters
    assert tags.count("details") == 2
    assert re.search(r"<td>training</td><td>[0-9.]+ s</td>", html)
    assert re.search(r"<td>compile</td><td>7\.5 s</td>", html)
    assert tags.count("tr") == 1 + 6 + 3  # heading and configurations; training, compile, wait
    assert "<dt>python</dt><dd>3.11</dd>" in html


def test_nothing_acts_and_nothing_is_fetched(full: ResultsFolder) -> None:
    html = page(account.of(full))
    tags = parsed(html)
    assert EVIL not in html
    assert html.count("&lt;script&gt;") >= 5  # parameter, reason, traceback, sweep file, titles of charts
    assert tags.count("script") == tags.count("img") == tags.count("link") == tags.count("iframe") == 0
    assert not [about for _, about in tags.seen if {"src", "href"} & set(about)]
    assert not [name for _, about in tags.seen for name in about if name.startswith("on")]
    assert "default-src 'none'" in html


def test_a_sweep_that_has_not_begun(tmp_path: Path) -> None:
    html = page(account.of(written(tmp_path, [])))
    parsed(html)
    for text in ("No trial has begun.", "No epoch has been reported.", "Nothing has been trained."):
        assert text in html


def test_many_trials_stay_readable(tmp_path: Path) -> None:
    events = [event for n in range(260) for event in trial(n, {"x": n}, [0.1, n / 260], Status.COMPLETED)]
    html = page(account.of(written(tmp_path, events)))
    tags = parsed(html)
    assert tags.count("polyline") == 200
    assert "60 more trials are not drawn" in html
    assert "trial 259" in html
