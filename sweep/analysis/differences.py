"""The differences between compared sweeps or configurations: objectives, code, parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sweep.analysis.sweep_rows import Sweep
from sweep.errors import InputError, Problem
from sweep.events import Value
from sweep.store import sweep_info
from sweep.store.sweep_info import Objectives

_ABSENT = object()


def require_same_objectives(sweeps: Sequence[Sweep]) -> Objectives:
    """Return the objectives, pairs of metric and goal, which all sweeps, at least one, must have in common.

    Raises `InputError`, with a problem for each sweep whose objectives are not those of the first one, in their order.
    """
    first = sweeps[0]
    problems = []
    for other in sweeps:
        if other.objectives != first.objectives:
            problems.append(
                Problem(
                    str(other.folder.path),
                    f"its objective is {_describe_objectives(other.objectives)}, but that of {first.folder.path} is "
                    f"{_describe_objectives(first.objectives)}",
                    "compare sweeps of one objective",
                )
            )
    if problems:
        raise InputError(problems)
    return first.objectives


def _describe_objectives(objectives: Objectives) -> str:
    """Return objectives in words, such as "minimize loss and maximize accuracy"; "none" if there are none."""
    return " and ".join(f"{goal} {name}" for name, goal in objectives) or "none"


def describe_other_differences(sweeps: Sequence[Sweep]) -> str:
    """Return a warning if trainings differ in more than parameters, such as in code; "" if no difference is known.

    It says if the code or package versions of a sweep changed while it ran, with the name of the sweep if there are
    several, and in what the sweeps differ from one another, such as their code or their number of folds.
    """
    mixed = []  # names of the sweeps whose code or packages changed while they ran
    for sweep in sweeps:
        if sweep.info.is_mixed:
            mixed.append(sweep.name)
    told = []  # sentences
    if mixed:
        if len(sweeps) > 1:
            of = f" of {' and '.join(mixed)}"
        else:
            of = ""
        told.append(
            f"The code or a version of its packages has changed since the beginning{of}: "
            "scores from before and after may not compare."
        )
    differing = sweep_info.list_identity_differences(sweep.info for sweep in sweeps)
    # not part of the identity, because a training of one fold depends on more than their number
    if len({sweep.info.folds for sweep in sweeps}) > 1:
        differing.append("the number of folds")
    if differing:
        told.append(
            f"These sweeps differ in more than their parameters: in {', '.join(differing)}."
        )
    return " ".join(told)


def list_varying_parameters(params: Sequence[Mapping[str, Value]]) -> tuple[str, ...]:
    """Return the names of the parameters whose values differ between configurations, or that some of them lack.

    ``params`` has the parameters of each configuration; 1 and 1.0 differ, and so do a missing parameter and one that
    is None. The names are in the order in which they first appear there. The result is empty for a single one.
    """
    names = dict.fromkeys(name for one in params for name in one)
    differing = []
    for name in names:
        # as texts, because a list cannot be in a set
        values = {repr(one.get(name, _ABSENT)) for one in params}
        if len(values) > 1:
            differing.append(name)
    return tuple(differing)
