"""Finds out why a worker is gone, from what it wrote while dying and from what Ray reports.

Ray does not learn how its workers end. Each worker therefore keeps a file open in the results folder, which all nodes
share, for Python's fault handler and for `os._exit`. The file of a killed worker stays empty.
"""

from __future__ import annotations

import faulthandler
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from sweep.backends import Job, Lost
from sweep.backends.ray_tune.output_capture import take_unsent_output
from sweep.store.disk import get_process_name
from sweep.text import printable

PREEMPTED = "actor's node was preempted"  # its end was announced
NODE_LOST = {  # by what Ray says if a node is lost, and not only a worker
    PREEMPTED: "its node was taken away",
    "actor's node was terminated expectedly": "its node was ended",  # in an orderly way, also if its disk is full
    "its node has died": "its node is gone",
    "is temporarily unavailable": "its node does not answer",
}
_SIGNALS = {
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Floating point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
}
_EXIT, _TRIAL = "exit code ", "trial "
_OUTPUT = ".output"
_files: list[int] = []  # the open file of this process, if there is one
_EXIT_NOW = os._exit


def get_exits_folder(job: Job) -> Path:
    """Return the folder, perhaps yet to be created, of the files into which workers write how they ended."""
    return job.folder / "workers"


@contextmanager
def make_exits_folder(job: Job) -> Iterator[None]:
    """Delete the folder of exit files of an earlier session now, and that of this session after the block.

    `record_exit` creates the folder, not this function. What cannot be deleted is left.
    """
    shutil.rmtree(get_exits_folder(job), ignore_errors=True)
    try:
        yield
    finally:
        shutil.rmtree(get_exits_folder(job), ignore_errors=True)


def record_exit(job: Job) -> Callable[[int], None]:
    """Make this process write how it ends into a file of this session, instead of the file of an earlier one.

    Enables Python's fault handler and replaces `os._exit`, for the life of the process. Returns a function that writes
    the number of a trial into the file. It must be called for each trial that begins; of trials that begin together,
    for the first one. If the file cannot be created, nothing changes, and the returned function does nothing.
    """
    path = get_exits_folder(job) / get_process_name()
    try:
        path.parent.mkdir(exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC)
    except OSError:  # a full disk: the cause will be unknown
        return lambda trial: None
    # before the earlier file is closed, into which the handler would still write
    faulthandler.enable(file)
    for earlier in _files:
        os.close(earlier)
    _files[:] = [file]
    # Around Python's own function, and not around the one that writes into the earlier file.
    setattr(os, "_exit", _wrap_exit(file, _EXIT_NOW, os.getpid()))  # noqa: B010  # mypy compares the names of parameters

    def began(trial: int) -> None:
        with suppress(OSError):  # a full disk: the cause will be unknown
            os.write(file, f"{_TRIAL}{trial}\n".encode())

    return began


@contextmanager
def limiting_time(seconds: float) -> Iterator[None]:
    """End this process with exit code 1 if the block takes longer than ``seconds``, after writing all threads' stacks.

    The stacks go into the file of `record_exit`, or to standard error if there is none. This works even if no other
    Python thread can run.
    """
    faulthandler.dump_traceback_later(seconds, exit=True, file=_files[-1] if _files else 2)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def get_output_file(job: Job) -> Path:
    """Return the path of the file for what this process prints, beside the one that `record_exit` opens."""
    return get_exits_folder(job) / f"{get_process_name()}{_OUTPUT}"


def take_lost_output(job: Job, trial: int) -> str:
    """Return what the worker whose last trial was ``trial`` had printed and not sent when it was lost, or ``""``.

    The last trial is the one that was passed last to the function of `record_exit`. The file with the output is
    deleted, so a second call returns ``""``. If several workers had this last trial, their outputs are joined. A long
    output is shortened as in `take_unsent_output`.
    """
    output = ""
    with suppress(OSError):
        for path, _ in _list_exits(job, trial):
            output += take_unsent_output(path.with_name(f"{path.name}{_OUTPUT}"))
    return output


def explain_loss(job: Job, trial: int, error: str) -> str:
    """Return in a few words why the worker of a trial was lost.

    ``trial`` is the one that was passed last to the function of `record_exit`, and ``error`` is Ray's message. If the
    message quotes a `WorkerLost`, such as of a rank, or says that a node was lost or that memory ran low, this is the
    reason. Otherwise it is what the worker wrote when it ended, if it did, and the worker's file is deleted. If that
    says nothing, it is the exit code or signal in the message, or else the message's first line.
    """
    error = printable(error)
    # First, because what the worker itself has raised may quote what Ray says about another process, a lost rank.
    gang_cause = re.search(r"WorkerLost: (.+)", error)
    if gang_cause:
        return gang_cause[1]
    for words, cause_of_loss in NODE_LOST.items():
        if words in error:
            return cause_of_loss
    if "running low on memory" in error:
        return "Ray's memory monitor killed it"
    return _explain_words(_take_last_words(job, trial)) or _explain_error(error)


