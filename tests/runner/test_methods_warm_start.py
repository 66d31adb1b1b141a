"""Earlier sweeps: found or named as missing, and the same trials of them in every session."""

from __future__ import annotations

from pathlib import Path

import pytest
from curves import FILE, Watcher, resume, run

import sweep
from sweep.errors import InputError, StoreError
from sweep.events import TrialStarted
from sweep.runner import methods, resuming
from sweep.runner.methods import build_searcher
from sweep.store import log as store_log

TPE = FILE.replace("method: grid", "method: tpe").replace(
    "{values: [3, 1, 2]}", "{min: 0.5, max: 4.0}"
)
EARLIER = TPE.replace("curves", "earlier") + "run_cap: 12\n"
LATER = TPE + "warm_start: [earlier]\nrun_cap: 4\n"


def suggested(log: Path) -> list[object]:
    return [event.params["a"] for event in store_log.read(log) if isinstance(event, TrialStarted)]


def test_the_search_begins_where_the_earlier_sweep_ended(project: Path) -> None:
    run(project, EARLIER)
    watcher = Watcher()
    warm = run(project, LATER, watcher)
    cold = run(project, TPE.replace("curves", "cold") + "run_cap: 4\n")
    assert watcher.said == [
        f"warm start: 12 of 12 trials of {(project / 'results/earlier').resolve()} fit and count"
    ]
    assert suggested(warm.folder.log) != suggested(cold.folder.log)
    trials = sweep.load(warm.folder.path).trials
    assert trials["param.a"].mean() < 1.5  # best at 0.5


def test_an_earlier_sweep_that_goes_on_changes_nothing(project: Path) -> None:
    run(project, EARLIER)
    whole = run(project, LATER.replace("curves", "whole"))
    cut = run(project, LATER.replace("run_cap: 4", "run_cap: 2"))
    reopened = resuming.reopen(project / "results", "earlier", ["run_cap=20"])
    assert reopened.spec.run_cap == 20
    with (project / "results/earlier/log.jsonl").open("ab") as log:
        lines = (project / "results/earlier/log.jsonl").read_bytes().splitlines(keepends=True)
        log.writelines(
            line.replace(b'"trial":3', b'"trial":99') for line in lines if b'"trial":3,' in line
        )
    resume(project, "run_cap=4")
    assert suggested(cut.folder.log) == suggested(whole.folder.log)


def test_an_earlier_sweep_that_was_moved_along_is_found(project: Path) -> None:
    run(project, EARLIER)
    whole = run(project, LATER.replace("curves", "whole"))
    run(project, LATER.replace("run_cap: 4", "run_cap: 2"))
    expected = suggested(whole.folder.log)
    elsewhere = project / "elsewhere"
    elsewhere.mkdir()
    (project / "results").rename(elsewhere / "results")
    moved = resume(elsewhere, "run_cap=4")
    assert suggested(moved.folder.log) == expected
    (elsewhere / "results" / "earlier" / "log.jsonl").unlink()
    with pytest.raises(StoreError, match="is gone, which this sweep was started from"):
        resume(elsewhere, "run_cap=5")


def test_a_range_that_changed_takes_what_fits(project: Path) -> None:
    earlier = run(project, EARLIER)
    within = sum(1.0 <= float(a) <= 2.0 for a in suggested(earlier.folder.log))
    watcher = Watcher()
    run(project, LATER.replace("min: 0.5, max: 4.0", "min: 1.0, max: 2.0"), watcher)
    assert watcher.said[0].startswith(f"warm start: {within} of 12 trials of")
    assert 0 < within < 12


def test_missing_sweeps_are_all_named(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        methods.record_warm_start(["nosuch", "results/neither"], tmp_path)
    assert [problem.where for problem in caught.value.problems] == ["warm_start.0", "warm_start.1"]


def test_the_same_sweep_twice_is_a_mistake_since_its_trials_would_count_twice(
    project: Path,
) -> None:
    earlier = run(project, EARLIER.replace("run_cap: 12", "run_cap: 2")).folder
    (project / "results" / "link").symlink_to(earlier.path, target_is_directory=True)
    with pytest.raises(InputError) as caught:
        methods.record_warm_start(
            ["earlier", str(earlier.path), "earlier", "link"], project / "results"
        )
    assert [(problem.where, problem.what) for problem in caught.value.problems] == [
        ("warm_start.1", f"{earlier.path} is the same sweep as earlier"),
        ("warm_start.2", "earlier is given twice"),
        ("warm_start.3", "link is the same sweep as earlier"),
    ]


def test_nothing_is_made_for_a_sweep_with_a_missing_one(project: Path) -> None:
    with pytest.raises(InputError, match=r"warm_start\.0: nosuch: no such sweep"):
        run(project, TPE + "warm_start: [nosuch]\nrun_cap: 2\n")
    assert not (project / "results" / "curves").exists()


def test_nothing_was_taken_nothing_is_learned() -> None:
    from sweep.spec import parse_spec

    spec = parse_spec(TPE + "run_cap: 2\n", "f.yaml")
    said: list[str] = []
    methods.learn_warm_start(
        build_searcher(spec.method, spec.space, spec.objectives, 0),
        [],
        said.append,
        spec,
        Path("results"),
    )
    assert said == []
