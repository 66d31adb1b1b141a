"""The page holds what the log holds, and nothing of it acts."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path

import pytest
from report_sweeps import BOTH, EVIL, mixed, trial, written

from sweep.errors import InputError
from sweep.events import Event, NoteWritten, Status, TrialEnded, Value
from sweep.render.report import page, sections
from sweep.render.report.html_page import SCRIPTS, START
from sweep.runner.additions import read_assignments

VOID = {"meta", "link", "br", "input", "img"}
# of 6.1.0 as published
ECHARTS = "b66b25aeb4df84e33199dc21694014d336d222cbd9deb0e5a7c14bd6aa0d0fd0"


class Tags(HTMLParser):
    """Tags with their attributes, the text of scripts and styles, and whether all is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.inline: dict[str, list[str]] = {"script": [], "style": []}
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag in self.inline:
            self.inline[tag].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in self.inline:
            self.inline[self.open[-1]][-1] += data


def test_only_its_own_scripts_may_run(tmp_path: Path) -> None:
    html = page([written(tmp_path, mixed(), objectives=BOTH)])
    tags = Tags(html)
    names = [name for name, _ in tags.seen]
    assert names.count("script") == 1 + len((*SCRIPTS, START))
    assert not {"img", "link", "iframe", "object", "base"} & set(names)
    assert not [
        about for _, about in tags.seen if "src" in about or (about.get("href") or "#")[0] != "#"
    ]
    assert not [
        key for _, about in tags.seen for key in about if key.startswith("on") or key == "style"
    ]
    assert EVIL[:14] not in html
    policy = next(
        about["content"]
        for _, about in tags.seen
        if about.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    for text in (*tags.inline["script"][1:], *tags.inline["style"]):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


@pytest.mark.parametrize("kind", ["light", "dark"])
def test_each_status_has_a_colour_of_its_own(kind: str) -> None:
    script = (resources.files("sweep.render.report") / "theme.js").read_text()
    table = re.search(rf"BY_STATUS = \{{.*?{kind}: \{{(.*?)\}}", script, re.DOTALL)
    assert table
    colours = dict(re.findall(r'(\w+): "(#[0-9a-f]{6})"', table[1]))
    assert set(colours) == {status.value for status in Status}
    assert len(set(colours.values())) == len(colours)


def test_a_parameters_scale_is_that_on_which_it_was_searched_where_that_is_known(
    tmp_path: Path,
) -> None:
    folder = written(tmp_path, mixed())
    parameters = {
        "lr": {"min": 0.0, "max": 0.1},
        "optimizer.momentum": {"distribution": "uniform", "min": "damaged"},
    }

    def log() -> dict[str, bool]:
        data = json.loads(Tags(page([folder])).inline["script"][0])
        return {one["name"]: one["log"] for one in data["params"] if "log" in one}

    assert log() == {"lr": True, "units": False, "optimizer.momentum": False}
    parameters["units"] = {"distribution": "int_log_uniform_values", "min": 8, "max": 32}
    folder.write_info(folder.read_info().changed(spec={"parameters": parameters}))
    assert log() == {"lr": False, "units": True, "optimizer.momentum": False}


def test_numbers_of_a_configuration_are_not_rounded(tmp_path: Path) -> None:
    exact = [0.1 + 0.2, 1 / 3, 7e-300]
    events: list[Event] = []
    for number, value in enumerate(exact):
        events += trial(number, {"lr": value}, [0.5], Status.COMPLETED)
    data = json.loads(Tags(page([written(tmp_path, events)])).inline["script"][0])
    assert data["params"][0]["values"] == exact


def test_values_that_are_no_numbers_are_written_as_a_command_takes_them(tmp_path: Path) -> None:
    given: list[Value] = [None, 1 / 64, "128", "a #b", "none", [8, 16]]
    events: list[Event] = []
    for number, value in enumerate(given):
        events += trial(number, {"width": value}, [0.5], Status.COMPLETED)
    data = json.loads(Tags(page([written(tmp_path, events)])).inline["script"][0])
    (param,) = data["params"]
    told = [f"width={param['written'][code]}" for code in param["values"]]
    assert [read_assignments([line])["width"] for line in told] == given


def test_its_data_is_the_logs(tmp_path: Path) -> None:
    data = json.loads(Tags(page([written(tmp_path, mixed(), objectives=BOTH)])).inline["script"][0])
    assert data["trials"]["trial"] == list(range(36))
    assert [one["name"] for one in data["objectives"]] == ["acc", "loss"]
    assert {one["name"] for one in data["params"]} == {
        "lr",
        "units",
        "flag",
        EVIL,
        "optimizer.momentum",
    }
    assert data["table"]["columns"][0] == "rank"
    assert sorted(trial for row in data["table"]["trials"] for trial in row) == list(range(36))
    assert data["timeline"]["lanes"][-1] == "not known"
    assert len(data["importance"]) == 2


def test_all_of_a_sweep_is_told(tmp_path: Path) -> None:
    html = page([written(tmp_path, mixed())])
    assert "25 completed, 4 pruned, 4 diverged, 2 failed, 1 interrupted" in html
    assert "its process was killed" in html
    assert re.search(r"The best was lr=[0-9.]+.* with acc 0\.8200", html)
    assert "What is &lt;/script&gt;" in html
    assert html.count("<details><summary>trial") == 6
    assert re.search(r"<th scope=\"row\">training</th><td>", html)
    assert "4 end in a ring: pruned; 6 in a cross" in html


def test_provenance_is_a_list_of_facts_with_their_parts(tmp_path: Path) -> None:
    folder = written(tmp_path, mixed())
    packages = {f"package{number}": "1.0" for number in range(9)}
    provenance = {
        "python": "3.11",
        "packages": packages,
        "git": {"commit": "a1" * 20, "dirty": False},
    }
    folder.write_info(folder.read_info().changed(provenance=provenance))
    html = page([folder])
    assert "<summary>9 of them</summary>" in html
    assert f'<code class="hash" tabindex="0" title="{"a1" * 20}">{"a1" * 20}</code>' in html
    assert re.search(r"<dt>dirty</dt>\s*<dd><bdi>false</bdi></dd>", html)


def test_charts_of_marks_say_what_the_marks_mean(tmp_path: Path) -> None:
    html = page([written(tmp_path, mixed(), objectives=BOTH)])
    # parameters, two of them, front and progress
    assert html.count("pruned, also by hand, or unfinished") == 4
    assert html.count("pruned there, also by hand") == 1


def test_notes_are_whole(tmp_path: Path) -> None:
    note = "a long note " * 20
    events = [*mixed(), NoteWritten(trial=0, text=note, request="r", time=1e3)]
    data = json.loads(Tags(page([written(tmp_path, events)])).inline["script"][0])
    assert note in [row[data["table"]["columns"].index("note")] for row in data["table"]["rows"]]


def test_a_trial_that_a_person_has_stopped_is_told_from_a_pruned_one(tmp_path: Path) -> None:
    stopped = TrialEnded(
        trial=0, status=Status.PRUNED, reason="stopped on request", asked=True, time=5.0
    )
    events = [
        *trial(0, {"lr": 0.1}, [0.5], Status.RUNNING),
        stopped,
        *trial(1, {"lr": 0.2}, [0.5], Status.PRUNED),
    ]
    html = page([written(tmp_path, events)])
    assert "2 end in a ring: pruned, 1 of them by hand" in html
    data = json.loads(Tags(html).inline["script"][0])
    assert data["trials"]["outcome"] == ["stopped by hand", "pruned"]
    statuses = [row[data["table"]["columns"].index("status")] for row in data["table"]["rows"]]
    assert sorted(statuses) == ["pruned", "stopped by hand"]


def test_several_sweeps_are_told_apart_and_need_one_objective(tmp_path: Path) -> None:
    folders = [written(tmp_path, mixed(), name) for name in ("first", "second")]
    html = page(folders)
    assert "trial 5 of second" in html
    assert json.loads(Tags(html).inline["script"][0])["trials"]["sweep"] == [0] * 36 + [1] * 36
    with pytest.raises(InputError, match="compare sweeps of one objective"):
        page([*folders, written(tmp_path, [], "third", BOTH)])


def test_what_is_known_of_one_of_several_sweeps_alone_is_told(tmp_path: Path) -> None:
    events = [*mixed(), NoteWritten(text="the second one", request="r", time=1e3)]
    html = page([written(tmp_path, mixed()), written(tmp_path, events, "second")])
    assert re.search(r'<th scope="col">note</th><th scope="col">ended</th></tr>', html)
    (first, second) = re.findall(r'<tr><th scope="row"><bdi>(?:first|second)</bdi>.*</tr>', html)
    assert "the second one" not in first
    assert "<td><bdi>the second one</bdi></td><td><bdi>its process was killed</bdi></td>" in second


def test_a_sweep_that_has_not_begun(tmp_path: Path) -> None:
    html = page([written(tmp_path, [])])
    for text in ("No trial has begun", "Nothing has been trained."):
        assert text in html
    assert 'id="curves"' not in html


def test_ten_thousand_epochs_are_thinned_and_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.render.report.html_page.POINTS", 200)
    events = [
        event for n in range(20) for event in trial(n, {"x": n}, [0.1] * 50, Status.COMPLETED)
    ]
    html = page([written(tmp_path, events)])
    assert "Of each trial 10 epochs at most are drawn" in html
    assert "Left out, because there are too many points: loss." in html


def test_the_library_is_the_published_one() -> None:
    folder = resources.files("sweep.render.report")
    assert hashlib.sha256(folder.joinpath("echarts.min.js").read_bytes()).hexdigest() == ECHARTS
    assert "Apache License" in folder.joinpath("echarts.LICENSE").read_text()
    for name in (*SCRIPTS, START):
        text = folder.joinpath(name).read_text(encoding="utf-8")
        assert "</script" not in text.lower()
        assert name == "echarts.min.js" or len(text.splitlines()) < 400


def test_what_names_a_machine_and_its_user_is_left_out(tmp_path: Path) -> None:
    folder = written(tmp_path, mixed())
    info = folder.read_info()
    about = {
        "hostname": "ada-laptop",
        "command": ["sweep", "run", "/home/ada/s.yaml"],
        "cpus": 77,
        "git": None,
    }
    folder.write_info(info.changed(provenance=about))
    text = page([folder])
    assert ">77<" in text
    assert "ada-laptop" not in text
    assert "/home/ada" not in text
    assert ">git<" not in text  # it is not known
    lanes = json.loads(Tags(text).inline["script"][0])["timeline"]["lanes"]
    assert lanes == ["node 1", "node 2", "not known"]
    assert "node0" not in text
    shown = sections([folder]).data["timeline"]
    assert isinstance(shown, dict)
    assert shown["lanes"] == ["node0", "node1", "not known"]  # of a page that is not sent to others
