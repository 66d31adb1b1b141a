import math

import pytest
from msgspec import structs

from sweep.errors import StoreError
from sweep.events import (
    EpochReported,
    Event,
    Facts,
    ModelTested,
    SessionEnded,
    SessionStarted,
    Status,
    TrialEnded,
    TrialStarted,
)
from sweep.spec import parse_spec
from sweep.store.tables import TableBuilder


def started(trial: int, params=None) -> TrialStarted:
    return TrialStarted(
        trial=trial, trial_id=f"t{trial}", params=params or {}, seed=0, repeat=0, time=100.0
    )


def reported(trial: int, epoch: int, **metrics: float) -> EpochReported:
    return EpochReported(trial=trial, epoch=epoch, metrics=metrics, time=100.0 + epoch, time_s=0.5)


def ended(trial: int, status: Status = Status.COMPLETED, time: float = 110.0, **rest) -> TrialEnded:
    return TrialEnded(trial=trial, status=status, reason="", time=time, **rest)


def build(events: list[Event], objectives=(("val_accuracy", "maximize"),)) -> TableBuilder:
    builder = TableBuilder("first", objectives)
    for event in events:
        builder.observe(event)
    return builder


def told(events: list[Event]) -> list[dict[str, object]]:
    return build(events).trials().to_pylist()


def test_epochs_are_sorted_by_their_trials():
    events = [started(0), started(1), reported(1, 1, loss=1.0), reported(0, 1, loss=2.0)]
    events += [reported(1, 2, loss=4.0), reported(1, 3, loss=3.0)]
    table = build(events).metrics()
    columns = table.select(["trial", "epoch", "metric.loss"]).to_pydict()
    assert columns == {
        "trial": [0, 1, 1, 1],
        "epoch": [1, 1, 2, 3],
        "metric.loss": [2.0, 1.0, 4.0, 3.0],
    }
    assert [row["epochs"] for row in told(events)] == [1, 3]


def test_a_running_trial_has_no_end():
    running = told([started(0), reported(0, 1, val_accuracy=0.5)])[0]
    assert running["status"] == "running"
    assert running["ended_at"] is running["duration_s"] is running["overhead_s"] is None
    assert (running["train_s"], running["objective"]) == (0.5, 0.5)


def test_trials_that_were_trained_together_share_what_their_worker_took():
    both = {"together": 4.0}
    events = [
        started(0),
        structs.replace(reported(0, 1, loss=1.0), measures=both),
        ended(0, time=120.0),
    ]
    trained = told(events)[0]
    assert (trained["duration_s"], trained["train_s"], trained["overhead_s"]) == (20.0, 0.5, 4.5)


def test_of_a_group_that_shrinks_each_interval_is_shared_by_those_that_were_there():
    def epoch(number, time, time_s, together):
        measures = {"together": together}
        return structs.replace(
            reported(0, number, loss=1.0), time=time, time_s=time_s, measures=measures
        )

    events = [
        started(0),
        epoch(1, 108.0, 1.5, 4.0),
        epoch(2, 111.0, 0.5, 4.0),
        epoch(3, 115.0, 3.0, 1.0),
    ]
    # With four: 8 s to the first epoch, 3 s to the next; alone: 4 s and 1 s more. In epochs: 1.5 + 0.5 + 3.
    assert told([*events, ended(0, time=116.0)])[0]["overhead_s"] == 8 / 4 + 3 / 4 + 5 - 5
    # the worker began 4 s after the driver
    late = ended(0, time=116.0, facts=Facts(started=104.0, train_s=5.0))
    assert told([*events, late])[0]["overhead_s"] == 4 / 4 + 3 / 4 + 5 - 5
    paused = ended(0, Status.INTERRUPTED, 112.0)
    waited = [*events[:3], paused, epoch(3, 150.0, 1.0, 2.0), ended(0, time=150.0)]
    # Waiting is its own, as of a trial trained alone; of the last epoch's 2 s one is another's.
    assert told(waited)[0]["overhead_s"] == 8 / 4 + 3 / 4 + 1 / 4 + 36 + 2 / 2 - 3


