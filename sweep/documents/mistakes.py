"""The document that a command prints with ``--json`` when it fails. Imports no large package."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import click
from msgspec import Struct

from sweep.errors import EXPECTED, InputError, Problem, SweepError
from sweep.text import printable


class Mistake(Struct, frozen=True, rename={"found": "is"}):
    """One mistake: where it is, what is there, what was expected, and a hint; "" for what is not known."""

    where: str
    found: str
    expected: str = ""
    hint: str = ""


@dataclass(frozen=True, kw_only=True)
class ErrorDocument:
    """All mistakes that ended a command, and its exit code."""

    version: Literal[1] = 1
    exit_code: int
    error: tuple[Mistake, ...]


def describe_problems(problems: Iterable[Problem]) -> tuple[Mistake, ...]:
    """Return the mistakes that an `InputError` lists in its ``problems``, in their order; () if there are none.

    What is there and what was expected are the parts of `Problem.what` around ", expected". Escape sequences are
    removed, and unprintable characters escaped.
    """
    mistakes = []
    for problem in problems:
        texts = (problem.where, problem.found, problem.expected, problem.hint)
        mistakes.append(Mistake(*map(printable, texts)))
    return tuple(mistakes)


def describe_error(error: SweepError) -> ErrorDocument:
    """Return the document of an error of sweep, with the exit code of the command that it ends.

    It has all mistakes of an `InputError`, or the whole message of any other error as one mistake without a place.
    """
    if isinstance(error, InputError):
        mistakes = describe_problems(error.problems)
    else:
        mistakes = (Mistake("", printable(str(error))),)
    return ErrorDocument(exit_code=error.exit_code, error=mistakes)


def describe_usage_error(error: click.UsageError) -> ErrorDocument:
    """Return the document of a command line that click refuses, such as one with an unknown option.

    It has one mistake, with the name of the option or argument if click gives it. The hint is the most similar options
    for an unknown one, otherwise how to see the command's help, or "" if the command is not known either.
    """
    where = ""
    hint = ""
    if error.ctx is not None:  # the command is known
        hint = f"see {error.ctx.command_path} --help"
    if isinstance(error, click.NoSuchOption):
        where = error.option_name
        if error.possibilities:
            hint = f"did you mean {' or '.join(sorted(error.possibilities))}?"
    elif isinstance(error, click.BadParameter) and error.param is not None:
        where = _name_parameter(error.param)
    found, _, expected = error.format_message().partition(EXPECTED)
    mistake = Mistake(where, printable(found), printable(expected), hint)
    return ErrorDocument(exit_code=error.exit_code, error=(mistake,))


def _name_parameter(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Option):
        return max(parameter.opts, key=len)
    return str(parameter.human_readable_name)
