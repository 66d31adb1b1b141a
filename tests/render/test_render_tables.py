import io

from msgspec import structs
from rich.console import Console

from sweep.analysis import Trial
from sweep.analysis.ranking import RankedConfiguration, Ranking, Score
from sweep.analysis.verdict import SweepSummary
from sweep.events import Status
from sweep.render.tables import (
    Grid,
    configurations_grid,
    print_table,
    ranking_grid,
    sweeps_grid,
    trials_grid,
)


def shown(grid: Grid, *, terminal: bool = False, width: int = 80) -> str:
    file = io.StringIO()
    colour = "standard" if terminal else None
    print_table(grid, Console(file=file, width=width, force_terminal=terminal, color_system=colour))
    return file.getvalue()


def trial(number: int, status: Status = Status.COMPLETED) -> Trial:
    return Trial(
        **{
            "sweep": "first",
            "trial": number,
            "trial_id": "t",
            "repeat": 0,
            "seed": 0,
            "status": status,
        },
        **{"status_reason": "", "params": {}, "metrics": {}, "best": {}, "epochs": 3},
        **{"duration_s": None, "checkpoint": None},
    )


def ranked(
    rank: int, params: dict, scores: tuple[Score, ...], *trials: Trial
) -> RankedConfiguration:
    return RankedConfiguration(
        rank, "first", params, trials[0].status, 1.0, 3, scores, None, trials
    )


def scored(*values: float, interval: tuple[float, float] | None = None) -> tuple[Score, ...]:
    mean = sum(values) / len(values)
    return (Score("acc", "maximize", values, mean, None if len(values) < 2 else 0.0512, interval),)


def test_a_cell_with_several_lines_stays_in_its_row() -> None:
    noted = structs.replace(trial(0), note="too high\n  diverges late\tmaybe")
    lines = shown(trials_grid([noted, trial(1)], None)).splitlines()
    assert len(lines) == 3
    assert "too high diverges late maybe  completed" in lines[1]


def test_the_status_says_who_has_stopped_a_trial() -> None:
    pruned = structs.replace(trial(0, Status.PRUNED), status_reason="rank 3 of 3")
    stopped = structs.replace(trial(1, Status.PRUNED), status_reason="stopped on request")
    rows = (ranked(1, {}, (), stopped), ranked(2, {}, (), pruned, stopped))
    grid = ranking_grid(Ranking((("acc", "maximize"),), (), rows, (), "", (), ""))
    assert [row[grid.columns.index("status")] for row in grid.rows] == [
        "stopped by hand",
        "1 pruned, 1 stopped by hand",
    ]
    grid = trials_grid([pruned, stopped], "acc")
    assert [row[grid.columns.index("status")] for row in grid.rows] == ["pruned", "stopped by hand"]


REPEATED = Ranking(
    (("acc", "maximize"),),
    ("lr", "aug"),
    (
        ranked(
            1,
            {"lr": 1e-3, "aug": "low", "o": 1},
            scored(0.9, 0.95, interval=(0.9, 0.95)),
            *map(trial, range(3)),
        ),
        ranked(2, {"lr": 5e-4, "o": 1}, scored(0.5), trial(5), trial(4, Status.DIVERGED)),
        ranked(3, {"lr": 1e-5, "aug": "[bold]", "o": 1}, (), trial(7, Status.FAILED)),
    ),
)
WIDE = """\
rank  trial  status                   epochs                   acc              95 %      lr  aug
   1    0-2  completed                     3  0.9250 ± 0.051 (n=2)  0.9000 .. 0.9500   0.001  low
   2    4,5  1 completed, 1 diverged       3                0.5000                    0.0005
   3      7  failed                        3                                           1e-05  [bold]
"""


def test_a_ranking_off_a_terminal_is_plain_text_of_any_width():
    assert shown(ranking_grid(REPEATED), width=20) == WIDE


def test_a_ranking_shows_only_what_differs_and_what_there_is():
    single = Ranking(REPEATED.objectives, ("lr",), (ranked(1, {"lr": 1.0}, scored(0.5), trial(0)),))
    assert shown(ranking_grid(single)) == (
        "rank  trial  status     epochs     acc  lr\n   1      0  completed       3  0.5000   1\n"
    )
    assert shown(ranking_grid(REPEATED, limit=1)).count("\n") == 2


