"""Whole sweeps with a baseline and fresh seeds, without Ray: ended by a limit, killed, tested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from curves import Watcher, ends, resume, run

from sweep import analysis
from sweep.analysis import confirmation, ranking, verdict
from sweep.errors import RefusedError
from sweep.events import Event, ModelTested, Role, TrialStarted
from sweep.render.plans import describe_confirming
from sweep.render.status import Frame, picture
from sweep.runner import earlier_times, resuming
from sweep.runner.confirming import plan_confirmation
from sweep.runner.steering import Change, make_request
from sweep.runner.steering_requests import leave_request
from sweep.spec import parse_spec
from sweep.store import log as store_log
from sweep.store.folder import ResultsFolder
from sweep.store.ledger import Ledger
from sweep.ui.following import FollowedSweep

TRAINABLE = '''
import json, os, random
from pathlib import Path
from sweep.contract import EpochReported, Facts

class Noisy:
    """The objective is `a` and noise of the seed; its test data may be read once the file ``allowed`` is there."""
    def begin(self, assignment):
        self.given, self.done = assignment, 0
    def train(self, report):
        while self.done < self.given.epochs:
            self.done += 1
            noise = random.Random(f"{self.given.seed} {self.given.params['a']}").gauss(0, 0.5)
            metrics = {"score": self.given.params["a"] + noise - self.done}
            if os.environ.get("DIE") == f"{self.given.trial}.{self.done}":
                os._exit(9)
            if not report(EpochReported(trial=0, epoch=self.done, metrics=metrics, time=0.0, time_s=0.1)):
                return
    def save(self, folder):
        (folder / "done.json").write_text(json.dumps(self.done))
    def restore(self, folder):
        self.done = json.loads((folder / "done.json").read_text())
        return self.done
    def facts(self):
        return Facts(node="here", data="none")
    def test(self):
        with Path("tested").open("a") as file:
            print(self.given.trial, file=file)
        assert self.done == self.given.epochs
        return {"score": self.given.params["a"] + 0.25}
'''
FILE = """
name: noisy
trainable: noisy:Noisy
method: grid
metric: {name: score, goal: minimize}
parameters: {a: {values: [3, 1.2, 1, 2, 1.1]}}
epochs: 3
baseline: {a: 4}
confirm: {seeds: 6, finalists: 3, budget: null}
"""


@pytest.fixture
def noisy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "noisy.py").write_text(TRAINABLE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(folder: ResultsFolder) -> confirmation.Confirmation:
    confirmed = confirmation.of_sweep(analysis.read_sweep(folder))
    assert confirmed is not None
    return confirmed


def test_finalists_are_raced_tested_and_the_answer_names_the_luck(noisy: Path) -> None:
    watcher = Watcher()
    folder = run(noisy, FILE, watcher).folder
    confirmed = found(folder)
    assert any(said.startswith("confirm: ") for said in watcher.said)
    assert len(confirmed.rows) == 4
    assert confirmed.baseline is not None
    assert (confirmed.baseline.verdict, confirmed.baseline.place) == ("worse", 4)
    assert confirmed.best.selected != confirmed.best.mean
    left = [row for row in confirmed.rows if not row.reason or row.is_baseline]
    assert [list(row.tested) for row in left] == [["score"]] * len(left)
    assert not any(row.tested for row in confirmed.rows if row not in left)
    tested = [event.trial for event in store_log.read(folder.log) if isinstance(event, ModelTested)]
    assert sorted(tested) == sorted(trial for row in left for trial in row.trials)
    assert (noisy / "tested").read_text().split() == [str(trial) for trial in tested]
    ranked = ranking.rank([analysis.read_sweep(folder)])
    assert [row.params for row in ranked.rows[:4]] == [row.params for row in confirmed.rows]
    assert all(row.undecided == "no finalist" for row in ranked.rows[4:])
    told = verdict.summarize_ranking(ranked)
    assert told.startswith("The best configuration beats the baseline by ")
    assert "on the test data" in told


def test_a_finalist_whose_better_seeds_alone_are_kept_is_not_tested(
    noisy: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = run(noisy, FILE + "checkpoint: {trials: 1}\n").folder
    assert not any(row.tested for row in found(folder).rows)
    assert not (noisy / "tested").exists()
    assert "of a finalist, of which 5 kept no checkpoint" in capfd.readouterr().err
    assert "test data" not in verdict.summarize_ranking(ranking.rank([analysis.read_sweep(folder)]))


def test_the_test_is_read_once_however_often_the_sweep_goes_on(noisy: Path) -> None:
    folder = run(noisy, FILE).folder
    before = (noisy / "tested").read_text()
    resume(noisy, name="noisy")
    assert (noisy / "tested").read_text() == before
    assert found(folder).over


def test_a_limit_that_ends_the_search_leaves_the_fresh_seeds_to_come(noisy: Path) -> None:
    outcome = run(noisy, FILE + "budget: {epochs: 9}\n")
    started = analysis.read_sweep(outcome.folder).trials
    assert outcome.stopped == "budget of 9 epochs"
    assert {one.role for one in started} == {Role.BASELINE, Role.SEARCH, Role.CONFIRM}
    assert len([one for one in started if one.role is Role.SEARCH]) < 5
    assert found(outcome.folder).over


PROGRAM = """
import sys; sys.path.insert(0, {here!r})
from pathlib import Path
from curves import Watcher, run
from test_confirming import FILE
from sweep.runner import resuming, session
from sweep.inspection import inspect
folder = Path("results/noisy")
if folder.exists():
    reopened = resuming.reopen(Path("results"), "noisy")
    source, how = inspect("noisy:Noisy", (Path.cwd(),)), session.Options(inline=True)
    session.resume_sweep(reopened, source, how, lambda folder, terminal: Watcher())