def test_a_resumed_trial_counts_its_time_without_the_pause():
    interrupted = ended(0, Status.INTERRUPTED, 105.0, facts=Facts(started=101.0, train_s=2.0))
    events = [started(0), reported(0, 1, loss=1.0), interrupted]
    assert told(events)[0]["status"] == "interrupted"
    events += [SessionEnded(time=106.0, reason="interrupted")]
    events += [SessionStarted(time=1006.0, resumed=True, version="1")]
    assert told(events)[0]["status"] == "interrupted"
    events += [reported(0, 2, loss=0.5)]
    assert (told(events)[0]["status"], told(events)[0]["ended_at"]) == ("running", None)
    events += [ended(0, time=1010.0, facts=Facts(started=1007.0, train_s=0.75))]
    row = told(events)[0]
    assert (row["status"], row["duration_s"], row["train_s"]) == ("completed", 9.0, 1.0)
    assert build(events).history().active_s == 10.0


def at(event, time, driven_s):
    return structs.replace(event, time=time, driven_s=driven_s)


@pytest.mark.parametrize("jump", [-3600.0, 0.0, 10_800.0])
def test_durations_do_not_follow_a_clock_that_jumps(jump):
    begun = [SessionStarted(time=100.0, resumed=False, version="1"), at(started(0), 101.0, 1.0)]
    trained = [*begun, at(reported(0, 1, loss=1.0), 103.0 + jump, 3.0)]
    end = at(ended(0), 104.0 + jump, 4.0)
    rows = told([*trained, end])
    assert (rows[0]["duration_s"], rows[0]["train_s"], rows[0]["overhead_s"]) == (3.0, 0.5, 2.5)
    assert build([*trained, end]).history().active_s == 4.0
    # The worker began half a second after the driver, and says for how long it had the trial.
    facts = Facts(started=101.5, lived_s=2.5, train_s=0.75)
    row = told([*trained, structs.replace(end, facts=facts)])[0]
    assert (row["duration_s"], row["overhead_s"]) == (2.5, 1.75)
    assert row["started_at"].timestamp() == 101.5


@pytest.mark.parametrize("jump", [-3600.0, 0.0, 10_800.0])
def test_a_duration_is_the_sum_of_what_the_sessions_measured(jump):
    events = [
        *(SessionStarted(time=100.0, resumed=False, version="1"), at(started(0), 101.0, 1.0)),
        at(reported(0, 1, loss=1.0), 103.0, 3.0),  # and then the driver was killed
        SessionStarted(time=500.0 + jump, resumed=True, version="1"),
        at(reported(0, 2, loss=1.0), 502.0 + jump, 2.0),
        at(
            ended(0, Status.INTERRUPTED, facts=Facts(started=501.0, lived_s=1.5)), 503.0 + jump, 3.0
        ),
        SessionStarted(time=900.0, resumed=True, version="1"),
        at(reported(0, 3, loss=1.0), 901.0, 1.0),
        at(ended(0, facts=Facts(started=900.5, lived_s=1.0)), 902.0, 2.0),
    ]
    row = told(events)[0]
    assert (row["duration_s"], row["train_s"], row["overhead_s"]) == (
        3.0 - 1.0 + 3.0 + 2.0,
        1.5,
        5.5,
    )
    assert build(events).history().active_s == 3.0 + 3.0 + 2.0


def test_an_overhead_is_never_negative():
    facts = Facts(started=101.0, lived_s=2.0, train_s=2.0000001)
    assert (
        told([at(started(0), 100.0, 0.0), at(ended(0, facts=facts), 103.0, 3.0)])[0]["overhead_s"]
        == 0.0
    )


def test_a_failed_trial_that_is_tried_again_runs_again():
    again = ended(0, Status.INTERRUPTED, again=True)
    events = [
        started(0),
        reported(0, 1, loss=1.0),
        ended(0, Status.FAILED),
        again,
        reported(0, 2, loss=0.5),
    ]
    assert told(events)[0]["status"] == "running"
    assert told([*events, ended(0)])[0]["status"] == "completed"


