import math
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.analysis import read_sweep
from sweep.analysis.ranking import OTHER_FOLDS, pareto_fronts, rank
from sweep.analysis.sweep_rows import Sweep, Trial
from sweep.errors import InputError
from sweep.events import Status, TrialStarted
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log
from sweep.store.sweep_info import SweepInfo
from sweep.store.tables import History

DONE, PRUNED, RUNNING = Status.COMPLETED, Status.PRUNED, Status.RUNNING


def acc(*values: float) -> list[dict[str, float]]:
    return [{"acc": value} for value in values]


def order(folder) -> list[int]:
    return [row.trials[0].trial for row in rank([read_sweep(folder)]).rows]


def test_completed_come_first_and_an_early_stop_is_never_taken_for_a_finish(sweep_of):
    runs = [
        ({"x": 0}, Status.FAILED, []),
        ({"x": 1}, PRUNED, acc(0.99)),
        ({"x": 2}, DONE, acc(0.9, 0.5, 0.6)),
        ({"x": 3}, Status.DIVERGED, acc(0.9, math.nan)),
        ({"x": 4}, PRUNED, acc(0.1, 0.4)),
        ({"x": 5}, RUNNING, acc(1.0, 1.0)),
        ({"x": 6}, Status.OOM, []),
        ({"x": 7}, PRUNED, acc(0.1, 0.5)),
        ({"x": 8}, DONE, acc(0.1, 0.1, 0.8)),
        ({"x": 9}, DONE, acc(0.1, 0.1, math.inf)),
    ]
    folder = sweep_of(runs)
    with folder.lock():  # it runs
        assert order(folder) == [8, 2, 9, 5, 7, 4, 1, 3, 6, 0]
        assert [row.rank for row in rank([read_sweep(folder)]).rows] == list(range(1, 11))
    assert order(folder) == [8, 2, 9, 7, 4, 1, 5, 3, 6, 0]


def test_a_running_trial_precedes_pruned_ones_and_has_no_rank_before_its_first_score(sweep_of):
    runs = [
        ({"x": 0}, PRUNED, acc(0.1, 0.1)),
        ({"x": 1}, RUNNING, acc(0.97)),
        ({"x": 2}, RUNNING, []),
    ]
    folder = sweep_of(runs)
    with folder.lock():  # it runs
        rows = rank([read_sweep(folder)]).rows
    assert [(row.trials[0].trial, row.has_rank) for row in rows] == [
        (1, True),
        (0, True),
        (2, False),
    ]


def test_a_running_trial_is_interrupted_if_no_process_runs_the_sweep(sweep_of):
    (row,) = rank([read_sweep(sweep_of([({"x": 1}, RUNNING, acc(0.97))]))]).rows
    assert (row.status, row.trials[0].status_reason) == (
        Status.INTERRUPTED,
        "the sweep's process was killed",
    )


def test_minimize_turns_the_order(sweep_of):
    runs = [({"x": x}, DONE, acc(value)) for x, value in enumerate((0.3, 0.1, 0.2))]
    assert order(sweep_of(runs, "low", objectives=(("acc", "minimize"),))) == [1, 2, 0]
    assert order(sweep_of(runs, "high")) == [0, 2, 1]
    assert order(sweep_of(runs, "none", objectives=())) == [0, 1, 2]


def test_repeats_are_one_configuration_with_all_its_scores(sweep_of):
    runs = [({"x": 1, "y": [2]}, DONE, acc(value)) for value in (0.5, 0.6, 0.7)]
    runs += [
        ({"x": 2, "y": [2]}, Status.DIVERGED, acc(0.99)),
        ({"x": 2, "y": [2]}, DONE, acc(0.55)),
    ]
    ranking = rank([read_sweep(sweep_of(runs))])
    first, second = ranking.rows
    assert ranking.varying == ("x",)
    (score,) = first.scores
    assert (first.params, score.values) == ({"x": 1, "y": [2]}, (0.5, 0.6, 0.7))
    assert (score.mean, score.std) == (pytest.approx(0.6), pytest.approx(0.1))
    # Student's t for two degrees of freedom at 97.5 %: 4.3027
    assert score.interval == pytest.approx(
        (0.6 - 4.3027 * 0.1 / 3**0.5, 0.6 + 4.3027 * 0.1 / 3**0.5), abs=1e-5
    )
    assert (second.status, second.completed) == (Status.DIVERGED, 0.5)
    assert (second.scores[0].values, second.scores[0].interval) == ((0.55,), None)
    assert [trial.trial for trial in second.trials] == [4, 3]


