"""The document of a command that fails: each mistake in parts, and the exit code."""

from __future__ import annotations

import json

import click
import pytest

from sweep.documents import mistakes
from sweep.errors import (
    InputError,
    InterruptedByUser,
    Problem,
    RefusedError,
    StoreError,
    SweepError,
    UnknownNameError,
    refuse,
)
from sweep.render import document


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError.one("a", "b"), 2),
        (StoreError("damaged"), 2),
        (UnknownNameError.one("a", "b"), 3),
        (RefusedError.one("a", "b"), 4),
        (InterruptedByUser("now"), 130),
    ],
)
def test_exit_codes(error: SweepError, code: int) -> None:
    assert mistakes.describe_error(error).exit_code == code


def test_a_mistake_in_parts() -> None:
    error = InputError(
        [
            Problem("f.yaml:3: epochs", "text 'x', expected a whole number", "write 5"),
            Problem("", "b"),
        ]
    )
    assert json.loads(document(mistakes.describe_error(error))) == {
        "version": 1,
        "exit_code": 2,
        "error": [
            {
                "where": "f.yaml:3: epochs",
                "is": "text 'x'",
                "expected": "a whole number",
                "hint": "write 5",
            },
            {"where": "", "is": "b", "expected": "", "hint": ""},
        ],
    }
    assert (
        str(error).splitlines()[0] == "f.yaml:3: epochs: text 'x', expected a whole number; write 5"
    )


def test_an_error_that_is_no_list_of_mistakes() -> None:
    (only,) = mistakes.describe_error(StoreError("log.jsonl: line 3: damaged\x1b")).error
    assert (only.where, only.found) == ("", "log.jsonl: line 3: damaged\\x1b")


def test_refusals_of_several_changes_are_one_error() -> None:
    with pytest.raises(RefusedError) as caught:
        refuse([Problem("a", "b"), Problem("a", "b"), Problem("c", "d")], RefusedError)
    assert len(caught.value.problems) == 2


def test_a_command_line_that_cannot_be_parsed() -> None:
    command = click.Command(
        "go", params=[click.Option(["-n", "--number"], type=click.IntRange(min=1))]
    )
    for line, where, found, hint in (
        (
            ["--number", "0"],
            "--number",
            "Invalid value for '-n' / '--number': 0 is not in the range x>=1.",
            "go --help",
        ),
        (["--nubmer", "1"], "--nubmer", "No such option", "--number"),
        (["more"], "", "Got unexpected extra argument (more)", "see go --help"),
    ):
        with pytest.raises(click.UsageError) as caught:
            command.make_context("go", line)
        (only,) = mistakes.describe_usage_error(caught.value).error
        assert (only.where, only.found[: len(found)]) == (where, found)
        assert hint in only.hint
