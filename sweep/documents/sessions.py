"""The documents of commands that train."""

from __future__ import annotations

from sweep import analysis, interruption
from sweep.analysis import Sweep, ranking, verdict
from sweep.documents.mistakes import describe_problems
from sweep.documents.shapes import SessionDocument
from sweep.errors import Problem
from sweep.runner import Outcome


def describe_outcome(outcome: Outcome, sweep: Sweep) -> SessionDocument:
    """Return the document of a session that has ended; ``sweep`` is its sweep, read after the end.

    The exit code in it is that of an interruption if the session was interrupted, otherwise 1 if no trial of the sweep
    has completed, and 0 if one has. ``error`` also has a problem that did not change the code (`Outcome.fault`).
    """
    folder = outcome.folder
    ranked = ranking.rank([sweep])
    if ranked.best:
        answer = verdict.summarize_ranking(ranked, addresses={sweep.name: folder.address})
    else:  # no trial has completed
        answer = ""
    objectives = sweep.objectives  # (name, goal) of each
    return SessionDocument(
        sweep=folder.name,
        results=folder.place,
        completed=outcome.completed,
        stopped=outcome.stopped,
        interrupted=outcome.interrupted,
        answer=answer,
        metric=objectives[0][0] if objectives else None,
        best=ranked.best,
        to_resume=folder.to_resume,
        exit_code=_find_exit_code(outcome),
        error=describe_problems(_list_problems(outcome, sweep)),
    )


def _find_exit_code(outcome: Outcome) -> int:
    if outcome.interrupted:
        return interruption.CODE
    return 0 if outcome.completed else 1


def _list_problems(outcome: Outcome, sweep: Sweep) -> list[Problem]:
    folder = outcome.folder
    problems = []
    if outcome.fault:
        problems.append(Problem(folder.name, outcome.fault))
    if outcome.interrupted:
        problems.append(Problem(folder.name, "interrupted", f"go on with: {folder.to_resume}"))
    elif not outcome.completed:
        what = f"no trial completed{analysis.first_failure(sweep)}"
        problems.append(Problem(folder.name, what, f"see the error column and {folder.debug_log}"))
    return problems
