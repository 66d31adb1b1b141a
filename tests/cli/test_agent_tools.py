"""The commands as tools: their schemas, and the command lines that calls stand for."""

from __future__ import annotations

from typing import Any

import click
import jsonschema
import pytest

from sweep.cli import agent_tools, main
from sweep.errors import InputError

OFFERED = (*agent_tools.READING, *agent_tools.ACTING)
WITHOUT_TOOLS = {"submit", "kube", "slurm", "dashboard", "doctor", "repair", "mcp", "ui"}
"""Commands that start servers or jobs, or are for the person at this machine."""


def test_each_command_is_offered_or_left_out_on_purpose() -> None:
    assert set(OFFERED) | WITHOUT_TOOLS == set(main.commands)
    assert not set(OFFERED) & WITHOUT_TOOLS


def some_value(schema: dict[str, Any]) -> Any:
    """Return a value that a schema allows."""
    if "enum" in schema:
        return schema["enum"][0]
    match schema["type"]:
        case "boolean":
            return True
        case "integer":
            return schema.get("minimum", 3)
        case "number":
            return schema.get("minimum", 0.5)
        case "array":
            return [some_value(schema["items"])]
        case _:
            return "-x=1"


@pytest.mark.parametrize("name", OFFERED)
def test_a_call_with_everything_is_a_command_line_that_says_so(name: str) -> None:
    command = main.commands[name]
    schema = agent_tools.describe_input(command)
    jsonschema.Draft202012Validator.check_schema(schema)
    given = {key: some_value(value) for key, value in schema["properties"].items()}
    jsonschema.validate(given, schema)
    _, *words = agent_tools.build_command_line(command, given)
    parsed, rest, _ = command.make_parser(click.Context(command)).parse_args(list(words))
    assert rest == []
    for key, parameter in agent_tools.list_parameters(command).items():
        values = given[key] if isinstance(given[key], list) else [given[key]]
        found = parsed[str(parameter.name)]
        assert [str(one) for one in (found if isinstance(found, list | tuple) else [found])] == [
            str(one) for one in values
        ]
    assert parsed.get("as_json", True)
    assert parsed.get("detach", True)


@pytest.mark.parametrize("name", OFFERED)
def test_a_call_with_nothing_lacks_what_the_command_requires(name: str) -> None:
    schema = agent_tools.describe_input(main.commands[name])
    required = [one for one in main.commands[name].params if one.required]
    assert [name.replace("_", "-") for name in schema.get("required", [])] == [
        one.name if isinstance(one, click.Argument) else one.opts[0].removeprefix("--")
        for one in required
    ]


def test_all_unknown_names_of_a_call_are_reported() -> None:
    with pytest.raises(InputError) as caught:
        agent_tools.build_command_line(main.commands["plan"], {"fil": "a.yaml", "sett": []})
    assert [str(problem) for problem in caught.value.problems] == [
        "plan.fil: no such parameter; did you mean 'file'?",
        "plan.sett: no such parameter; did you mean 'set'?",
    ]


def test_false_and_null_leave_an_option_out() -> None:
    words = agent_tools.build_command_line(
        main.commands["stop"], {"sweep": "a", "now": False, "trial": None}
    )
    assert words == ["stop", "--json", "--", "a"]
