"""Describes the commands as tools: the JSON Schema of their parameters, and the command line for a call of a tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import click

from sweep.errors import Problem, refuse
from sweep.text import did_you_mean

Json: TypeAlias = dict[str, Any]

READING = ("plan", "schema", "list", "status", "wait", "compare", "best", "replay", "logs")
"""Commands that change nothing, unless an option names a folder to write to."""
ACTING = (
    *("init", "examples", "run", "resume", "stop", "add", "change", "note", "star"),
    *("confirm", "retrain", "report", "export"),
)
"""Commands that write files, or start, steer or stop trainings."""
DETACHED = ("run", "resume")
"""Commands whose trainings go on in the background, so that a call ends at once."""
NOT_OFFERED = frozenset(
    {"as_json", "detach", "quiet", "verbose", "events", "watch", "ui", "follow"}
)
"""Parameters that only matter to somebody who looks at a terminal, or that each call sets."""


def describe_input(command: click.Command) -> Json:
    """Return the JSON Schema of an object with the parameters of a command, by names that `build_command_line` accepts.

    The parameters are those of `list_parameters`; no others are allowed in the object.
    """
    offered = list_parameters(command)
    schema: Json = {
        "type": "object",
        "properties": {name: _describe_parameter(parameter) for name, parameter in offered.items()},
        "additionalProperties": False,
    }
    required = []
    for name, parameter in offered.items():
        if parameter.required:
            required.append(name)
    if required:
        schema["required"] = required
    return schema


def list_parameters(command: click.Command) -> dict[str, click.Parameter]:
    """Return the parameters of a command that agents may set, by their name in the tool, in the command's order.

    The name is ``run_cap`` for ``--run-cap``. Hidden parameters and those in `NOT_OFFERED`, such as ``--quiet``, are
    left out.
    """
    offered = {}
    for parameter in command.params:
        if parameter.name not in NOT_OFFERED and not getattr(parameter, "hidden", False):
            offered[_get_name(parameter)] = parameter
    return offered


def build_command_line(command: click.Command, given: Mapping[str, Any]) -> list[str]:
    """Return the words of the command line that runs a command with the values ``given`` by name.

    They are the arguments of ``python -m sweep``. A value of None sets nothing, and neither does False for a flag. The
    options ``--json``, if the command has it, and ``--detach``, for `run` and `resume`, are added.

    Raises `InputError`, which names all parameters in ``given`` that agents may not set. Whether a required one is
    missing, or a value is wrong, is left to the command.
    """
    offered = list_parameters(command)
    problems = []
    for name in given:
        if name not in offered:
            where = f"{command.name}.{name}"
            problems.append(Problem(where, "no such parameter", did_you_mean(name, offered)))
    refuse(problems)  # raises if there are any
    options: list[str] = []
    arguments: list[str] = []
    for name, parameter in offered.items():
        value = given.get(name)
        if value is None:
            continue
        if isinstance(parameter, click.Argument):
            arguments += _list_texts(value)
        else:
            options += _build_option(parameter, value)
    if any(parameter.name == "as_json" for parameter in command.params):
        options.append("--json")
    if command.name in DETACHED:
        options.append("--detach")
    # after "--", an argument may begin with a dash
    return [
        str(command.name),
        *options,
        "--",
        *arguments,
    ]


def _get_name(parameter: click.Parameter) -> str:
    """Return the name of a parameter in a tool: ``run_cap`` for ``--run-cap``, an argument's own name."""
    if isinstance(parameter, click.Argument):
        return str(parameter.name)
    return max(parameter.opts, key=len).lstrip("-").replace("-", "_")


def _describe_parameter(parameter: click.Parameter) -> Json:
    """Return the JSON Schema of a parameter, with its help as description; an array if it takes several values."""
    schema = _describe_type(parameter)
    help_text = getattr(parameter, "help", None)
    if _takes_several(parameter):
        schema = {"type": "array", "items": schema}
    if help_text:
        schema["description"] = help_text
    return schema


def _describe_type(parameter: click.Parameter) -> Json:
    """Return the JSON Schema of one value of a parameter.

    It is a boolean for a flag, an enum for a choice, and an integer or a number, with its limits if it has any. All
    other values are strings.
    """
    kind = parameter.type
    if getattr(parameter, "is_flag", False):
        return {"type": "boolean"}
    if isinstance(kind, click.Choice):
        return {"enum": list(kind.choices)}
    if isinstance(kind, click.IntRange | click.FloatRange):
        limits = {"minimum": kind.min, "maximum": kind.max}
        known_limits = {}
        for name, limit in limits.items():
            if limit is not None:
                known_limits[name] = limit
        return {"type": "integer" if isinstance(kind, click.IntRange) else "number", **known_limits}
    if kind is click.INT:
        return {"type": "integer"}
    if kind is click.FLOAT:
        return {"type": "number"}
    return {"type": "string"}


def _takes_several(parameter: click.Parameter) -> bool:
    """Return whether a parameter accepts several values, at once (``nargs``) or by repeating it."""
    return parameter.nargs != 1 or bool(getattr(parameter, "multiple", False))


def _build_option(option: click.Parameter, value: Any) -> list[str]:
    """Return the words that set an option to ``value``, a list for several values; [] for a flag that is off.

    The word for a value is ``--name=value``.
    """
    word = max(option.opts, key=len)  # the long form, if there is a short one such as -q, too
    if getattr(option, "is_flag", False):
        return [word] if value else []
    # one word, so that a value may begin with a dash
    return [f"{word}={text}" for text in _list_texts(value)]


def _list_texts(value: Any) -> Sequence[str]:
    """Return the texts of the values in a list, or a list with the text of any other single value."""
    if isinstance(value, list):
        values = value
    else:
        values = [value]
    return [str(one) for one in values]
