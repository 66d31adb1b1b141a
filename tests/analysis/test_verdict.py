"""The answer claims no more than the ranking holds."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from msgspec import structs

from sweep.analysis import read_sweep
from sweep.analysis.confirmation import BROKEN, Confirmation, Confirmed
from sweep.analysis.ranking import rank
from sweep.analysis.verdict import (
    TrialData,
    describe_verdict,
    summarize_confirmation,
    summarize_ranking,
    warn_about_different_data,
)
from sweep.events import Role, Status


def told(
    sweep_of, scores: dict[int, list[float]], status: Status = Status.COMPLETED, **kwargs
) -> str:
    runs = [
        ({"a": a}, status, [{"acc": score}]) for a, several in scores.items() for score in several
    ]
    seeds = max(map(len, scores.values()), default=1)
    return summarize_ranking(
        rank([read_sweep(sweep_of(runs, status.value, seeds=seeds))]), **kwargs
    )


def several(mean: float, start: int = 0, seeds: int = 8) -> list[float]:
    """Scores around a mean that go up and down from seed to seed as nobody else's do."""
    return [mean + 0.01 * ((7 * seed + 3 * start) % 5 - 2) for seed in range(seeds)]


@pytest.mark.parametrize(
    ("scores", "parts"),
    [
        ({}, ["No trial has begun"]),
        (
            {1: [0.5]},
            [
                "the only configuration (trial 0) with acc 0.5000",
                "No other configuration completed",
            ],
        ),
        (
            {1: [0.5], 2: [0.7]},
            [
                "a=2 (trial 1) with acc 0.7000",
                "a=1 (trial 0), is 0.2 behind",
                "cannot be told from luck",
            ],
        ),
        (
            {1: [0.5], 2: [0.5]},
            ["1 other configuration reached the same score", "cannot be told from luck"],
        ),
        (
            {1: [0.5, 0.51, 0.52], 2: [0.9, 0.91, 0.92]},
            [
                "a=2 (trials 3 to 5) with acc 0.9100 on average over 3 seeds (95 % interval 0.8852 to",
                "a=1 (trials 0 to 2), is 0.4 behind. These are too few seeds for a verdict; 3 more would tell",
            ],
        ),
        (
            {1: several(0.5), 2: several(0.9, 1)},
            [
                "It is better than the other configuration: a=1 (trials 0 to 7) is 0.4 behind (95 % interval 0.38 to",
                "0.42, p = 0.0078).",
            ],
        ),
        (
            {1: several(0.5), 2: several(0.9, 1), 3: several(0.899, 3)},
            [
                "The best was a=3",
                "It is better than 1 of the 2 others: a=1 (trials 0 to 7) is 0.4 behind",
                "1 of the 2 others ties with it, for luck could explain the difference: a=2 (trials 8 to 15) is 0.0028",
            ],
        ),
        (
            {1: several(0.5), 2: several(0.5)},
            [
                "The other configuration ties with it, for luck",
                "a=2 (trials 8 to 15) has the same mean.",
            ],
        ),
        (
            {1: several(0.5), 2: several(0.7, 1), 3: several(0.9, 2)},
            [
                "It is better than all 2 others: the nearest, a=2 (trials 8 to 15), is 0.2 behind (95 %"
            ],
        ),
        (
            {a: several(a / 10, a, 5) for a in range(1, 7)},
            [
                "These are too few seeds for a verdict; 1 more would tell a difference like that to the next.",
                "python -m sweep confirm completed trains the candidates with fresh ones.",
            ],
        ),
    ],
)
def test_one_objective(sweep_of, scores: dict[int, list[float]], parts: list[str]) -> None:
    answer = told(sweep_of, scores)
    assert [part for part in parts if part not in answer] == [], answer


def test_an_interval_that_is_not_known_is_left_out(sweep_of) -> None:
    runs = [
        ({"a": a}, Status.COMPLETED, [{"acc": score}])
        for a in (1, 2)
        for score in several(a / 2, start=a)
    ]
    ranking = rank([read_sweep(sweep_of(runs, "completed", seeds=8))])
    assert "a=1 (trials 0 to 7) is 0.5 behind (95 % interval 0.48 to" in summarize_ranking(ranking)
    rows = [structs.replace(row, difference_low=None, difference_high=None) for row in ranking.rows]
    assert "is 0.5 behind (p = 0.0" in summarize_ranking(replace(ranking, rows=tuple(rows)))
    rows = [structs.replace(row, p_adjusted=None) for row in rows]
    assert "is 0.5 behind." in summarize_ranking(replace(ranking, rows=tuple(rows)))