@pytest.mark.parametrize(
    "other", [Status.DIVERGED, Status.FAILED, Status.OOM, PRUNED, RUNNING, None]
)
def test_one_lucky_repeat_recommends_nothing(sweep_of, other):
    """None: the other repeats have not begun."""
    runs = [({"x": 1}, DONE, acc(0.9))]
    runs += [({"x": 1}, other, acc(0.9))] * 2 if other else []
    runs += [({"x": 2}, DONE, acc(0.8))] * 3
    runs += [
        ({"x": 3}, DONE, acc(0.95)),
        ({"x": 3}, DONE, acc(0.95)),
        ({"x": 3}, Status.DIVERGED, acc(0.95)),
    ]
    folder = sweep_of(runs)
    folder.write_info(folder.read_info().changed(spec={"repeats": 3}))
    with folder.lock():  # it runs
        ranking = rank([read_sweep(folder)])
    assert [row.params["x"] for row in ranking.rows] == [2, 3, 1]
    assert [row.params["x"] for row in ranking.best] == [2]
    assert [round(3 * row.completed) for row in ranking.rows] == [3, 2, 1]
    assert ranking.rows[2].status is (other or Status.INTERRUPTED)


def test_where_no_configuration_completed_all_repeats_the_best_is_of_those_that_completed_most(
    sweep_of,
):
    runs = [({"x": x}, status, acc(0.5)) for x in (1, 2) for status in (DONE, Status.FAILED)]
    runs += [({"x": 2}, DONE, acc(0.4))]
    (best,) = rank([read_sweep(sweep_of(runs))]).best
    assert (best.params["x"], best.scores[0].values) == (2, (0.5, 0.4))


def test_nothing_is_best_before_a_trial_completed(sweep_of):
    assert rank([read_sweep(sweep_of([({"x": 1}, PRUNED, acc(0.5))]))]).best == ()


def dominates(one, other) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True)) and one != other


@given(st.lists(st.tuples(*[st.integers(0, 5)] * 3), max_size=30))
def test_fronts_peel_off_one_after_the_other(points):
    numbers = pareto_fronts(points)
    left = list(zip(points, numbers, strict=True))
    number = 0
    while left:
        number += 1
        front = [one for one in left if not any(dominates(other, one[0]) for other, _ in left)]
        assert {told for _, told in front} == {number}
        left = [one for one in left if one not in front]
    assert max(numbers, default=0) == number


def test_several_objectives_rank_by_front_then_by_the_first(sweep_of):
    values = [(0.9, 5.0), (0.8, 1.0), (0.7, 2.0), (0.95, 9.0)]
    runs = [({"x": x}, DONE, [{"acc": a, "cost": c}]) for x, (a, c) in enumerate(values)]
    runs += [({"x": 9}, PRUNED, [{"acc": 1.0, "cost": 0.0}]), ({"x": 8}, DONE, [{"acc": 1.0}])]
    folder = sweep_of(runs, objectives=(("acc", "maximize"), ("cost", "minimize")))
    rows = rank([read_sweep(folder)]).rows
    assert [(row.trials[0].trial, row.front) for row in rows[:4]] == [
        (3, 1),
        (0, 1),
        (1, 1),
        (2, 2),
    ]
    assert [row.front for row in rows[4:]] == [None, None]


def test_sweeps_are_ranked_together_but_configurations_kept_apart(sweep_of):
    first = sweep_of([({"x": 1}, DONE, acc(0.5))], "first")
    second = sweep_of([({"x": 1}, DONE, acc(0.6))], "second")
    rows = rank([read_sweep(first), read_sweep(second)]).rows
    assert [(row.sweep, row.scores[0].values) for row in rows] == [
        ("second", (0.6,)),
        ("first", (0.5,)),
    ]


