import pytest

from sweep.analysis import ranking, verdict
from sweep.analysis.sweep_rows import first_failure, read_sweep
from sweep.events import Status
from sweep.render.tables import ranking_grid


@pytest.mark.parametrize(
    ("statuses", "text"),
    [
        ([], ""),
        ([Status.PRUNED, Status.PRUNED], ": trial 0 pruned, "),
        ([Status.PRUNED, Status.FAILED], ": trial 1 failed, "),
    ],
)
def test_a_failed_trial_says_why_none_has_completed(sweep_of, statuses, text):
    runs = [({"lr": 0.1 + at}, status, [{"acc": 0.5}]) for at, status in enumerate(statuses)]
    found = first_failure(read_sweep(sweep_of(runs)))
    assert found[: len(text)] == text
    assert bool(found) == bool(text)


def test_rows_hold_what_the_log_says(sweep_of):
    params = {"lr": 0.1, "layers": [8, 4]}
    folder = sweep_of(
        [(params, Status.COMPLETED, [{"acc": 0.5, "val_loss": 2.0}, {"acc": 0.4}])], ended=None
    )
    sweep = read_sweep(folder)
    (trial,) = sweep.trials
    assert sweep.objectives == (("acc", "maximize"),)
    assert sweep.history.ended is None
    assert (trial.params, trial.metrics, trial.best) == (
        params,
        {"acc": 0.4, "val_loss": 2.0},
        {"acc": 0.5, "val_loss": 2.0},
    )
    assert (trial.status, trial.epochs, trial.duration_s) == (Status.COMPLETED, 2, 9.0)
    assert (trial.sweep, trial.trial_id, trial.checkpoint) == ("first", "t0", None)


@pytest.mark.parametrize("ended", ["finished", None])
def test_a_parameter_that_is_null_is_there_and_one_that_is_absent_is_not(sweep_of, ended):
    """Read from the tables, and from the log of a sweep whose driver was killed."""
    each = [
        {"kind": "a", "norm": None, "units": 8},
        {"kind": "b", "units": 8},
        {"kind": "a", "norm": "layer", "units": 8},
    ]
    runs = [(params, Status.COMPLETED, [{"acc": 0.5 - at / 10}]) for at, params in enumerate(each)]
    sweep = read_sweep(sweep_of(runs, ended=ended))
    assert [trial.params for trial in sweep.trials] == each
    assert [list(trial.params) for trial in sweep.trials] == [
        ["kind", "norm", "units"],
        ["kind", "units"],
        [*each[2]],
    ]
    ranked = ranking.rank([sweep])
    assert [row.params for row in ranked.rows] == each
    assert verdict.summarize_ranking(ranked).startswith("The best was kind=a, norm=null (trial 0)")
    cells = [
        dict(zip(ranking_grid(ranked).columns, row, strict=True))["norm"]
        for row in ranking_grid(ranked).rows
    ]
    assert cells == ["null", "", "layer"]
