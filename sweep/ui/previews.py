"""Shows the command line of an action before it is run, and what it would train."""

from __future__ import annotations

from sweep.errors import InputError, SweepError
from sweep.store.folder import ResultsFolder
from sweep.ui import acts
from sweep.ui.acts import Act, Given


def preview_act(act: Act, given: Given, place: str, folder: ResultsFolder) -> dict[str, str]:
    """Return the command line of an action or the mistakes in its fields, and a note on what it would train."""
    try:
        command = acts.show_command(acts.make_arguments(act, given, place))
    except InputError as error:
        return {"command": "", "wrong": str(error), "note": ""}
    note = ""
    if act.command == "confirm":
        note = _describe_confirming(given, folder)
    return {"command": command, "wrong": "", "note": note}


def _describe_confirming(given: Given, folder: ResultsFolder) -> str:
    """Describe the most that a confirmation would train, or why it would be refused."""
    from sweep.render.plans import describe_confirming  # slow imports, for this act alone
    from sweep.runner import resuming
    from sweep.runner.confirming import plan_confirmation

    try:
        sweep = resuming.reopen_to_confirm(
            folder.path.parent,
            folder.name,
            _read_number(given, "seeds"),
            _read_number(given, "finalists"),
            given.get("budget", "").strip() or None,
        )
        return describe_confirming(plan_confirmation(sweep), folder.name)
    except SweepError as error:
        return str(error)


def _read_number(given: Given, name: str) -> int | None:
    """Return the number in a field; None if the field is empty."""
    text = given.get(name, "").strip()
    return int(text) if text else None
