"""Trials that were trained before are answered from their sweep's log, and only if nothing differs."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from curves import FILE, TRAINABLE, Watcher, ends, resume, run

import sweep
from sweep.backends import checkpoints
from sweep.events import EpochReported, Event, TrialEnded
from sweep.store import log as store_log

SECOND = FILE.replace("curves", "second")


def answered(watcher: Watcher) -> dict[int, str | None]:
    return {event.trial: event.memo for event in watcher.seen if isinstance(event, TrialEnded)}


def test_the_same_sweep_again_is_answered(project: Path) -> None:
    first = run(project)
    watcher = Watcher()
    second = run(project, SECOND, watcher, memo=True)
    assert second.completed == 3
    assert answered(watcher) == {0: "curves/0", 1: "curves/1", 2: "curves/2"}
    assert watcher.said == ["3 trials answered from curves, not trained again"]
    one, other = sweep.load(first.folder.path), sweep.load(second.folder.path)
    assert other.metrics.drop(columns=["sweep", "trial_id"]).equals(
        one.metrics.drop(columns=["sweep", "trial_id"])
    )
    assert other.trials["memo"].tolist() == ["curves/0", "curves/1", "curves/2"]
    assert other.trials["status_reason"].tolist()[1] == "from curves, trial 1"
    assert other.trials["train_s"].tolist() == [0.0] * 3
    assert other.trials["checkpoint"].tolist() == one.trials["checkpoint"].tolist()
    # nothing of an answered trial hangs on the one that answered it
    shutil.rmtree(first.folder.path)
    kept = [second.folder.path / path for path in other.trials["checkpoint"]]
    assert [checkpoints.read_verified_manifest(path).epoch for path in kept] == [4, 4, 4]
    third = Watcher()
    run(project, FILE.replace("curves", "third"), third, memo=True)
    assert answered(third)[1] == "curves/1"


def test_only_what_is_missing_is_trained(project: Path) -> None:
    run(project)
    watcher = Watcher()
    outcome = run(project, SECOND.replace("[3, 1, 2]", "[2, 7, 1]"), watcher, memo=True)
    assert answered(watcher) == {0: "curves/2", 1: None, 2: "curves/1"}
    assert ends(outcome.folder) == dict.fromkeys(range(3), "completed")


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text + "seed: 1\n",
        lambda text: text.replace("epochs: 4", "epochs: 3"),
        lambda text: text + "training: {precision: float32}\n",
        lambda text: text + "folds: 3\n",
        lambda text: text.replace("parameters: {a:", "parameters: {b: {value: 1}, a:"),
    ],
)
def test_a_training_that_differs_is_trained(project: Path, change: object) -> None:
    run(project)
    watcher = Watcher()
    run(project, change(SECOND), watcher, memo=True)
    assert set(answered(watcher).values()) == {None}


def test_a_fold_is_answered_by_the_same_fold_of_as_many(project: Path) -> None:
    run(project, FILE + "folds: 2\n")
    watcher = Watcher()
    run(project, SECOND + "folds: 2\nrepeats: 2\n", watcher, memo=True)
    found = answered(watcher)
    assert [found[number] for number in range(4)] == ["curves/0", "curves/1", None, None]
    watcher = Watcher()
    run(project, SECOND.replace("second", "third") + "folds: 3\n", watcher, memo=True)
    assert set(answered(watcher).values()) == {None}


def test_more_epochs_are_said_to_be_trained_anew(project: Path) -> None:
    run(project)
    watcher = Watcher()
    run(project, SECOND.replace("epochs: 4", "epochs: 5"), watcher, memo=True)
    assert watcher.said == [
        "trials of curves that differ only in their number of epochs (4) cannot be continued to 5 and "
        "are trained again: what they did may depend on the number of epochs"
    ]


@pytest.mark.parametrize(
    ("judged", "goal", "count"),
    [
        ("", "maximize", 3),
        ("training: {patience: 9}\n", "minimize", 3),
        ("training: {patience: 9}\n", "maximize", 0),
        ("lr_schedule: {value: plateau}, ", "minimize", 3),
        ("lr_schedule: {value: plateau}, ", "maximize", 0),
    ],
)
def test_a_training_that_looks_at_the_objective_needs_the_same_one(
    project: Path, judged: str, goal: str, count: int
) -> None:
    def text(name: str, goal: str) -> str:
        told = FILE.replace("curves", name).replace("goal: minimize", f"goal: {goal}")
        return (
            told + judged
            if judged.endswith("\n")
            else told.replace("parameters: {", "parameters: {" + judged)
        )

    run(project, text("curves", "minimize"))
    watcher = Watcher()
    run(project, text("second", goal), watcher, memo=True)
    assert sum(source is not None for source in answered(watcher).values()) == count


def test_other_code_is_trained(project: Path) -> None:
    run(project)
    (project / "curve.py").write_text(TRAINABLE + "\n# another version\n")
    watcher = Watcher()
    run(project, SECOND, watcher, memo=True)
    assert set(answered(watcher).values()) == {None}


def test_a_sweep_that_went_on_with_other_code_answers_nothing(project: Path) -> None:
    run(project, FILE + "run_cap: 1\n")
    (project / "curve.py").write_text(TRAINABLE + "\n# another version\n")
    sys.modules.pop("curve")  # as in another process
    watcher = Watcher()
    resume(project, "run_cap=3", watcher=watcher)
    assert "has changed since the sweep began" in watcher.said[0]
    again = Watcher()
    run(project, SECOND, again, memo=True)
    assert set(answered(again).values()) == {None}
    assert again.said == [
        "no results of curves are reused: it went on with other code than it began with"
    ]


def test_unsuccessful_trials_are_trained_again(project: Path) -> None:
    text = FILE.replace("[3, 1, 2]", "[-1, -2, 1]")
    run(project, text)
    watcher = Watcher()
    run(project, text.replace("curves", "second"), watcher, memo=True)
    assert answered(watcher) == {0: None, 1: None, 2: "curves/2"}


def test_a_trial_that_its_target_cut_short_answers_none(project: Path) -> None:
    run(project, FILE.replace("goal: minimize", "goal: minimize, target: 0.5"))
    watcher = Watcher()
    second = run(project, SECOND, watcher, memo=True)
    assert answered(watcher) == {0: "curves/0", 1: None, 2: None}
    assert sweep.load(second.folder.path).trials["epochs"].tolist() == [4, 4, 4]


def test_an_answered_trial_ends_at_the_target_too(project: Path) -> None:
    run(project)
    watcher = Watcher()
    outcome = run(
        project, SECOND.replace("goal: minimize", "goal: minimize, target: 0.5"), watcher, memo=True
    )
    assert outcome.stopped == "target reached: score 0.5 in trial 1"
    assert answered(watcher) == {0: "curves/0", 1: "curves/1"}
    trials = sweep.load(outcome.folder.path).trials
    assert trials["epochs"].tolist() == [4, 2]
    assert trials["checkpoint"].isna().tolist() == [False, True]


def test_the_scheduler_judges_answered_trials_too(project: Path) -> None:
    rule = "early_terminate: {type: asha, min_iter: 1, eta: 2}\n"
    order = FILE.replace("[3, 1, 2]", "[1, 2, 3]")
    run(project, order)
    plain = run(project, order.replace("curves", "plain") + rule)
    watcher = Watcher()
    second = run(project, order.replace("curves", "second") + rule, watcher, memo=True)
    assert ends(second.folder) == ends(plain.folder) == {0: "completed", 1: "pruned", 2: "pruned"}
    assert [event.memo for event in watcher.seen if isinstance(event, TrialEnded)] == [
        "plain/0",  # the latest that was not stopped early
        "curves/1",
        "curves/2",
    ]
    reported = [
        (e.trial, e.epoch)
        for e in store_log.read(second.folder.log)
        if isinstance(e, EpochReported)
    ]
    assert reported == [(0, 1), (0, 2), (0, 3), (0, 4), (1, 1), (2, 1)]


class _Bounded(Watcher):
    """Interrupts a sweep that does not end."""

    def on(self, event: Event) -> None:
        super().on(event)
        if len(self.seen) == 100:
            os.kill(os.getpid(), signal.SIGINT)


def test_a_result_that_ends_where_its_trial_pauses_completes_it(project: Path) -> None:
    (project / "curve.py").write_text(TRAINABLE.replace("self.given.epochs:", "2:"))
    run(project)
    watcher = _Bounded()
    rule = "early_terminate: {type: asha_promotion, min_iter: 2, eta: 2, min_completed: 3}\n"
    second = run(project, SECOND + rule, watcher, memo=True)
    assert second.completed == 3
    assert answered(watcher) == {0: "curves/0", 1: "curves/1", 2: "curves/2"}


def test_answered_epochs_are_on_no_budget(project: Path) -> None:
    run(project)
    outcome = run(project, SECOND + "budget: {epochs: 6}\n", memo=True)
    assert (outcome.completed, outcome.stopped) == (3, None)


@pytest.mark.parametrize(("data", "count"), [("one", 3), ("other", 0)])
def test_data_with_a_fingerprint_is_looked_at(project: Path, data: str, count: int) -> None:
    code = TRAINABLE.replace(
        'Facts(node="here", data="none")',
        'Facts(node="here", data=Path(__file__ + ".data").read_text())',
    )
    code = code.replace("import json", "from pathlib import Path\nimport json")
    (project / f"data_{data}.py").write_text(code)
    held = project / f"data_{data}.py.data"
    held.write_text("one")
    text = FILE.replace("curve:Curve", f"data_{data}:Curve")
    run(project, text)
    held.write_text(data)
    watcher = Watcher()
    second = run(project, text.replace("curves", "second"), watcher, memo=True)
    assert second.completed == 3
    assert sum(source is not None for source in answered(watcher).values()) == count


def test_of_several_sweeps_the_one_with_the_same_data_answers(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = TRAINABLE.replace('data="none"', "data=sys.data_of_today")
    (project / "dated.py").write_text("import sys\n" + code)
    text = FILE.replace("curve:Curve", "dated:Curve")
    for name, data in (("b", "one"), ("c", "other"), ("a", "third")):
        monkeypatch.setattr(sys, "data_of_today", data, raising=False)
        run(project, text.replace("curves", name))
    watcher = Watcher()
    run(project, text.replace("curves", "d"), watcher, memo=True)
    assert answered(watcher) == {trial: f"a/{trial}" for trial in range(3)}
    monkeypatch.setattr(sys, "data_of_today", "one")
    watcher = Watcher()
    run(project, text.replace("curves", "e"), watcher, memo=True)
    assert answered(watcher) == {trial: f"b/{trial}" for trial in range(3)}


@pytest.mark.parametrize("data_of_later", ["one", "other"])
def test_a_result_that_cannot_be_used_is_not_mentioned_where_another_one_answers(
    project: Path, monkeypatch: pytest.MonkeyPatch, data_of_later: str
) -> None:
    known = 'data=sys.data_of_today, strategy="some", reproducible=sys.is_reproducible'
    code = TRAINABLE.replace('data="none"', known)
    (project / "dated.py").write_text("import sys\n" + code)
    text = FILE.replace("curve:Curve", "dated:Curve")
    monkeypatch.setattr(sys, "data_of_today", "one", raising=False)
    monkeypatch.setattr(sys, "is_reproducible", True, raising=False)
    run(project, text.replace("curves", "first"))
    monkeypatch.setattr(sys, "data_of_today", data_of_later)
    monkeypatch.setattr(sys, "is_reproducible", False)
    run(project, text.replace("curves", "later"))
    monkeypatch.setattr(sys, "data_of_today", "one")
    watcher = Watcher()
    run(project, text.replace("curves", "third"), watcher, memo=True)
    assert answered(watcher) == {trial: f"first/{trial}" for trial in range(3)}
    assert watcher.said == ["3 trials answered from first, not trained again"]


def _helped(project: Path, monkeypatch: pytest.MonkeyPatch, layout: str) -> tuple[Path, str]:
    """A trainable that imports a helper package from elsewhere: its file, and the sweep's."""
    elsewhere = project.parent / f"{project.name}_elsewhere"
    home = elsewhere / ("src" if layout == "editable" else "")
    package = home / f"helper_{layout}"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from .parts import SHIFT\n")
    (package / "parts.py").write_text("SHIFT = 0.25\n")
    # as pip writes it: a file of paths, which the interpreter has read at its start
    if layout == "editable":
        info = elsewhere / "site" / "helper_editable-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "RECORD").write_text("__editable__.helper.pth,sha256=x,9\n")
        (info / "direct_url.json").write_text(
            '{"url": "file:///x", "dir_info": {"editable": true}}'
        )
        monkeypatch.syspath_prepend(elsewhere / "site")
    monkeypatch.syspath_prepend(home)
    name = f"user_of_{layout}"
    (project / f"{name}.py").write_text(f"from {package.name} import SHIFT\n{TRAINABLE}")
    return package / "parts.py", FILE.replace("curve:Curve", f"{name}:Curve")


