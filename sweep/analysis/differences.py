"""The differences between compared sweeps or configurations: objectives, code, parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sweep.analysis.sweep_rows import Sweep
from sweep.errors import InputError, Problem
from sweep.events import Value
from sweep.store import sweep_info
from sweep.store.sweep_info import Objectives

_ABSENT = object()


def same_objectives(sweeps: Sequence[Sweep]) -> Objectives:
    """Return the common objectives of the sweeps.

    Raises `InputError` if they differ, as no common order exists then.
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
    return " and ".join(f"{goal} {name}" for name, goal in objectives) or "none"


def describe_other_differences(sweeps: Sequence[Sweep]) -> str:
    """Describe how trainings differ apart from their parameters, such as in code or packages; "" if not known to."""
    mixed = []
    for sweep in sweeps:
        if sweep.info.is_mixed:
            mixed.append(sweep.name)
    told = []
    if mixed:
        if len(sweeps) > 1:
            of = f" of {' and '.join(mixed)}"
        else:
            of = ""
        told.append(
            f"The code or a version of its packages has changed since the beginning{of}: "
            "scores from before and after may not compare."
        )
    if differing := sweep_info.list_identity_differences(sweep.info for sweep in sweeps):
        told.append(f"These sweeps differ in more than their parameters: in {', '.join(differing)}.")
    return " ".join(told)


def list_varying_parameters(params: Sequence[Mapping[str, Value]]) -> tuple[str, ...]:
    """Return the parameters that differ between the configurations or are missing in some, in the file's order."""
    names = dict.fromkeys(name for one in params for name in one)
    differing = []
    for name in names:
        values = {repr(one.get(name, _ABSENT)) for one in params}
        if len(values) > 1:
            differing.append(name)
    return tuple(differing)
