"""Collects what a trial reads besides its code and data, and checks before its result is reused whether that changed.

`sweep.read_recorder` observes the worker's process. Paths below the folder in which trials begin, or below an import
folder, are stored relative to it, because a sweep may run again from another copy of the project.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from sweep import native_readers
from sweep.backends import Job
from sweep.errors import TrainableError
from sweep.events import Inputs
from sweep.read_recorder import Reads, digest_listing, fingerprint_file, recorder
from sweep.state import imports

_RELATIVE = "./"


def record_reads(job: Job, *, is_own_process: bool) -> None:
    """Start to record which files, folders and variables the trials of ``job`` read in this process.

    What was recorded for an earlier session is discarded, except what the trainable's modules or the cells of a
    notebook have read, and unless `continue_record` was called for ``job``. What is read from the results folder is not
    recorded. With ``is_own_process``, the process only trains trials, so that everything it reads belongs to them.
    """
    recorder.install()
    native_readers.install()
    recorder.begin_session(_name_session(job), list_module_files(job).values())
    recorder.exclude(job.folder)
    if is_own_process:
        recorder.record_always()


def continue_record(job: Job) -> None:
    """Keep what this process has read so far for the session of ``job``, which reuses the data that is loaded here.

    Call it before `record_reads` of that session, which would discard the reads.
    """
    recorder.continue_session(_name_session(job))


def _name_session(job: Job) -> str:
    """Return a name of the job's session that is unique among those of this machine."""
    return f"{job.folder} {job.session}"


def collect_inputs(job: Job, declared: Sequence[str] | None) -> Inputs:
    """Return the files, folders and variables that this process has read for trials so far.

    The files of the trainable's own modules and what was read to load the data are left out. Paths below the working
    folder or an import folder are relative to it and begin with ``./``. Modules of the trainable that drew numbers at
    their import are named as well. ``declared`` are the paths and patterns that the trainable names in ``depends_on``,
    or None if it has none. Declared files that were not read are added with their present fingerprints. If ``declared``
    is None, ``unknown`` of the result has the reasons why other reads are not known, such as a connection to another
    machine. Otherwise it is empty, because the author vouches for the declared paths.

    Raises:
        TrainableError: if a pattern in ``declared`` is not valid.
    """
    reads = recorder.reads
    folders = _list_folder_names(job.working_folder, job.import_folders)
    module_files = set()
    for file in list_module_files(job).values():
        module_files.add(os.path.realpath(file))
    read = {}
    for path, value in reads.files.items():
        if os.path.realpath(path) not in module_files:
            read[path] = value
    files = {}
    for path, value in read.items():
        files[_make_relative(path, folders)] = value
    for path, value in collect_declared_inputs(job, declared).files.items():
        # the fingerprint from when the file was read counts, not the present one
        files.setdefault(path, value)
    if declared is None:
        unknown = (*reads.unknown, *_list_unobserved_imports(job))
    else:
        unknown = ()
    return Inputs(
        files=files,
        folders={_make_relative(path, folders): value for path, value in reads.folders.items()},
        environment=dict(reads.environment),
        # others may belong to an earlier sweep of this process
        drawn={
            name: seed for name, seed in imports.list_drawing_modules().items() if name in job.code
        },
        unknown=unknown,
    )


def collect_declared_inputs(job: Job, declared: Sequence[str] | None) -> Inputs:
    """Return the present fingerprints of the files that ``declared``, the trainable's ``depends_on``, names.

    Nothing but these files is in the result; if ``declared`` is None, it is empty. Paths below the working folder or an
    import folder begin with ``./``. Raises `TrainableError` if a pattern in ``declared`` is not valid.
    """
    folders = _list_folder_names(job.working_folder, job.import_folders)
    files = {}
    for path in _expand(declared or (), folders):
        files[_make_relative(path, folders)] = fingerprint_file(path)
    return Inputs(files=files)


