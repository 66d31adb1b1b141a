"""Acts and the command lines that they stand for."""

from __future__ import annotations

import shlex

import click
import pytest

from sweep.cli import main
from sweep.errors import InputError, UnknownNameError
from sweep.store.sweep_info import Submission
from sweep.ui import acts
from sweep.ui.acts import ACTS, find_act, list_offered_acts, make_arguments, show_command

ALL = {act.name: act for act in ACTS}
EVERYTHING = {
    act.command: frozenset({group[0] for one in ACTS for group in one.options}) for act in ACTS
}
RESULTS = "results"


def _commands() -> acts.Commands:
    found = {}
    for name, command in main.commands.items():
        found[name] = frozenset(option for param in command.params for option in param.opts)
    return found


@pytest.mark.parametrize(
    ("name", "given", "line"),
    [
        ("stop", {}, "stop a"),
        ("stop_now", {}, "stop a --now"),
        ("stop_trial", {"trial": "3", "now": ""}, "stop a --trial 3"),
        ("stop_trial", {"trial": "3", "now": "yes"}, "stop a --trial 3 --now"),
        ("resume", {}, "resume a --detach"),
        (
            "extend",
            {"run_cap": "40", "changes": "budget.hours=8\n\n metric.target=0.9 "},
            "resume a --run-cap 40 --set budget.hours=8 --set metric.target=0.9 --detach",
        ),
        ("retry", {}, "resume a --retry-failed --detach"),
        ("retry_trial", {"trial": "3"}, "resume a --retry-failed --detach"),
        ("confirm", {"seeds": "4", "budget": "20%"}, "confirm a --seeds 4 --budget 20%"),
        ("retrain", {"all_data": "yes", "name": "b"}, "retrain a --name b --all-data"),
        ("retrain_trial", {"trial": "0", "epochs": "9"}, "retrain a --trial 0 --epochs 9"),
        ("export", {"folder": "my model"}, "best a --export 'my model'"),
        (
            "export_trial",
            {"trial": "2", "folder": "d", "formats": "keras"},
            "best a --trial 2 --export d --format keras",
        ),
        ("add", {"settings": "lr=3e-3\nunits=64"}, "add a lr=3e-3 units=64"),
        (
            "change",
            {"changes": "parameters.units.values=[8, 16]"},
            "change a --set 'parameters.units.values=[8, 16]'",
        ),
        ("note", {"text": "second try; $(rm -rf /)"}, "note a 'second try; $(rm -rf /)'"),
        ("note_trial", {"trial": "3", "text": "--remove"}, "note -- a 3 --remove"),
        ("star", {"trial": "3"}, "star a 3"),
        ("remove_star", {"trial": "3"}, "star a 3 --remove"),
        ("remove_note", {}, "note a ''"),
        ("remove_note_trial", {"trial": "3"}, "note a 3 ''"),
    ],
)
def test_the_command_line_of_an_act(name: str, given: dict[str, str], line: str) -> None:
    arguments = make_arguments(ALL[name], {"sweep": "a", **given}, RESULTS)
    assert arguments == shlex.split(line)
    assert show_command(arguments) == f"python -m sweep {line}"


@pytest.mark.parametrize(
    ("name", "given", "line"),
    [
        ("resume", {}, "resume ann/a --address http://head:8265"),
        ("extend", {"run_cap": "40"}, "resume ann/a --run-cap 40 --address http://head:8265"),
        ("retry", {}, "resume ann/a --retry-failed --address http://head:8265"),
        ("stop", {}, "stop a --results /all/see"),  # by the folder, which the page reads
        ("note", {"text": "b"}, "note a b --results /all/see"),
        ("confirm", {}, "confirm a --results /all/see"),
    ],
)
def test_a_submitted_sweep_is_resumed_on_its_cluster(
    name: str, given: dict[str, str], line: str
) -> None:
    sent = Submission("http://head:8265", "ann")
    assert make_arguments(ALL[name], {"sweep": "a", **given}, "/all/see", sent) == shlex.split(line)


def test_another_results_folder_is_named() -> None:
    assert make_arguments(ALL["stop"], {"sweep": "a"}, "/all/see") == [
        "stop",
        "a",
        "--results",
        "/all/see",
    ]


@pytest.mark.parametrize(
    ("name", "given", "mistake"),
    [
        ("add", {"settings": "  \n"}, "Parameters, one a line: is empty; as in NAME=VALUE"),
        (
            "extend",
            {"run_cap": "many"},
            "Configurations in all: is 'many', expected a whole number",
        ),
        ("extend", {"run_cap": "-3"}, "is '-3', expected a whole number"),
        ("note", {"text": "a\0b"}, "has a character that no command line can have"),
        ("note", {"text": "a" * 20_000}, "has 20,000 characters, expected at most 10,000"),
        ("stop_trial", {"trial": "--now"}, "trial: is '--now', expected the number of a trial"),
        ("stop_trial", {}, "trial: is '', expected the number of a trial"),
    ],
)
def test_what_cannot_be_a_command_line_is_refused(
    name: str, given: dict[str, str], mistake: str
) -> None:
    with pytest.raises(InputError) as caught:
        make_arguments(ALL[name], {"sweep": "a", **given}, RESULTS)
    assert mistake in str(caught.value)


def test_only_what_this_installation_has_is_offered() -> None:
    assert list_offered_acts({}) == {}
    assert list_offered_acts({"stop": frozenset()}).keys() == {"stop"}
    assert list_offered_acts(EVERYTHING) == ALL
    offered = list_offered_acts(_commands())
    assert {
        "stop",
        "stop_now",
        "stop_trial",
        "resume",
        "extend",
        "retry",
        "confirm",
        "retrain",
        "export",
    } <= set(offered)
    assert {act.command for act in offered.values()} <= set(main.commands)
    with pytest.raises(UnknownNameError, match="did you mean 'stop'"):
        find_act(offered, "stopp")


@pytest.mark.parametrize("act", list_offered_acts(_commands()).values(), ids=lambda act: act.name)
def test_the_parser_takes_what_an_act_makes(act: acts.Act) -> None:
    given = {
        field.name: {"number": "3", "lines": "a=1\nb=2", "flag": "yes"}.get(field.kind, "x")
        for field in act.fields
    }
    arguments = make_arguments(act, {"sweep": "a", "trial": "1", **given}, "s3://bucket/place")
    command = main.commands[arguments[0]]
    context = command.make_context(arguments[0], arguments[1:], parent=click.Context(main))
    assert context.params["sweep"] == "a"
    assert all(name in act.label for name in ("{sweep}", "{trial}")[: 1 + (act.scope == "trial")])