def test_a_parameter_that_a_trial_has_not_is_null():
    assert [
        row["param.m"] for row in told([started(0, {}), started(1, {"m": 0.5}), started(2, {})])
    ] == [
        None,
        0.5,
        None,
    ]


def test_parameters_whose_value_is_null_are_named_and_absent_ones_are_not():
    rows = told(
        [
            started(0, {"m": None, "ß": None, "a": 1}),
            started(1, {"m": 0.5}),
            started(2, {"a": None}),
        ]
    )
    assert [row["null_params"] for row in rows] == ['["m", "ß"]', None, '["a"]']
    assert "null_params" not in told([started(0, {"m": 0.5}), started(1, {})])[0]


def test_best_follows_the_goal_then_the_name_and_else_there_is_none():
    values = {
        "val_accuracy": 1.0,
        "f1_score": 1.0,
        "val_loss": 1.0,
        "score": 1.0,
        "acc_loss": 1.0,
        "cost": 1.0,
    }
    more = dict.fromkeys(values, 2.0)
    worse = dict.fromkeys(values, math.inf)
    events = [started(0), reported(0, 1, **values), reported(0, 2, **more), reported(0, 3, **worse)]
    row = build(events, (("cost", "minimize"), ("score", "maximize"))).trials().to_pylist()[0]
    best = {
        name.removeprefix("best."): value for name, value in row.items() if name.startswith("best.")
    }
    assert best == {
        "val_accuracy": 2.0,
        "f1_score": 2.0,
        "val_loss": 1.0,
        "score": 2.0,
        "cost": 1.0,
    }
    assert row["objective"] == math.inf


@pytest.mark.parametrize(
    ("metric", "higher"),
    [
        ("val_accuracy", True),
        ("top5_acc", True),
        ("F1", True),
        ("reward", True),
        ("val_score", True),
        ("bleu", True),
        ("val_loss", False),
        ("err", False),
        ("acc_loss", None),
        ("accent", None),
        ("cost", None),
    ],
)
def test_names_say_the_same_in_tables_and_in_the_check_of_a_file(metric: str, higher: bool | None):
    row = (
        build([started(0), reported(0, 1, **{metric: 1.0}), reported(0, 2, **{metric: 2.0})])
        .trials()
        .to_pylist()[0]
    )
    assert row.get(f"best.{metric}") == {True: 2.0, False: 1.0, None: None}[higher]
    file = f"trainable: a:B\nmethod: grid\nparameters: {{x: {{value: 1}}}}\nmetric: {{name: {metric}}}\n"
    assert bool(parse_spec(file, "s.yaml").notes) == bool(higher)


def test_a_report_of_an_unknown_trial_is_an_error():
    for event in (reported(3, 1), ended(3)):
        with pytest.raises(StoreError, match="trial 3 was never started"):
            build([event])


def test_how_numbers_came_about_is_a_column_of_each_part():
    facts = Facts(numerics={"tf32": "on", "cudnn": "heuristic"})
    events = [
        started(0),
        ended(0, facts=facts),
        started(1),
        ended(1, facts=Facts(numerics={"deterministic": "yes"})),
    ]
    rows = told(events)
    assert [row["numerics.tf32"] for row in rows] == ["on", None]
    assert [row["numerics.deterministic"] for row in rows] == [None, "yes"]


def test_a_test_of_the_best_after_a_killed_session_takes_no_time():
    events = [
        SessionStarted(time=100.0, resumed=False, version="1"),
        at(started(0), 101.0, 1.0),
        at(reported(0, 1, loss=1.0), 103.0, 3.0),
        SessionStarted(time=500.0, resumed=True, version="1"),  # and then the driver was killed
        ModelTested(trial=0, metrics={"loss": 1.0}, time=90_000.0),
    ]
    assert build(events).history().active_s == 3.0