def collect_data_inputs(job: Job, declared: Sequence[str] | None) -> Inputs:
    """Return the files, folders and variables that this process has read to load its data.

    They are not among the inputs of a trial, which have the fingerprint of the data instead. Paths below the working
    folder or an import folder begin with ``./``. ``unknown`` of the result has the reasons why other reads are not
    known only if ``declared``, the trainable's ``depends_on``, is None.
    """
    reads = recorder.reads_apart
    folders = _list_folder_names(job.working_folder, job.import_folders)
    return Inputs(
        files={_make_relative(path, folders): value for path, value in reads.files.items()},
        folders={_make_relative(path, folders): value for path, value in reads.folders.items()},
        environment=dict(reads.environment),
        unknown=tuple(reads.unknown) if declared is None else (),
    )


def get_declared_paths(trainable: object) -> tuple[str, ...] | None:
    """Return the paths and patterns that a trainable names in ``depends_on``; None if it has none or it is None.

    Raises:
        TrainableError: if ``depends_on`` is a single string, or no list or other iterable of strings.
    """
    paths = getattr(trainable, "depends_on", None)
    if paths is None:
        return None
    if isinstance(paths, Iterable) and not isinstance(paths, str):
        paths = tuple(paths)  # a generator can be read only once
    # Here it is still no tuple if it is a single string or cannot be iterated over.
    if not isinstance(paths, tuple) or not all(isinstance(path, str) for path in paths):
        raise TrainableError(
            f"depends_on is {paths!r}, expected a list of paths, such as ['tools/simulate.py']"
        )
    return paths


def add_earlier_inputs(inputs: Inputs, job: Job) -> None:
    """Add ``inputs``, what a trial has read in an earlier or another process, to the record of this process.

    A file that this process has read with another content is recorded as a reason why the trial cannot be reused. The
    modules that drew numbers (`Inputs.drawn`) are not added.
    """
    folders = _list_folder_names(job.working_folder, job.import_folders)
    reads = Reads()
    reads.files = {_make_absolute(path, folders): value for path, value in inputs.files.items()}
    reads.folders = {_make_absolute(path, folders): value for path, value in inputs.folders.items()}
    reads.environment = dict(inputs.environment)
    # `Reads` keeps the reasons as keys, each once and in order
    reads.unknown = dict.fromkeys(inputs.unknown)
    recorder.absorb(reads)


def find_hindrance(
    inputs: Inputs | None,
    working_folder: Path | None,
    import_folders: Iterable[Path],
    data_seed: int,
) -> str | None:
    """Return the first reason why a result with ``inputs`` cannot be used again, such as a changed file; None if none.

    It cannot if ``inputs`` is None. ``data_seed`` is the seed under which modules are imported now. Relative paths are
    looked up in ``working_folder`` and then in ``import_folders``. The text is a clause about several trials ("they
    have read ..."), to be put into a message.
    """
    if inputs is None:
        return "what they read beside their data was not recorded"
    if inputs.unknown:
        return (
            f"{inputs.unknown[0]}; if that cannot change their results, name what can in depends_on"
        )
    folders = _list_folder_names(working_folder, import_folders)
    return next(_iterate_changes(inputs, folders, data_seed), None)


def _iterate_changes(inputs: Inputs, folders: Sequence[str], data_seed: int) -> Iterator[str]:
    """Yield a reason, as of `find_hindrance`, for each of the ``inputs`` that is another now.

    They are files, listings of folders, environment variables, and then modules that drew numbers under another
    ``data_seed``.
    """
    for path, before in inputs.files.items():
        if fingerprint_file(_make_absolute(path, folders)) != before:
            yield f"they have read {path.removeprefix(_RELATIVE)}, which has changed"
    for path, before in inputs.folders.items():
        if digest_listing(_make_absolute(path, folders)) != before:
            yield f"they have listed {path.removeprefix(_RELATIVE)}, where other files are now"
    for name, before in inputs.environment.items():
        if recorder.digest_of_variable(name) != before:
            yield f"they have read the environment variable {name}, which has changed"
    for name, seed in inputs.drawn.items():
        if seed != data_seed:
            yield f"{name} draws numbers when it is imported, and did so under the data_seed {seed}"


