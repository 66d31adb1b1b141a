"""What the commands say of a sweep whose number of repeats was changed: ranking, status, replay, exports."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import curves
import pytest

import sweep
from sweep import analysis
from sweep.analysis import ranking
from sweep.analysis.replay import replay_rule
from sweep.contract import Devices
from sweep.documents.status import count_all_trials
from sweep.export.tensorboard import EventFiles
from sweep.runner import resuming
from sweep.runner.coordinator import Coordinator
from sweep.runner.expected_gain import measure_expected_gain
from sweep.runner.methods import build_searcher
from sweep.schedulers import Scheduler
from sweep.schedulers.early_termination import NoScheduler, build_scheduler
from sweep.spec import parse_spec
from sweep.statistics.verdicts import Verdict
from sweep.store import log as store_log
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log

TRAINABLE = curves.TRAINABLE.replace(
    "self.a / self.done", "self.a / self.done + self.given.seed / 100"
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "curve.py").write_text(TRAINABLE)
    return tmp_path


def read_rows(folder: ResultsFolder) -> list[tuple[object, float, str, tuple[float, ...]]]:
    """Return the value of a, the share that completed, the status and the scores of each configuration."""
    rows = []
    for row in ranking.rank([analysis.read_sweep(folder)]).rows:
        rows.append((row.params["a"], row.completed, row.status.value, row.scores[0].values))
    return rows


def test_more_repeats_of_a_sweep_that_has_finished(project: Path) -> None:
    folder = curves.run(project).folder
    loaded = sweep.load(folder.path)
    loaded.change({"repeats": 3})
    assert [row[1:3] for row in read_rows(folder)] == [(1 / 3, "interrupted")] * 3
    reopened = resuming.open_sweep(folder)
    assert (reopened.spec.repeats, reopened.first.repeats, count_all_trials(reopened)) == (3, 1, 9)
    assert curves.resume(project).completed == 9
    assert read_rows(folder) == [
        (1, 1.0, "completed", (0.25, 0.26, 0.27)),
        (2, 1.0, "completed", (0.5, 0.51, 0.52)),
        (3, 1.0, "completed", (0.75, 0.76, 0.77)),
    ]
    trials = sweep.load(folder.path).trials
    assert trials["seed"].tolist() == [0, 0, 0, 1, 2, 1, 2, 1, 2]
    assert trials["repeat"].tolist() == trials["seed"].tolist()
    assert "space_version" not in trials  # the space is the same


def test_fewer_repeats_rank_by_the_mean_of_what_there_is(project: Path) -> None:
    folder = curves.run(project, curves.FILE + "repeats: 2\nrun_cap: 2\n").folder
    curves.resume(project, "repeats=1", "run_cap=3")
    assert read_rows(folder) == [
        (1, 1.0, "completed", (0.25, 0.26)),
        (2, 1.0, "completed", (0.5,)),
        (3, 1.0, "completed", (0.75, 0.76)),
    ]
    verdicts = [row.verdict for row in ranking.rank([analysis.read_sweep(folder)]).rows]
    assert set(verdicts) == {Verdict.UNDECIDED}  # too few seeds


def test_a_file_that_says_another_number(project: Path) -> None:
    folder = curves.run(project).folder
    spec = parse_spec(curves.FILE + "repeats: 2\n", "f.yaml")
    reopened, lines = resuming.reopen_as(project / "results", Path("f.yaml"), spec, None)
    assert lines == ["f.yaml: repeats is 2 from now on; it was 1"]
    assert reopened.settings == {"repeats": 2}
    curves.resume(project, "repeats=2")
    assert len(sweep.load(folder.path).trials) == 6
    again, lines = resuming.reopen_as(project / "results", Path("f.yaml"), spec, None)
    assert again.settings == {}


def test_a_replay_of_the_rule_and_of_the_log(project: Path) -> None:
    folder = curves.run(
        project, curves.FILE + "early_terminate: {type: asha, min_iter: 1, eta: 2}\n"
    ).folder
    curves.resume(project, "repeats=2")
    reopened = resuming.open_sweep(folder)
    spec = reopened.spec
    events = list(store_log.read(folder.log))

    def make() -> Scheduler:
        return build_scheduler(spec.early_terminate, spec.objectives[0], spec.epochs)

    found = replay_rule(events, spec, ("asha", make), ("asha", make), orderings=5)
    assert found is not None
    assert (found.trials, found.configurations, found.same_as_live) == (6, 3, True)


def test_event_files_are_grouped_by_configuration(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard", reason="an extra of its own")
    monkeypatch.setitem(sys.modules, "tensorboard.compat.notf", ModuleType("notf"))
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    folder = curves.run(project).folder
    target = tmp_path / "board"
    for assignment in ("repeats=2", "repeats=1"):
        files = EventFiles(folder, target)
        files.update()
        files.close()
        curves.resume(project, assignment)
    files = EventFiles(folder, target)
    assert files.update() == 6
    files.close()
    groups = {}
    for path in sorted(target.glob("*/events*")):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                if value.tag == "_hparams_/session_start_info":
                    data = HParamsPluginData.FromString(value.metadata.plugin_data.content)
                    groups[path.parent.name] = data.session_start_info.group_name
    assert groups == {
        **{"00000": "00000", "00001": "00001", "00002": "00002"},
        **{"00003": "00000", "00004": "00001", "00005": "00002"},
    }


def test_a_coordinator_that_replays_the_log_finds_nothing_left(project: Path) -> None:
    folder = curves.run(project).folder
    curves.resume(project, "repeats=2")
    reopened = resuming.open_sweep(folder)
    first = reopened.first
    with Log(folder.log) as log:
        searcher = build_searcher(
            first.method, first.space, first.objectives, first.seed, first.trials_each
        )
        driver = Coordinator(first, Devices(), searcher, NoScheduler(), log)
        driver.open(list(store_log.read(folder.log)))
        assert (driver.left, driver.next()) == (0, None)


def test_what_the_next_configurations_promise(project: Path) -> None:
    """Those count that have all seeds; the next ones are those of the method."""
    text = curves.FILE.replace("grid", "random").replace(
        "{values: [3, 1, 2]}", "{min: 0.0, max: 1.0}"
    )
    folder = curves.run(project, text + "run_cap: 14\nstop_when: {gain: 1.0e-9}\n").folder
    tried = len(sweep.load(folder.path).trials)
    began = resuming.open_sweep(folder)
    before = measure_expected_gain(folder, began.spec, began.first)
    assert before is not None
    sweep.load(folder.path).change({"repeats": 2})
    changed = resuming.open_sweep(folder)
    assert measure_expected_gain(folder, changed.spec, changed.first) is None
    curves.resume(project)
    after = measure_expected_gain(folder, changed.spec, changed.first)
    assert after is not None
    assert after.configurations == before.configurations
    assert len(sweep.load(folder.path).trials) == 2 * tried  # it had gained enough before
