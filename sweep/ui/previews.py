"""Shows the command line of an act before it is run, and what it would train."""

from __future__ import annotations

from sweep.errors import InputError, SweepError
from sweep.store.folder import ResultsFolder
from sweep.ui import acts
from sweep.ui.acts import Act, Given

TRAINING_HERE = ("confirm", "retrain")
"""Commands that train where the page runs, even if the sweep was submitted to a cluster."""


def preview_act(act: Act, given: Given, place: str, folder: ResultsFolder) -> dict[str, str]:
    """Return, for a filled-in form, its command line, why it would be refused, and a note on its training.

    The keys are ``command``, ``wrong`` and ``note``, with the value "" for each that does not apply. The command line
    is "" if a field has a mistake. Only adding, changing and confirming are checked beyond their fields; nothing is
    run. The note says what a confirmation would train, and, for a sweep that was submitted to a cluster, that `confirm`
    or `retrain` trains on this machine; it is "" if the command would be refused. ``given`` has the values of the
    form's fields and the ``sweep``, and ``place`` is the results folder or its URL (see `acts.make_arguments`).
    """
    submission = folder.submission
    try:
        command = acts.show_command(acts.make_arguments(act, given, place, submission))
    except InputError as error:
        return {"command": "", "wrong": str(error), "note": ""}
    note = ""
    if submission is not None and act.command in TRAINING_HERE:
        note = f"It trains on this machine, not on the cluster at {submission.address}, to which it was submitted."
    try:
        if act.command == "confirm":
            note = " ".join(filter(None, (_describe_confirming(given, folder), note)))
        elif act.command in ("add", "change"):
            _check_steering(act.command, given, folder)
    # the command line is valid, but would be refused for this sweep as it is
    except SweepError as error:
        return {"command": command, "wrong": str(error), "note": ""}
    return {"command": command, "wrong": "", "note": note}


def _check_steering(command: str, given: Given, folder: ResultsFolder) -> None:
    """Check what a form adds (its field ``settings``) or changes (``changes``); ``command`` is ``add`` or ``change``.

    Each of these fields has lines ``name=value``. Raises `SweepError` if the command would refuse them for the sweep in
    ``folder``. Nothing is added or changed.
    """
    from sweep.runner import additions, steering, steering_requests

    lines = acts.list_lines(given.get("settings" if command == "add" else "changes", ""))
    if command == "add":
        values = additions.read_assignments(lines)
        steering_requests.check_act(folder, steering.Add.of([values], steering.COMMAND))
    else:
        steering_requests.check_act(folder, steering.Change(tuple(lines)))


def _describe_confirming(given: Given, folder: ResultsFolder) -> str:
    """Describe the most that a confirmation would train. Raises `SweepError` if the command would refuse it.

    ``given`` has the fields ``seeds``, ``finalists`` and ``budget``; empty or missing ones have their defaults.
    """
    from sweep.render.plans import describe_confirming  # slow imports, for this act alone
    from sweep.runner import resuming
    from sweep.runner.confirming import plan_confirmation

    sweep = resuming.reopen_to_confirm(
        folder.path.parent,
        folder.name,
        _read_number(given, "seeds"),
        _read_number(given, "finalists"),
        given.get("budget", "").strip() or None,
    )
    return describe_confirming(plan_confirmation(sweep), folder.name)


def _read_number(given: Given, name: str) -> int | None:
    """Return the whole number in the field ``name``; None if it is empty, blank or missing.

    Raises ValueError for any other text.
    """
    text = given.get(name, "").strip()
    return int(text) if text else None