def test_what_has_not_completed_is_no_answer(sweep_of) -> None:
    assert (
        told(sweep_of, {1: [0.5]}, Status.PRUNED)
        == "No trial has completed, so there is no answer."
    )
    assert (
        told(sweep_of, {1: [0.5]}, Status.RUNNING, running=True)
        == "No trial has completed yet, so there is no answer."
    )


def test_a_running_sweep_says_so(sweep_of) -> None:
    assert told(sweep_of, {1: [0.5]}, running=True).startswith(
        "It still runs, and this may change. The best was"
    )


def test_a_front_is_named_by_its_ends(sweep_of) -> None:
    both = (("acc", "maximize"), ("cost", "minimize"))
    points = [(0.9, 3.0), (0.8, 2.0), (0.7, 1.0), (0.6, 2.5)]
    runs = [
        ({"a": a}, Status.COMPLETED, [{"acc": acc, "cost": cost}])
        for a, (acc, cost) in enumerate(points)
    ]
    answer = summarize_ranking(rank([read_sweep(sweep_of(runs, objectives=both))]))
    assert answer.startswith(
        "3 of the 4 configurations that completed are on the Pareto front of acc and cost"
    )
    assert (
        "acc 0.9000 with a=0 (trial 0); cost 1.000 with a=2 (trial 2). Whether luck chose" in answer
    )
    assert answer.endswith("is not known: too few seeds.")
    alone = summarize_ranking(rank([read_sweep(sweep_of(runs[3:], "other", objectives=both))]))
    assert "is best in acc and cost at once" in alone


def test_names_cannot_turn_the_sentence_round(sweep_of) -> None:
    runs = [({"a": "x\u202e" + end}, Status.COMPLETED, [{"acc": 0.5}]) for end in "yz"]
    assert "\u202e" not in summarize_ranking(rank([read_sweep(sweep_of(runs))]))


def test_numbers_read_as_in_the_tables(sweep_of) -> None:
    runs = [
        ({"a": 2e8, "b": 2e4, "c": b}, Status.COMPLETED, [{"acc": 12345.6}]) for b in (True, False)
    ]
    runs[1][0].update(a=1.0, b=1.0)
    assert "a=200000000, b=20000, c=true (trial 0) with acc 12346." in summarize_ranking(
        rank([read_sweep(sweep_of(runs))])
    )


def test_of_many_parameters_some_are_named(sweep_of) -> None:
    runs = [
        ({f"p{k}": k * n for k in range(1, 30)}, Status.COMPLETED, [{"acc": n / 2}]) for n in (0, 1)
    ]
    answer = summarize_ranking(rank([read_sweep(sweep_of(runs))]))
    assert "p8=8 and 21 more parameters (trial 1)" in answer
    assert "p9=" not in answer


def test_what_diverged_with_some_seeds_is_not_compared(sweep_of) -> None:
    runs = [({"a": 1}, Status.COMPLETED, [{"acc": score}]) for score in several(0.5)]
    runs += [({"a": 2}, Status.COMPLETED, [{"acc": score}]) for score in several(0.9)]
    runs[-1] = ({"a": 2}, Status.DIVERGED, [{"acc": 0.9}])
    runs += [({"a": 3}, Status.COMPLETED, [{"acc": score}]) for score in several(0.2, 1)]
    ranking = rank([read_sweep(sweep_of(runs, seeds=8))])
    assert [row.params["a"] for row in ranking.rows] == [1, 3, 2]
    assert [describe_verdict(row, ranking) for row in ranking.rows] == [
        "best",
        "worse",
        "diverged with 1 of 8 seeds",
    ]
    assert (
        "On 1 of the 2 others there is no verdict: diverged with 1 of 8 seeds."
        in summarize_ranking(ranking)
    )


def test_where_all_diverged_with_a_seed_there_is_no_best(sweep_of) -> None:
    runs = [
        ({"a": a}, Status.COMPLETED, [{"acc": score}]) for a in (1, 2) for score in several(a / 4)
    ]
    runs[0] = ({"a": 1}, Status.DIVERGED, [{"acc": 0.1}])
    runs[8] = ({"a": 2}, Status.DIVERGED, [{"acc": 0.1}])
    ranking = rank([read_sweep(sweep_of(runs, seeds=8))])
    assert {row.verdict for row in ranking.rows} == {"undecided"}
    assert "There is no verdict: diverged with 1 of 8 seeds" in summarize_ranking(ranking)


def test_different_seeds_are_never_paired(sweep_of) -> None:
    runs = [
        ({"a": a}, Status.COMPLETED, [{"acc": score}]) for a in (1, 2) for score in several(a / 4)
    ]
    ranking = rank([read_sweep(sweep_of(runs))])
    assert [row.verdict for row in ranking.rows] == ["undecided"] * 2
    assert "There is no verdict: no seed in common with the best." in summarize_ranking(ranking)