@pytest.mark.parametrize("layout", ["pythonpath", "editable"])
def test_a_helper_package_elsewhere_is_code_too(
    project: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    parts, text = _helped(project, monkeypatch, layout)
    run(project, text)
    same, other = Watcher(), Watcher()
    run(project, text.replace("curves", "second"), same, memo=True)
    parts.write_text("SHIFT = 100.25\n")
    run(project, text.replace("curves", "third"), other, memo=True)
    assert answered(same) == {trial: f"curves/{trial}" for trial in range(3)}
    assert set(answered(other).values()) == {None}


def test_another_version_of_an_installed_package_is_other_code(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    site = tmp_path_factory.mktemp("site")
    (site / "layers_of_others.py").write_text("RATE = 1\n")
    info = site / "Layers_Of_Others-1.0.dist-info"
    info.mkdir()
    (info / "RECORD").write_text("layers_of_others.py,sha256=x,9\n")
    monkeypatch.syspath_prepend(site)
    (project / "user_of_layers.py").write_text(f"import layers_of_others\n{TRAINABLE}")
    text = FILE.replace("curve:Curve", "user_of_layers:Curve")
    run(project, text)
    watcher = Watcher()
    info.rename(site / "Layers_Of_Others-1.1.dist-info")
    run(project, text.replace("curves", "second"), watcher, memo=True)
    assert set(answered(watcher).values()) == {None}


def test_without_a_fingerprint_of_the_data_nothing_is_answered_and_that_is_said_once(
    project: Path,
) -> None:
    (project / "blind.py").write_text(TRAINABLE.replace(', data="none"', ""))
    text = FILE.replace("curve:Curve", "blind:Curve")
    run(project, text)
    watcher = Watcher()
    run(project, text.replace("curves", "second"), watcher, memo=True)
    assert set(answered(watcher).values()) == {None}
    assert watcher.said == [
        "trials of curves are not reused: their training data is unknown; "
        "set Facts(data=...) in a trainable, or train.data = ... for a function train"
    ]


def test_what_does_not_train_the_same_twice_answers_nothing_and_is_marked(project: Path) -> None:
    why = "net.py:3 draws without a seed"
    known = f', data="none", strategy="some", reproducible=False, numerics={{"differs": "{why}"}}'
    (project / "restless.py").write_text(TRAINABLE.replace(', data="none"', known))
    text = FILE.replace("curve:Curve", "restless:Curve")
    outcome = run(project, text)
    assert sweep.load(outcome.folder.path).trials["reproducible"].tolist() == [False] * 3
    watcher = Watcher()
    run(project, text.replace("curves", "second"), watcher, memo=True)
    assert set(answered(watcher).values()) == {None}
    assert watcher.said == [
        f"trials of curves are not reused: their results are not reproducible: {why}"
    ]


def test_code_in_doubt_answers_nothing_and_that_is_said_once(project: Path) -> None:
    computed = 'import importlib\nimportlib.import_module("js" + "on")\n'
    (project / "doubtful.py").write_text(computed + TRAINABLE)
    text = FILE.replace("curve:Curve", "doubtful:Curve")
    run(project, text)
    run(project, text.replace("curves", "other"))
    watcher = Watcher()
    run(project, text.replace("curves", "second"), watcher, memo=True)
    assert set(answered(watcher).values()) == {None}
    assert watcher.said == [
        "no results of earlier sweeps are reused: not all of the code is known "
        f"({project / 'doubtful.py'}:2: imports a module whose name is computed)"
    ]


def test_the_best_checkpoint_is_taken_over_beside_the_last(project: Path) -> None:
    rungs = "early_terminate: {type: asha, min_iter: 1, eta: 2}\ncheckpoint: {every_s: 0}\n"
    text = FILE.replace("[3, 1, 2]", "[1]").replace("goal: minimize", "goal: maximize") + rungs
    kept = [sorted(path.name for path in run(project, text).folder.checkpoints.rglob("epoch-*"))]
    second = run(project, text.replace("curves", "second"), memo=True)
    kept.append(sorted(path.name for path in second.folder.checkpoints.rglob("epoch-*")))
    assert kept == [["epoch-000001", "epoch-000004"]] * 2
    reports = checkpoints.read_verified_manifest(
        second.folder.checkpoints / "00000" / "epoch-000001"
    ).reports
    assert [report.memo for report in reports] == ["curves/0"]


def test_a_trial_that_its_own_checkpoint_completes_keeps_it_and_needs_no_answer(
    project: Path,
) -> None:
    run(project)
    outcome = run(project, SECOND)
    lines = outcome.folder.log.read_bytes().splitlines(keepends=True)
    (cut,) = (at for at, line in enumerate(lines) if b'"trial":1,"epoch":4' in line)
    # killed when its last epoch was in the checkpoint alone
    outcome.folder.log.write_bytes(b"".join(lines[:cut]))
    shutil.rmtree(outcome.folder.checkpoints / "00002")
    # as if it had begun with answers
    outcome.folder.write_info(outcome.folder.read_info().changed(memo=True))
    resume(project, name="second")
    trials = sweep.load(outcome.folder.path).trials
    assert trials["memo"].isna().tolist() == [True, True, False]
    assert [(outcome.folder.path / path).is_dir() for path in trials["checkpoint"]] == [True] * 3
