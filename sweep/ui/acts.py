"""The acts that the live page offers: a table in which each one is a command line of sweep.

The page shows the command line, and the server runs exactly that one. An act is offered only if this installation
has its command and options.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sweep.errors import Problem, UnknownNameError, refuse
from sweep.store.sweep_info import Submission
from sweep.text import did_you_mean

Given: TypeAlias = Mapping[str, str]
"""What was filled in, as text by the name of the field; a flag is "yes" or ""."""

Commands: TypeAlias = Mapping[str, frozenset[str]]
"""The commands of this installation, each with its options."""

LONGEST = 10_000  # characters of a field


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """An input field in the form of an act."""

    name: str
    label: str
    kind: Literal["text", "number", "lines", "flag"] = "text"
    hint: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """An act of the page and its command line.

    ``words`` follow the command. Each of ``options`` is a group of words: it is left out if a field in it is empty, and
    repeated for each line of a field of several lines. ``{sweep}`` and ``{trial}`` stand for the sweep and the trial
    that the act applies to, other names in braces for fields.
    """

    name: str
    label: str  # says what is done to what
    command: str
    words: tuple[str, ...] = ("{sweep}",)
    options: tuple[tuple[str, ...], ...] = ()
    fields: tuple[Field, ...] = ()
    scope: Literal["sweep", "trial"] = "sweep"
    # states of the sweep in which the act is offered
    states: tuple[str, ...] = (
        "running",
        "killed",
        "ended",
    )
    trials: tuple[str, ...] = ()  # statuses of the trial; () for all
    needs: Literal["", "star", "no star", "note", "failed", "completed"] = ""
    """What the sweep or the trial must have for it: a mark of a person, or a trial with this status."""
    asks: str = ""  # question that is asked first if something is lost or ends


NOT_RUNNING = ("killed", "ended")
DETACH = ("--detach",)
_SETTINGS = Field(
    name="settings",
    label="Parameters, one a line",
    kind="lines",
    hint="NAME=VALUE",
    required=True,
)
_CHANGES = Field(
    name="changes", label="Keys of the sweep file, one a line", kind="lines", hint="KEY=VALUE"
)
_NOTE = Field(name="text", label="Note", required=True)

ACTS: tuple[Act, ...] = (
    Act(
        name="stop",
        label="Stop {sweep} after the running epochs",
        command="stop",
        states=("running",),
        asks="The running epochs are trained to their end, and then the sweep ends. It can be resumed.",
    ),
    Act(
        name="stop_now",
        label="Stop {sweep} at once",
        command="stop",
        options=(("--now",),),
        states=("running",),
        asks="The running epochs are lost, and trained again when the sweep is resumed.",
    ),
    Act(
        name="stop_trial",
        label="Stop trial {trial} of {sweep} after its epoch",
        command="stop",
        options=(("--trial", "{trial}"), ("--now", "{now}")),
        fields=(Field(name="now", label="do not wait for the end of its epoch", kind="flag"),),
        scope="trial",
        states=("running",),
        trials=("running", "interrupted"),
        asks="The trial ends for good: it is pruned, and cannot be resumed.",
    ),
    Act(
        name="resume",
        label="Resume {sweep}",
        command="resume",
        options=(DETACH,),
        states=NOT_RUNNING,
    ),
    Act(
        name="extend",
        label="Extend {sweep}",
        command="resume",
        options=(("--run-cap", "{run_cap}"), ("--set", "{changes}"), DETACH),
        fields=(Field(name="run_cap", label="Configurations in all", kind="number"), _CHANGES),
        states=NOT_RUNNING,
    ),
    Act(
        name="retry",
        label="Try the failed trials of {sweep} again",
        command="resume",
        options=(("--retry-failed",), DETACH),
        states=NOT_RUNNING,
        needs="failed",
    ),
    Act(
        name="retry_trial",
        label="Try trial {trial} and all other failed trials of {sweep} again",
        command="resume",
        options=(("--retry-failed",), DETACH),
        scope="trial",
        states=NOT_RUNNING,
        trials=("failed",),
        needs="failed",
    ),
    Act(
        name="confirm",
        label="Confirm the best of {sweep} with fresh seeds",
        command="confirm",
        options=(("--seeds", "{seeds}"), ("--finalists", "{finalists}"), ("--budget", "{budget}")),
        fields=(
            Field(
                name="seeds", label="Fresh seeds of each finalist, at most", kind="number", hint="8"
            ),
            Field(name="finalists", label="Finalists, at most", kind="number"),
            Field(name="budget", label="Epochs, as a share of the search's", hint="20%"),
        ),
        states=NOT_RUNNING,
        needs="completed",
    ),
    Act(
        name="retrain",
        label="Train the best of {sweep} again",
        command="retrain",
        options=(
            *(("--epochs", "{epochs}"), ("--seeds", "{seeds}"), ("--name", "{name}")),
            ("--all-data", "{all_data}"),
        ),
        fields=(
            Field(name="epochs", label="Epochs, instead of the trial's", kind="number"),
            Field(name="seeds", label="Runs, each with a new seed", kind="number", hint="1"),
            Field(name="name", label="Name of the new sweep"),
            Field(name="all_data", label="train on the validation data as well", kind="flag"),
        ),
        needs="completed",
    ),
    Act(
        name="retrain_trial",
        label="Train trial {trial} of {sweep} again",
        command="retrain",
        options=(
            ("--trial", "{trial}"),
            ("--epochs", "{epochs}"),
            ("--seeds", "{seeds}"),
            ("--name", "{name}"),
        ),
        fields=(
            Field(name="epochs", label="Epochs, instead of the trial's", kind="number"),
            Field(name="seeds", label="Runs, each with a new seed", kind="number", hint="1"),
            Field(name="name", label="Name of the new sweep"),
        ),
        scope="trial",
    ),
    Act(
        name="export",
        label="Export the best model of {sweep}",
        command="best",
        options=(("--export", "{folder}"), ("--format", "{formats}")),
        fields=(
            Field(name="folder", label="New folder", required=True),
            Field(name="formats", label="Formats", hint="keras,saved_model"),
        ),
        needs="completed",
    ),
    Act(
        name="export_trial",
        label="Export the model of trial {trial} of {sweep}",
        command="best",
        options=(("--trial", "{trial}"), ("--export", "{folder}"), ("--format", "{formats}")),
        fields=(
            Field(name="folder", label="New folder", required=True),
            Field(name="formats", label="Formats", hint="keras,saved_model"),
        ),
        scope="trial",
        trials=("completed",),
    ),
    Act(
        name="add",
        label="Add a configuration to {sweep}",
        command="add",
        words=("{sweep}", "{settings}"),
        fields=(_SETTINGS,),
    ),
    Act(
        name="change",
        label="Change {sweep} from now on",
        command="change",
        options=(("--set", "{changes}"),),
        fields=(
            Field(
                name="changes",
                label="Keys of the sweep file, one a line",
                kind="lines",
                hint="KEY=VALUE",
                required=True,
            ),
        ),
    ),
    Act(
        name="note",
        label="Note on {sweep}",
        command="note",
        words=("{sweep}", "{text}"),
        fields=(_NOTE,),
    ),
    Act(
        name="remove_note",
        label="Remove the note on {sweep}",
        command="note",
        words=("{sweep}", ""),
        needs="note",
    ),
    Act(
        name="note_trial",
        label="Note on trial {trial} of {sweep}",
        command="note",
        words=("{sweep}", "{trial}", "{text}"),
        fields=(_NOTE,),
        scope="trial",
    ),
    Act(
        name="remove_note_trial",
        label="Remove the note on trial {trial} of {sweep}",
        command="note",
        words=("{sweep}", "{trial}", ""),
        scope="trial",
        needs="note",
    ),
    Act(
        name="star",
        label="Star trial {trial} of {sweep}",
        command="star",
        words=("{sweep}", "{trial}"),
        scope="trial",
        needs="no star",
    ),
    Act(
        name="remove_star",
        label="Remove the star of trial {trial} of {sweep}",
        command="star",
        words=("{sweep}", "{trial}"),
        options=(("--remove",),),
        scope="trial",
        needs="star",
    ),
)


def list_offered_acts(commands: Commands) -> dict[str, Act]:
    """Return by name the acts whose command and options this installation has.

    ``commands`` maps the name of each command to its options.
    """
    return {act.name: act for act in ACTS if _is_offered(act, commands)}


def _is_offered(act: Act, commands: Commands) -> bool:
    """Return whether this installation has the command and the options of an act."""
    if act.command not in commands:
        return False
    return all(group[0] in commands[act.command] for group in act.options)


def find_act(offered: Mapping[str, Act], name: str) -> Act:
    """Return the act with the name ``name``. Raises `UnknownNameError` if it is not among those ``offered``."""
    if name not in offered:
        raise UnknownNameError.one(name, "no such act", did_you_mean(name, offered))
    return offered[name]


def name_act(act: Act, given: Given) -> str:
    """Return the label of an act with the ``sweep`` and the ``trial`` in ``given``, which it applies to.

    What ``given`` lacks is left empty in the label.
    """
    label = act.label.replace("{sweep}", given.get("sweep", ""))
    return label.replace("{trial}", given.get("trial", ""))


def make_results_option(place: str) -> list[str]:
    """Return the words of ``--results`` for a folder or a URL; no words for the default folder ``results``."""
    if place == "results":
        return []
    return ["--results", place]


def make_arguments(
    act: Act, given: Given, place: str, submission: Submission | None = None
) -> list[str]:
    """Return the words of an act's command line that follow ``python -m sweep``.

    ``given`` has the values of the fields, and the ``sweep`` and the ``trial`` that the act applies to. ``place`` is
    the results folder or its URL. A sweep with a ``submission`` is resumed on its cluster, by ``--address`` in place
    of ``--results`` and ``--detach``; all other commands run here. If a word such as a note begins with a dash, all
    words come after the options and ``--``. Raises `InputError` with all mistakes in the values: a required one that is
    empty, no whole number, one that is too long or has a NUL character, or a wrong number of the trial.
    """
    refuse(_find_mistakes(act, given))
    kinds = {field.name: field.kind for field in act.fields}
    words: list[str] = []
    for word in act.words:
        words += _fill_word(word, given, kinds)
    options: list[str] = []
    runs_on_cluster = submission is not None and act.command == "resume"
    for group in act.options:
        if not (runs_on_cluster and group == DETACH):  # a job runs in the background anyway
            options += _fill_group(group, given, kinds)
    # on a cluster, a sweep is named USER/SWEEP, and has its results there
    if submission is not None and runs_on_cluster:
        words = [f"{submission.user}/{word}" for word in words]
        options += ["--address", submission.address]
    else:
        options += make_results_option(place)
    if any(word.startswith("-") for word in words):  # as a note may: it is no option
        return [act.command, *options, "--", *words]
    return [act.command, *words, *options]


def show_command(arguments: Sequence[str]) -> str:
    """Return a command line of sweep as a person would type it, quoted for a shell.

    ``arguments`` are the words after ``python -m sweep``.
    """
    return shlex.join(["python", "-m", "sweep", *arguments])


def _find_mistakes(act: Act, given: Given) -> list[Problem]:
    """Return the mistakes in the values of an act's fields, and in the number of the trial that it applies to.

    The list is empty if there are none. The values of other fields and the name of the sweep are not checked.
    """
    problems = []
    for field in act.fields:
        text = given.get(field.name, "")
        stripped = text.strip()
        if field.required and not stripped:
            hint = f"as in {field.hint}" if field.hint else ""
            problems.append(Problem(field.label, "is empty", hint))
        if len(text) > LONGEST:
            what = f"has {len(text):,} characters, expected at most {LONGEST:,}"
            problems.append(Problem(field.label, what))
        if field.kind == "number" and stripped and not stripped.isdecimal():
            problems.append(Problem(field.label, f"is {stripped!r}, expected a whole number"))
        if "\0" in text:
            problems.append(Problem(field.label, "has a character that no command line can have"))
    trial = given.get("trial", "")
    if act.scope == "trial" and not trial.isdecimal():
        problems.append(Problem("trial", f"is {trial!r}, expected the number of a trial"))
    return problems


def _fill_word(word: str, given: Given, kinds: Mapping[str, str]) -> list[str]:
    """Return the words that replace a template word: itself, or for ``{field}`` the text of the field in ``given``.

    A field of several lines has a word for each line that is not empty; an empty or missing field has none. ``kinds``
    maps the names of fields to their kinds.
    """
    if not word.startswith("{"):  # also "", with which `note` removes a note
        return [word]
    name = word.strip("{}")
    text = given.get(name, "").strip()
    if kinds.get(name) == "lines":
        return list_lines(text)
    if not text:
        return []
    return [text]


def list_lines(text: str) -> list[str]:
    """Return the lines of a field that are not empty, without blanks around them."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def _fill_group(group: Sequence[str], given: Given, kinds: Mapping[str, str]) -> list[str]:
    """Return the words of an option: it and its value, repeated for each value of its field; [] if that is empty.

    ``group`` is the option, followed by nothing or by the template of its value, such as "{run_cap}". The option is
    returned alone if it has no template, or if its field is a flag that is set. ``kinds`` maps the names of fields to
    their kinds, such as "flag".
    """
    option, *values = group  # no value or one, such as "{run_cap}"
    if not values:
        return [option]
    template = values[0]
    is_flag = kinds.get(template.strip("{}")) == "flag"
    words = []
    for value in _fill_word(template, given, kinds):
        words.append(option)
        if not is_flag:  # the value of a flag only says that it is set
            words.append(value)
    return words