def _explain_error(error: str) -> str:
    """Return in a few words the cause that Ray's message ``error`` gives, otherwise its first line.

    Empty lines do not count. For an empty message, the text says that no reason is known.
    """
    exit_code = re.search(r"exit code (\d+)\.?(?: The process receives a (SIG[A-Z]+))?", error)
    if exit_code:
        return exit_code[2] or f"exit code {exit_code[1]}"
    if "died unexpectedly" in error:
        return "killed from outside (SIGKILL or SIGTERM), as the kernel does where memory runs out"
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return lines[0] if lines else "no reason is known"


def classify_loss(error: str) -> Lost:
    """Return what was lost according to a message of Ray or a result of `explain_loss`.

    It is ``"preempted"`` for a node that was taken away as announced, ``"node"`` for any other lost node, and
    ``"worker"`` for every other text.
    """
    if PREEMPTED in error or NODE_LOST[PREEMPTED] in error:
        return "preempted"
    if any(words in error or cause_of_loss in error for words, cause_of_loss in NODE_LOST.items()):
        return "node"
    return "worker"


def _take_last_words(job: Job, trial: int) -> str:
    """Return what the worker whose last trial was ``trial`` wrote when it died, or ``""``, and delete its file.

    If several such workers have written something, what one of them wrote is returned, and all these files are deleted.
    """
    words = ""
    with suppress(OSError):
        for path, said in _list_exits(job, trial):
            if said:  # workers that Tune prepared and never used have written nothing
                words = said
                path.unlink()
    return words


def _list_exits(job: Job, trial: int) -> list[tuple[Path, str]]:
    """Return the exit files of workers whose last trial was ``trial``, each with what was written since that began.

    The files of what they printed are left out. Raises OSError if there is no folder of such files, or if one cannot be
    read.
    """
    exits = []
    for path in get_exits_folder(job).iterdir():
        if not path.name.endswith(_OUTPUT):
            # Only a line that begins with the word is a trial's: a stack may have the word within a path.
            _, _, since = ("\n" + path.read_text(errors="replace")).rpartition(f"\n{_TRIAL}")
            number, _, said = since.partition("\n")  # the rest of that line, and the lines after it
            if number == str(trial):
                exits.append((path, said))
    return exits


def _explain_words(words: str) -> str:
    """Return in a few words why a process ended, from what Python's fault handler or `os._exit` wrote.

    That is a signal or fatal error, a block of `limiting_time` that took too long, or an exit code. Return ``""`` if
    ``words`` have none of these.
    """
    fatal = re.search(r"^Fatal Python error: (.+)$", words, re.MULTILINE)
    if fatal:
        # the stacks of other threads come before that of the current one
        where = _find_innermost_line(words.rpartition("Current thread ")[2])
        return f"{_SIGNALS.get(fatal[1], fatal[1])}{where and f' {where}'}"
    late = re.search(r"^Timeout \((.+)\)!", words, re.MULTILINE)
    if late:
        where = _find_innermost_line(words.rpartition("Thread 0x")[2])  # the main thread comes last
        return f"the other workers have not come within {late[1]}{where and f' ({where})'}"
    last = words.strip().rpartition("\n")[2]  # the line that `os._exit` has written
    return last if last.startswith(_EXIT) else ""


def _find_innermost_line(stack: str) -> str:
    """Return the innermost line in a fault handler's stack, as "in FUNCTION, FILE:LINE"; ``""`` if there is none."""
    frame = re.search(r'^  File "(.+)", line (\d+) in (.+)$', stack, re.MULTILINE)
    return f"in {frame[3]}, {frame[1]}:{frame[2]}" if frame else ""


def _wrap_exit(
    file: int, leave: Callable[[int], NoReturn], worker: int
) -> Callable[[int], NoReturn]:
    """Return a function like ``leave``, Python's `os._exit`, that first writes the exit status into an open file.

    ``file`` is the file's descriptor; errors of writing are ignored. The status is written only in the process with the
    id ``worker``, not in its children.
    """

    def write_and_leave(status: int) -> NoReturn:
        if os.getpid() == worker:  # not in a child process
            with suppress(OSError):
                os.write(file, f"{_EXIT}{status}\n".encode())
        leave(status)

    return write_and_leave
