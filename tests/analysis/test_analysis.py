from sweep.analysis import read, varying
from sweep.events import Status


def test_rows_hold_what_the_log_says(sweep_of):
    params = {"lr": 0.1, "layers": [8, 4]}
    folder = sweep_of([(params, Status.COMPLETED, [{"acc": 0.5, "val_loss": 2.0}, {"acc": 0.4}])], ended=None)
    sweep = read(folder)
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


def test_varying_parameters_are_those_that_differ_or_are_absent_somewhere():
    params = [{"a": 1, "b": [1], "c": True, "d": 0.5}, {"a": 1, "b": [2], "c": 1, "d": 0.5, "e": 1}]
    assert varying(params) == ("b", "c", "e")
    assert varying(params[:1]) == varying([]) == ()