def cross_validated(
    name: str, folds: int | None, repeats: int, *, objectives=(("loss", "minimize"),), base=0.0
) -> Sweep:
    """Return a sweep of two configurations, the second of which has higher losses for all seeds and folds."""
    draws = random.Random(3)
    trials = []
    for x in range(2):
        for repeat in range(repeats):
            for fold in range(folds) if folds else [None]:
                loss = base + 0.02 * x + draws.gauss(0, 0.01)
                trials.append(
                    Trial(
                        sweep=name,
                        trial=len(trials),
                        trial_id=str(len(trials)),
                        repeat=repeat,
                        seed=repeat,
                        fold=fold,
                        status=DONE,
                        status_reason="",
                        params={"x": x},
                        metrics={metric: loss for metric, _ in objectives},
                        best={},
                        epochs=1,
                        duration_s=1.0,
                        checkpoint=None,
                    )
                )
    path = Path("results") / name
    spec = {"folds": folds, "repeats": repeats}
    goals = [{"name": metric, "goal": goal} for metric, goal in objectives]
    info = SweepInfo(path / "sweep.json", {"name": name, "objectives": goals, "spec": spec})
    return Sweep(ResultsFolder(path), name, info, info.objectives, tuple(trials), History())


def compared(sweep: Sweep, *others: Sweep) -> list[tuple]:
    """Return the verdicts on the configurations of a sweep, beside others."""
    found = []
    for row in rank([sweep, *others]).rows:
        if row.sweep == sweep.name:
            found.append((row.verdict, row.undecided, row.p, row.difference_low))
    return found


@pytest.mark.parametrize(
    "objectives", [[("loss", "minimize")], [("loss", "minimize"), ("b", "minimize")]]
)
@pytest.mark.parametrize(("folds", "others"), [(None, 5), (3, 10), (10, 3), (6, None)])
def test_a_sweep_with_other_folds_changes_no_comparison(objectives, folds, others):
    sweep = cross_validated("a", folds, 9, objectives=objectives)
    other = cross_validated("b", others, 3, objectives=objectives, base=1.0)
    alone, beside = rank([sweep]), rank([sweep, other])
    assert compared(sweep, other) == compared(sweep)
    assert beside.method == alone.method
    assert {row.undecided for row in beside.rows if row.sweep == "b"} == {OTHER_FOLDS}
    assert "in the number of folds" in beside.other_code


def test_equal_numbers_of_unlike_folds_are_no_pairs():
    near = cross_validated("near", 10, 1, base=0.01)
    (_, second), (third, fourth) = (
        [row for row in rank([cross_validated("a", 6, 1), near]).rows if row.sweep == name]
        for name in ("a", "near")
    )
    assert second.difference is not None
    assert third.difference is fourth.difference is None


def test_sweeps_of_different_objectives_have_no_common_order(sweep_of):
    first = sweep_of([], "first")
    second = sweep_of([], "second", objectives=(("loss", "minimize"),))
    message = r"second: its objective is minimize loss, but that of .*first is maximize acc; compare sweeps"
    with pytest.raises(InputError, match=message):
        rank([read_sweep(first), read_sweep(second)])


@pytest.mark.parametrize("behind", [False, True])
def test_one_training_each_is_compared_without_heavy_libraries(sweep_of, behind: bool) -> None:
    """Each takes as long to import as ten thousand trials to rank."""
    runs = [({"a": a}, Status.COMPLETED, [{"acc": a / 9, "loss": 1.0}] * 3) for a in range(9)]
    folder = sweep_of(runs)
    heavy = {"scipy", "pandas", "pydantic", "ray"}
    if behind:  # its tables lack the last trial, as where it was killed
        with Log(folder.log) as log:
            log.append(
                [TrialStarted(trial=9, trial_id="t9", params={"a": 9}, seed=0, repeat=0, time=99.0)]
            )
    else:
        heavy |= {"pyarrow.compute"}
    code = (
        "import sys\nfrom sweep.cli import main\n"
        f"main(['compare', 'first', '--results', {str(folder.path.parent)!r}], standalone_mode=False)\n"
        f"heavy = {heavy!r} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