def test_batches_in_parts_are_marked():
    cut = structs.replace(trial(1), accumulate=4)
    rows = (ranked(1, {}, (), trial(0), cut), ranked(2, {}, (), trial(2)))
    grid = ranking_grid(Ranking((), (), rows))
    assert [row[grid.columns.index("batch in parts")] for row in grid.rows] == ["4", ""]


def test_several_sweeps_are_named():
    rows = (
        ranked(1, {}, (), trial(0)),
        RankedConfiguration(2, "second", {}, Status.FAILED, 0.0, 0, (), None, (trial(0),)),
    )
    grid = ranking_grid(Ranking((), (), rows))
    assert [row[grid.columns.index("sweep")] for row in grid.rows] == ["first", "second"]


def test_a_parameter_may_be_called_like_a_column():
    grid = ranking_grid(Ranking((), ("epochs",), (ranked(1, {"epochs": 9}, (), trial(0)),)))
    assert dict(zip(grid.columns, grid.rows[0], strict=True))["param.epochs"] == "9"


def test_a_narrow_terminal_gets_blocks_and_loses_nothing():
    told = shown(ranking_grid(REPEATED), terminal=True, width=40)
    for word in WIDE.split():
        assert word in told
    assert max(map(len, shown(ranking_grid(REPEATED, 1), terminal=True, width=40).split("\n"))) < 60
    assert "…" not in told


def test_colour_is_only_for_terminals():
    assert "\x1b[32mcompleted" in shown(ranking_grid(REPEATED), terminal=True, width=200)
    assert "\x1b" not in shown(ranking_grid(REPEATED), width=200)


def test_the_list_of_sweeps_holds_damaged_ones_too():
    listed = [
        SweepSummary(
            **{
                "name": "lr",
                "path": "results/lr",
                "state": "finished",
                "trials": {"completed": 2, "failed": 1},
            },
            **{"metric": "acc", "goal": "maximize", "best": 0.5, "best_trial": 1},
            **{"started": 1_700_000_000.0, "duration_s": 90.0},
        ),
        SweepSummary(
            name="broken", path="results/broken", state="damaged", trials={}, reason="no sweep.json"
        ),
    ]
    lines = [" ".join(line.split()) for line in shown(sweeps_grid(listed), width=300).splitlines()]
    assert lines == [
        "sweep state trials metric best by trial started took reason",
        "lr finished 2 completed, 1 failed acc 0.5000 1 2023-11-14 22:13 UTC 1 min 30 s",
        "broken damaged no sweep.json",
    ]


def test_configurations_of_a_plan():
    told = shown(configurations_grid([{"lr": 0.1, "o": "sgd"}, {"lr": 0.01, "o": "sgd"}]))
    assert told == "trial    lr\n    0   0.1\n    1  0.01\n"


def test_wide_characters_line_up():
    assert shown(Grid(("name", "x"), (("学習", "a"), ("lr", "b")))) == "name  x\n学習  a\nlr    b\n"


def test_no_rows_leave_nothing_to_show():
    assert shown(sweeps_grid([])).strip() == ""


def test_a_parameter_named_as_a_column_stands_beside_it() -> None:
    grid = configurations_grid([{"trial": 7}, {"trial": 8}])
    assert grid == Grid(("trial", "param.trial"), (("0", "7"), ("1", "8")))


def test_a_metric_named_as_a_column_replaces_none() -> None:
    for name in ("rank", "trial", "verdict"):
        named = Ranking(((name, "maximize"),), ("rank",), REPEATED.rows)
        columns = ranking_grid(named).columns
        assert {"rank", "trial", "verdict", f"metric.{name}", "param.rank"} <= set(columns)
        assert len(set(columns)) == len(columns)
    one = structs.replace(trial(4), metrics={"trial": 0.5})
    grid = trials_grid([one], "trial")
    told = dict(zip(grid.columns, grid.rows[0], strict=True))
    assert (told["trial"], told["metric.trial"]) == ("4", "0.5000")


def test_a_parameter_leaves_the_names_of_the_page_for_its_stars_and_notes() -> None:
    columns = ranking_grid(Ranking((), ("star", "note"), REPEATED.rows)).columns
    assert columns[-2:] == ("param.star", "param.note")