def _list_folder_names(working_folder: Path | None, import_folders: Iterable[Path]) -> list[str]:
    """Return the working folder and the import folders, each as an absolute path and with symbolic links resolved.

    A file may have been recorded by either path. No path is returned twice. A working folder of None is left out.
    """
    folders = [*import_folders]
    if working_folder is not None:
        folders.insert(0, working_folder)
    both: list[str] = []
    for folder in folders:
        both += [str(Path(folder).absolute()), os.path.realpath(folder)]
    return list(dict.fromkeys(both))


def _make_relative(path: str, folders: Sequence[str]) -> str:
    """Return a path as ``./`` and its part below the first of ``folders`` that contains it; unchanged if none does."""
    for folder in folders:
        if path.startswith(f"{folder}{os.sep}"):
            return f"{_RELATIVE}{path.removeprefix(folder + os.sep)}"
    return path


def _make_absolute(path: str, folders: Sequence[str]) -> str:
    """Return the absolute path for ``path``, a result of `_make_relative`: in the first of ``folders`` where it exists.

    If it exists in none, the path in the first folder is returned. A path that is not relative, or any path if there
    are no folders, is returned unchanged.
    """
    if not path.startswith(_RELATIVE) or not folders:
        return path
    candidates = []
    for folder in folders:
        candidates.append(f"{folder}{os.sep}{path.removeprefix(_RELATIVE)}")
    return next((candidate for candidate in candidates if Path(candidate).exists()), candidates[0])


def _expand(declared: Iterable[str], folders: Sequence[str]) -> list[str]:
    """Return the files that the paths and patterns in ``declared`` name; a folder names all files below it.

    Relative paths begin in the first of ``folders``, or in the working folder if there are no folders, and ``~`` is the
    home folder. The results are absolute paths without symbolic links. A path or pattern that matches nothing is
    returned like a file, and a file that is named twice is there twice. Raises `TrainableError` if a pattern is not
    valid.
    """
    found: list[str] = []
    for named in declared:
        if folders:
            base = Path(folders[0])
        else:
            base = Path.cwd()
        path = base / Path(named).expanduser()
        # `Path.glob` takes only relative patterns, so it begins at the root
        anchor = Path(path.anchor)
        try:
            matching = sorted(anchor.glob(str(path.relative_to(anchor)))) or [path]
        except (ValueError, IndexError, NotImplementedError) as error:
            raise TrainableError(
                f"depends_on has {named!r}, expected a file, a folder, or a pattern such as data/*.csv or data/**/*.csv"
            ) from error
        for match in matching:
            if match.is_dir():
                below = sorted(match.rglob("*"))
            else:
                below = [match]
            for file in below:
                if not file.is_dir():
                    found.append(os.path.realpath(file))
    return found


def list_module_files(job: Job) -> dict[str, str]:
    """Return the files of those modules in `Job.code` that this process has imported, by the name of the module."""
    files = {}
    for name in job.code:
        # None if it is not imported or has no file
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None:
            files[name] = file
    return files


def list_changed_modules(job: Job) -> tuple[str, ...]:
    """Return the names of the author's modules that were imported here in another version than the session began with.

    Modules that were imported before reads were recorded are left out.
    """
    changed = []
    for name, file in list_module_files(job).items():
        digest = recorder.digest_of_module(file)  # None if it was imported before that
        if digest is not None and digest != job.code[name]:
            changed.append(name)
    return tuple(changed)


def _list_unobserved_imports(job: Job) -> Iterable[str]:
    """Yield a reason in words for each module of the trainable that was imported before reads were recorded."""
    for name, file in list_module_files(job).items():
        if recorder.digest_of_module(file) is None:
            yield f"{name} was imported before sweep, so that what it read then is not known"