def test_a_front_of_repeats_says_who_is_told_to_be_behind(sweep_of) -> None:
    both = (("acc", "maximize"), ("cost", "minimize"))
    points = [(0.9, 3.0), (0.5, 1.0), (0.3, 2.0)]
    runs = [
        ({"a": a}, Status.COMPLETED, [{"acc": one, "cost": cost + other}])
        for a, (acc, cost) in enumerate(points)
        for one, other in zip(several(acc, a), several(0.0, a + 1), strict=True)
    ]
    ranking = rank([read_sweep(sweep_of(runs, objectives=both, seeds=8))])
    assert [row.verdict for row in ranking.rows] == ["best", "best", "worse"]
    assert summarize_ranking(ranking).endswith(
        "Of the other 1, 1 told from luck to be beaten in all of them."
    )
    assert "adjusted for all pairs" in ranking.method


def test_the_command_that_confirms_names_the_sweep_that_has_the_trials(sweep_of) -> None:
    runs = [({"a": a // 2}, Status.COMPLETED, [{"acc": float(a)}]) for a in range(4)]
    sweeps = [read_sweep(sweep_of([], "empty")), read_sweep(sweep_of(runs, "full", seeds=2))]
    addresses = {"empty": "there/empty", "full": "'my results/full'"}
    told = summarize_ranking(rank(sweeps), addresses=addresses)
    assert "python -m sweep confirm 'my results/full' trains the candidates" in told
    assert "python -m sweep confirm full trains the candidates" in summarize_ranking(rank(sweeps))


NOTHING = "The seed changed nothing: trainings with different seeds gave the same numbers"


def test_repeats_that_are_one_training_say_so(sweep_of) -> None:
    assert told(sweep_of, {1: [0.5] * 3, 2: [0.7] * 3}).count(NOTHING) == 1


def test_repeats_that_were_pruned_do_not_hide_that_the_seed_changes_nothing(sweep_of) -> None:
    ends = [Status.COMPLETED, Status.COMPLETED, Status.PRUNED, Status.PRUNED]
    runs = [
        ({"a": place // 2}, status, [{"acc": 0.5 + place // 2}])
        for place, status in enumerate(ends)
    ]
    ranking = rank([read_sweep(sweep_of(runs, seeds=2))])
    assert NOTHING in summarize_ranking(ranking)


@pytest.mark.parametrize("scores", [{1: [0.5], 2: [0.5]}, {1: [0.5, 0.5], 2: [0.7, 0.71]}], ids=str)
def test_one_training_each_or_other_numbers_say_no_such_thing(
    sweep_of, scores: dict[int, list[float]]
) -> None:
    assert NOTHING not in told(sweep_of, scores)


def confirmed(place: int, mean: float | None = 0.5, **more: object) -> Confirmed:
    usual = {
        **{
            "place": place,
            "verdict": "best" if place == 1 else "ties",
            "undecided": "",
            "reason": "",
        },
        "is_broken": more.get("reason") == BROKEN,
        **{
            "is_baseline": False,
            "params": {"a": place},
            "selected": 0.75,
            "mean": mean,
            "seeds": 8,
        },
        **{"difference": None if place == 1 else -0.25, "low": None if place == 1 else -0.5},
        **{"high": None if place == 1 else -0.125, "tested": {}, "trials": (place,)},
    }
    return Confirmed(**{**usual, **more})


def confirmation(
    *rows: Confirmed, over: str = "", decided: bool = False, metric: str = "val_acc"
) -> Confirmation:
    return Confirmation(metric, "maximize", over, decided, 8, 100, "t", rows)


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (
            confirmation(confirmed(1), confirmed(2, is_baseline=True, mean=None)),
            "The baseline has no fresh seeds yet. First is X, but 2 of 2 finalists could be the best, and the race "
            "goes on. Its val_acc was 0.7500 in the search and is 0.5000 with fresh seeds: the search overestimated "
            "it by 0.25.",
        ),
        (
            confirmation(
                confirmed(1, is_baseline=True), confirmed(2, reason=BROKEN, difference=None)
            ),
            "No configuration of the search completed its fresh seeds: nothing is known to beat the baseline. First is "
            "X, but 1 of 2 finalists could be the best; 1 finalist did not complete with a fresh seed, and the race "
            "goes on. Its val_acc was 0.7500 in the search and is 0.5000 with fresh seeds: the search overestimated "
            "it by 0.25.",
        ),
        (
            confirmation(
                confirmed(1, is_baseline=True, mean=0.75),
                confirmed(2),
                confirmed(3, difference=-0.5),
                over="all seeds",
            ),
            "Nothing that the search found beats the baseline: the nearest is 0.25 (0.12 to 0.5) behind. First is X, "
            "but 3 of 3 finalists could be the best (all seeds). Its val_acc was 0.7500 in the search and is 0.7500 "
            "with fresh seeds: the search promised no more.",
        ),
        (
            confirmation(
                confirmed(1, None),
                confirmed(2, None, is_baseline=True, reason=BROKEN, difference=None),
            ),
            f"The baseline {BROKEN}, and cannot be compared. First is X, but 1 of 2 finalists could be the best; 1 "
            "finalist did not complete with a fresh seed, and the race goes on.",
        ),
        (
            confirmation(
                confirmed(1, 0.875, tested={"acc": 0.625}),
                confirmed(2, is_baseline=True, verdict="worse", reason="is worse"),
                decided=True,
                over="one is left",
            ),
            "The best configuration beats the baseline by 0.25 (0.12 to 0.5) over 8 fresh seeds. Best is X, told apart "
            "from 1 other finalist (one is left). Its val_acc was 0.7500 in the search and is 0.8750 with fresh seeds, "
            "0.6250 on the test data: the search underestimated it by 0.12.",
        ),
        (
            confirmation(confirmed(1, None), confirmed(2, is_baseline=True, low=None)),
            "The best configuration does not beat the baseline: it is ahead by 0.25 over 8 fresh seeds, which may be "
            "luck. First is X, but 2 of 2 finalists could be the best, and the race goes on.",
        ),
        (confirmation(confirmed(1, None), decided=True), "Left is X."),
        (
            confirmation(confirmed(1, None, reason=BROKEN), over="none completed"),
            "No finalist is left (none completed).",
        ),
    ],
)
def test_the_answer_of_a_race(found: Confirmation, told: str) -> None:
    assert " ".join(summarize_confirmation(found, "X")) == told


@pytest.mark.parametrize(
    ("baseline", "others", "told"),
    [
        ([{"acc": 0.9}], [[{"acc": 0.5}]], "Nothing beats the baseline."),
        ([], [[{"acc": 0.5}]], "The baseline has not completed."),
        (
            [{"acc": 0.5}],
            [[{"acc": 0.75}]],
            "The best configuration does not beat the baseline: it is ahead by 0.25, which nothing tells from luck "
            "yet; python -m sweep confirm would.",
        ),
    ],
)
def test_the_author_s_own_configuration(sweep_of, baseline, others, told: str) -> None:
    folder = sweep_of(
        [({"a": n}, Status.COMPLETED, one) for n, one in enumerate([baseline, *others])]
    )
    found = read_sweep(folder)
    own = structs.replace(found.trials[0], role=Role.BASELINE)
    if not baseline:
        own = structs.replace(own, status=Status.FAILED)
    ranking = rank([replace(found, trials=(own, *found.trials[1:]))])
    assert told in summarize_ranking(ranking)


def test_a_baseline_that_luck_does_not_explain(sweep_of) -> None:
    runs = [
        ({"a": a}, Status.COMPLETED, [{"acc": one}])
        for a in (1, 2)
        for one in several(0.5 + a / 10, a)
    ]
    found = read_sweep(sweep_of(runs, seeds=8))
    own = [structs.replace(one, role=Role.BASELINE) for one in found.trials[:8]]
    ranking = rank([replace(found, trials=(*own, *found.trials[8:]))])
    assert (
        "The best configuration beats the baseline by 0.099 (0.077 to 0.12)."
        in summarize_ranking(ranking)
    )


def test_data_of_many_kinds_are_named_as_far_as_there_is_room() -> None:
    seen = [TrialData("first", number, f"data{number}", "{}") for number in range(5)]
    assert (
        "data0 in trial 0; data1 in trial 1; data2 in trial 2; 2 more)"
        in warn_about_different_data(seen)
    )


def test_folds_of_which_no_number_would_tell_a_difference_say_so(sweep_of) -> None:
    scores = {1: [0.5] * 5, 2: [0.55, 0.32, 0.40, 0.47, 0.41]}
    runs = [
        ({"a": a}, Status.COMPLETED, [{"acc": score}])
        for a, many in scores.items()
        for score in many
    ]
    folder = sweep_of(runs, seeds=5)
    info = json.loads(folder.info.read_text())
    folder.info.write_text(json.dumps({**info, "spec": {**info.get("spec", {}), "folds": 5}}))
    answer = summarize_ranking(rank([read_sweep(folder)]))
    assert "verdict; no number of further seeds would tell a difference like that." in answer