else:
    run(Path.cwd(), FILE)
"""


def test_killed_in_the_race_it_goes_on_as_if_nothing_had_happened(noisy: Path) -> None:
    here = str(Path(__file__).parent)
    program = [sys.executable, "-c", PROGRAM.format(here=here)]
    for trial in ("0.2", "4.1", "8.2", "13.3", None):  # killed there, and gone on with
        environment = {**os.environ, **({"DIE": trial} if trial else {})}
        code = subprocess.run(program, env=environment, capture_output=True, check=False).returncode
        assert code == (9 if trial else 0)
    again = found(ResultsFolder(noisy / "results" / "noisy"))
    (noisy / "results").rename(noisy / "first")
    whole = found(run(noisy, FILE).folder)
    assert [replace(row, trials=()) for row in again.rows] == [
        replace(row, trials=()) for row in whole.rows
    ]
    assert json.dumps(again.over) == json.dumps(whole.over)


def test_sentences_of_a_baseline_that_nothing_beats(noisy: Path) -> None:
    folder = run(noisy, FILE.replace("baseline: {a: 4}", "baseline: {a: -4}")).folder
    confirmed = found(folder)
    assert confirmed.best.is_baseline
    told = verdict.summarize_confirmation(confirmed, "it")
    assert told[0].startswith("Nothing that the search found beats the baseline: the nearest is ")


def test_a_race_is_the_same_for_the_session_and_for_who_reads_it_also_of_a_repaired_log(
    noisy: Path,
) -> None:
    folder = run(noisy, FILE).folder
    lines = folder.log.read_text().splitlines(keepends=True)
    lost = next(
        line
        for line in lines
        if line.startswith('{"event":"epoch_reported"') and '"epoch":1,' in line
    )
    folder.log.write_text("".join(line for line in lines if line != lost))  # what a repair leaves
    ledger, spec = Ledger(), parse_spec(folder.read_info().spec_text, "f.yaml")
    for event in store_log.read(folder.log):
        ledger.observe(event)
    read = [
        confirmation.make_run(trial, spec.objectives[0])
        for trial in analysis.read_sweep(folder).trials
    ]
    assert confirmation.list_runs(ledger, spec.objectives[0]) == sorted(
        read, key=lambda one: one.trial
    )


PLAIN = FILE.replace("baseline: {a: 4}\n", "").replace(
    "confirm: {seeds: 6, finalists: 3, budget: null}\n", ""
)
"""A search of 15 epochs that is confirmed by a command."""


def reopen(*given: object) -> resuming.ResumableSweep:
    return resuming.reopen_to_confirm(Path("results"), "noisy", *given)  # type: ignore[arg-type]  # as the command does


@pytest.mark.usefixtures("noisy")
def test_a_confirmation_says_before_it_begins_what_it_takes(noisy: Path) -> None:
    run(noisy, PLAIN)
    planned = plan_confirmation(reopen(4, 3, "none"))
    assert (planned.finalists, planned.seeds, planned.trials, planned.epochs) == (3, 4, 12, 36)
    assert (planned.budget, planned.larger, planned.over) == ("", "", "")
    text = describe_confirming(planned, "noisy")
    assert text.startswith("noisy: at most 12 trainings with fresh seeds, 36 epochs, about ")
    assert text.endswith(": 3 finalists, 4 seeds each")
    assert planned.hours is not None
    timed = 36 * 0.1 / 3600
    assert timed / 3 <= planned.hours <= timed


def test_the_folds_of_a_fresh_seed_train_at_once(
    noisy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(noisy, PLAIN + "folds: 2\n")
    hours = {}
    for room in (1, 4, 100):
        monkeypatch.setattr(
            earlier_times, "count_concurrent_trials", lambda *given, room=room: room
        )
        planned = plan_confirmation(reopen(4, 3, "none"))
        assert (planned.finalists, planned.trials) == (3, 24)
        hours[room] = planned.hours
    assert hours[1] == pytest.approx(4 * hours[4])
    assert hours[1] == pytest.approx(6 * hours[100])  # 3 finalists on 2 folds


def test_a_budget_that_allows_too_few_seeds_says_so_first(noisy: Path) -> None:
    run(noisy, PLAIN)
    text = describe_confirming(plan_confirmation(reopen(4, 3, "40%")), "noisy")
    assert text.endswith(
        "2 finalists, 1 seed each, for 40% of the search allows no more; that is too few to tell them apart, which "
        "--budget 80% would allow"
    )


def test_a_budget_that_is_spent_is_refused_with_the_way_out(noisy: Path) -> None:
    run(noisy, PLAIN)
    told = (
        "noisy: confirm.budget: 20% of the search's 15 epochs is 3, too few: one fresh seed for each of 2 finalists "
        "takes 6; allow more: python -m sweep confirm noisy --budget 80%, or --budget none; or search on: "
        "python -m sweep resume noisy --run-cap N"
    )
    with pytest.raises(RefusedError) as refused:
        plan_confirmation(reopen(4, 3, "20%"))
    assert str(refused.value) == told
    plan_confirmation(reopen(4, 3, "80%"))


def test_a_search_of_which_no_trial_has_completed_is_not_confirmed(noisy: Path) -> None:
    """It would be called finished, although most of its trials have not begun."""
    (noisy / "noisy.py").write_text(TRAINABLE.replace("self.done += 1", "raise ValueError"))
    run(noisy, PLAIN)
    with pytest.raises(RefusedError, match="noisy: no trial has completed"):
        plan_confirmation(reopen(4, 3, "none"))


def test_a_price_of_gpu_hours_is_shown(noisy: Path) -> None:
    run(noisy, PLAIN)
    sweep = reopen(4, 3, "none")
    resources = parse_spec(
        f"{PLAIN}resources: {{gpus: 2, price_per_gpu_hour: 3600}}", "noisy.yaml"
    ).resources
    sweep = replace(sweep, spec=replace(sweep.spec, resources=resources), simulated_gpus=2)
    planned = plan_confirmation(sweep)
    # and what a trial takes beside epochs
    assert planned.cost == pytest.approx((36 * 0.1 * 2, 36 * 0.1 * 2), rel=0.1)
    assert ", about 7." in describe_confirming(planned, "noisy")


def test_a_confirmation_that_is_decided_has_nothing_to_train(noisy: Path) -> None:
    run(noisy, FILE)
    planned = plan_confirmation(reopen())
    assert planned.trials == 0
    assert describe_confirming(planned, "noisy") == f"noisy: nothing to train: {planned.over}"


@pytest.mark.parametrize("seeds", [2, 6])
def test_the_live_view_the_list_and_the_answer_name_the_same_best(noisy: Path, seeds: int) -> None:
    folder = run(noisy, FILE.replace("seeds: 6", f"seeds: {seeds}")).folder
    followed = FollowedSweep(folder)
    while followed.read_on():
        pass
    shown = followed.describe().best
    standing = followed.standing
    ranked = ranking.rank([analysis.read_sweep(folder)])
    summary = verdict.summarize_sweep(folder)
    assert shown is not None
    assert standing.searched_best is not None
    assert shown.value == pytest.approx(ranked.best[0].scores[0].mean)
    assert shown.value == pytest.approx(summary.best)
    assert set(shown.trials) <= {trial.trial for trial in ranked.best[0].trials}
    assert len(shown.trials) == found(folder).best.seeds
    assert shown.value != standing.searched_best.value
    assert "with fresh seeds" in "".join(map(str, picture(standing, 0.0, Frame())))


def test_what_fails_again_is_not_tried_once_more_by_the_confirmation(noisy: Path) -> None:
    failing = TRAINABLE.replace("self.done += 1", "assert self.given.trial != 1; self.done += 1")
    (noisy / "noisy.py").write_text(failing)
    file = FILE.replace("baseline: {a: 4}\n", "") + "budget: {epochs: 6}\n"
    folder = run(noisy, file).folder
    assert ends(folder)[1] == "failed"
    watcher = Watcher()
    resume(noisy, "budget.epochs=9", name="noisy", retry_failed=True, watcher=watcher)
    assert ends(folder)[1] == "failed"
    assert [said for said in watcher.said if "tried again" in said] == [
        "1 failed trial is tried again"
    ]
    assert found(folder).over


class _LowersRepeats(Watcher):
    """Asks for fewer repeats once the search has begun."""

    def on(self, event: Event) -> None:
        super().on(event)
        if isinstance(event, TrialStarted) and event.trial == 4:
            request = make_request(Change(("repeats=1",)))
            leave_request(ResultsFolder(Path("results") / "noisy"), request)


def test_the_test_goes_by_what_was_changed_while_the_sweep_ran(noisy: Path) -> None:
    file = FILE.replace("baseline: {a: 4}\n", "") + "repeats: 2\n"
    folder = run(noisy, file, _LowersRepeats()).folder
    confirmed = found(folder)
    assert confirmed.over
    left = [row for row in confirmed.rows if not row.reason]
    assert [list(row.tested) for row in left] == [["score"]] * len(left)
