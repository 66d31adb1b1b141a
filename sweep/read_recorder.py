"""Records what a process reads besides its code: files, folders, environment variables, and the programs it starts.

The result of an earlier trial may be reused only if everything it has read is unchanged (`sweep.runner.memo`). Reads
are observed while a trial runs, by Python's audit events (PEP 578) and, for libraries that open files in C++, by
`sweep.native_readers`. They count if a line of the author's code led to them. What cannot be compared later, such as
the output of a program or an answer from the network, is recorded as a reason why the trial cannot be reused.

The record covers all trials of a sweep that a process has trained, and the import of the author's modules, because what
an earlier trial has read may still be in a cached model or in a variable of a module.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import sys
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from sweep.author_code import is_author_file, is_installed, is_own_file

ABSENT = "absent"
HASHED_BYTES = 256 * 2**20
"""Size limit for comparing files by content; larger ones are compared by size and modification time."""

MOST_FILES = 2_000
"""Number of files above which the files that a trial has read are not listed in the log."""

_SYSTEM_FOLDERS = ("/proc/", "/sys/", "/dev/")
_LOOKUPS = frozenset({"open", "os.listdir"})
"""Events by which the import system finds and reads modules."""
_BOUNDARIES = ("sweep/backends/worker.py", "sweep/functions.py")
"""Files that call the author's code; the frames that called these files have no part in what a trial reads."""

# by path and everything that changes with the content
_hashes: dict[tuple[str, int, int, int, int], str] = {}


class AuthorLine(NamedTuple):
    """The line of the author's code that caused an audit event."""

    line: str  # such as "models.py:12 in model "
    files: tuple[str, ...] = ()  # files of this line and of the author's lines that called it


_KINDS = ("files", "folders", "environment", "unknown")


class Reads:
    """The files, folders and environment variables that some code has read, each with a fingerprint."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}  # fingerprint by path
        self.folders: dict[str, str] = {}  # digest of the names in each folder, by path
        self.environment: dict[str, str] = {}  # digest of the value, by name
        self.unknown: dict[str, None] = {}  # reasons why some reads cannot be compared later
        self.by_file: dict[str, Reads] = {}  # reads that lines in each of the author's files led to

    def add(self, other: Reads) -> None:
        """Add the reads ``other`` of other code; an item that is recorded already keeps its fingerprint.

        The records in `by_file` are added likewise, file by file.
        """
        for name in _KINDS:
            for key, value in getattr(other, name).items():
                getattr(self, name).setdefault(key, value)
        for file, reads in other.by_file.items():
            self.by_file.setdefault(file, Reads()).add(reads)

    def to_json_dict(self) -> dict[str, dict[str, str | None]]:
        """Return the reads as JSON types, without `by_file`, the reads by each of the author's files.

        The keys are ``files``, ``folders``, ``environment`` and ``unknown``, each with a copy of that attribute.
        """
        return {name: dict(getattr(self, name)) for name in _KINDS}

    @classmethod
    def from_json_dict(cls, content: dict[str, dict[str, str | None]]) -> Reads:
        """Create the reads from the result of `to_json_dict`, with an empty `by_file`.

        Raises KeyError if one of the four keys is missing.
        """
        reads = cls()
        for name in _KINDS:
            getattr(reads, name).update(content[name])
        return reads


class ReadRecorder:
    """Records what this process reads, from `install` on.

    There is only one instance, `recorder`, because an audit hook cannot be removed.
    """

    def __init__(self) -> None:
        self._reads = Reads()
        self._all_apart = Reads()  # reads inside `apart` blocks
        self._sweep_name = ""  # name of the sweep whose trials run
        self._written: set[str] = set()  # files and folders created by this process
        # digests of variables before the author's code set them
        self._variables_before: dict[str, str] = {}
        self._excluded: list[str] = []  # folders of sweep itself, each with a separator at the end
        # digest of each of the author's modules that ran, by file
        self._module_digests: dict[str, str] = {}
        self._in_trial = 0  # number of open `in_trial` blocks, or more after `record_always`
        # its attribute `on` says whether this thread handles an event
        self._busy = threading.local()
        self._is_installed = False
        self._is_paused = False
        self._handlers: dict[str, Callable[[tuple[Any, ...]], None]] = {
            "open": self._on_open,
            "exec": self._on_exec,
            "os.listdir": self._on_listdir,
            "os.scandir": self._on_listdir,
            "os.mkdir": self._on_mkdir,
            "os.rename": self._on_rename,
            "os.link": self._on_link,
            "os.symlink": self._on_symlink,
            "ctypes.dlopen": self._on_library_load,
            "os.putenv": self._on_variable_set,
            "os.unsetenv": self._on_variable_set,
            "sqlite3.connect": self._on_sqlite_connect,
            "builtins.input": lambda args: self._note_unknown("asks for input"),
            **dict.fromkeys(_PROGRAM_EVENTS, self._on_program_start),
            **dict.fromkeys(_NETWORK_EVENTS, self._on_network_use),
        }

    def install(self) -> None:
        """Start to record, for the rest of the process; further calls do nothing.

        This adds an audit hook, and changes the class of `os.environ`.
        """
        if self._is_installed:
            return
        self._is_installed = True
        os.environ.__class__ = _RecordedEnvironment
        sys.addaudithook(self._on_event)

    def pause(self) -> None:
        """Record no audit event and no environment variable until `resume`.

        None of the author's code runs in this process before that, but libraries that are imported cause tens of
        thousands of events, none of which would be recorded.
        """
        self._is_paused = True

    def resume(self) -> None:
        """Record from now on. Needed before the author's code is imported; does nothing unless paused."""
        self._is_paused = False

    def begin_session(self, name: str, modules: Container[str]) -> None:
        """Discard the reads of an earlier sweep's trials when trials of the sweep ``name`` begin in this process.

        Does nothing if this sweep's trials are the latest already.

        Reads by the trainable's own files, whose paths are in ``modules``, are kept, because these modules stay
        imported with everything they have read into variables and caches. Reads by cells of a notebook are kept too.
        Which files this process has written is forgotten.
        """
        if name == self._sweep_name:
            return
        before = self._reads
        self._sweep_name = name
        self._reads = Reads()
        self._written.clear()
        for file in before.by_file:
            # IPython and ipykernel name cells like this
            is_cell = file.startswith("<") or "ipykernel" in file
            if is_cell or file in modules:
                self._reads.add(before.by_file[file])
        # of all files: the modules of a later sweep may be others
        self._reads.by_file = before.by_file

    def continue_session(self, name: str) -> None:
        """Keep all reads so far when trials of the sweep ``name`` begin, because they may use data read earlier.

        Files that earlier trials have written and that still exist count as read from now on, and `exclude` is undone.
        """
        self._sweep_name = name
        for path in self._written:
            if Path(path).is_file():
                self._reads.files.setdefault(path, fingerprint_file(path))
        self._written.clear()
        self._excluded.clear()

    @contextmanager
    def in_trial(self) -> Iterator[None]:
        """Record all reads inside the block; outside of it, only reads by modules during their import are recorded.

        Blocks may be nested. Reads in other threads are recorded, too.
        """
        self._in_trial += 1
        try:
            yield
        finally:
            self._in_trial -= 1

    def record_always(self) -> None:
        """Record all reads from now on, as if inside `in_trial`, because this process only runs trials."""
        self._in_trial += 1

    def exclude(self, folder: Path) -> None:
        """Do not record ``folder`` and what is below it, one of sweep's own such as that of a trial's checkpoints.

        This holds until `continue_session`.
        """
        prefix = f"{os.path.realpath(folder)}{os.sep}"
        if prefix not in self._excluded:
            self._excluded.append(prefix)

    @contextmanager
    def apart(self) -> Iterator[Reads]:
        """Record reads inside the block separately, not in `reads`; yield the separate record.

        It is added to `reads_apart`, which has all separate records, at the end of the block.
        """
        outer = self._reads
        apart = Reads()
        self._reads = apart
        try:
            yield apart
        finally:
            self._reads = outer
            self._all_apart.add(apart)

    def absorb(self, reads: Reads) -> None:
        """Add the reads of another process, such as another worker of the same trial.

        A file that both have read keeps its first fingerprint; that it has changed between the two reads is a reason
        why the trial cannot be reused. Files that this process has written do not count; they are also removed from
        ``reads``.
        """
        reads.files = {
            path: found for path, found in reads.files.items() if not self._was_written(path)
        }
        for path, found in reads.files.items():
            if self._reads.files.get(path, found) != found:
                self._reads.unknown.setdefault(
                    f"reads {path}, which has changed since it was read first", None
                )
        self._reads.add(reads)

    @property
    def reads(self) -> Reads:
        """All reads so far of the present session, except those inside `apart`."""
        return self._reads

    @property
    def reads_apart(self) -> Reads:
        """All reads inside `apart` blocks: the inputs of the data that this process has loaded."""
        return self._all_apart

    def digest_of_module(self, file: str) -> str | None:
        """Return the SHA-256 of a module's source at the time when it was executed; None if that was not recorded."""
        return self._module_digests.get(os.path.realpath(file))

    def digest_of_variable(self, name: str) -> str:
        """Return the digest of an environment variable's value from before the author's code changed it.

        If the code has not changed it, that is the present value. If the variable was not set, return `ABSENT`.
        """
        return self._variables_before.get(name) or digest_environment_variable(name)

    def note_native_read(
        self, paths: Iterable[object], *, reader: str, folder: bool = False
    ) -> None:
        """Record the reading of files or folders by the native function ``reader``, if the author's code caused it.

        A path may be that of a file, that of a folder, of which all files are read, or a pattern of files. Once more
        than `MOST_FILES` files are recorded, or one path stands for more files and folders, the rest of the path is
        recorded as one unknown read. With ``folder``, the paths are those of folders that are only listed. Other
        values, such as a symbolic tensor, are recorded as unknown reads, as are addresses of other machines, and paths
        for which recording raises an error. TensorFlow's files in memory (``ram://``) are not recorded.
        """
        with self._ignoring_nested_events() as is_free:
            if not is_free:
                return
            place = self._find_author_line()
            if place is None:
                return
            try:
                for path in paths:
                    self._add_native_read(path, place, reader, folder=folder)
            except Exception as error:  # an error here would end the author's call
                reason = f"{reader} could not be recorded ({type(error).__name__})"
                self._add_unknown(f"{place.line}{reason}", place)

    def _add_native_read(
        self, path: object, place: AuthorLine, reader: str, *, folder: bool
    ) -> None:
        """Add what the native function ``reader`` reads if it gets ``path``, as `note_native_read` describes."""
        if not isinstance(path, str | bytes | os.PathLike):
            self._add_unknown(f"{place.line}{reader} reads files inside a graph", place)
            return
        name = os.fsdecode(path).removeprefix("file://")
        if name.startswith(_IN_MEMORY):
            return
        if _ADDRESS.match(name):
            self._add_unknown(f"{place.line}{_NETWORK_USE}", place)
            return
        if folder:
            self._add_folder(name, place)
            return
        seen: set[Path] = set()  # some are yielded several times
        for part, is_folder in _list_native_reads(name):
            if part in seen:
                continue
            seen.add(part)
            if is_folder:
                self._add_folder(part, place)
            else:
                self._add_file(part, place)
            # both are counted: not all that are seen are recorded, and others were recorded before
            if max(len(self._reads.files), len(seen)) > MOST_FILES:
                self._add_unknown(_TOO_MANY_FILES, place)
                return

    def note_native_write(self, path: object) -> None:
        """Record a file as created by this process, if the author's code caused it; reading it later does not count.

        Does nothing if the author's code has read the file before.
        """
        with self._ignoring_nested_events() as is_free:
            if is_free:
                self._note_written(path)

    def note_network(self) -> None:
        """Record an unknown read for data from another process or machine, if the author's code caused it.

        So the trial cannot be reused, because nobody can tell whether these data are unchanged.
        """
        self._note_unknown(_NETWORK_USE)

    def note_unknown_source(self, source: str, *, reader: str) -> None:
        """Record an unknown read for the native function ``reader``, if the author's code caused it.

        ``source`` says what it reads, such as "a LakeTable", an object of which sweep does not know the files.
        """
        self._note_unknown(f"{reader} reads {source}")

    def note_process(self) -> None:
        """Record that a process was started, whose reads cannot be recorded, if the author's code starts it."""
        self._note_unknown("starts a program")

    # ---- events

    def _on_event(self, event: str, args: tuple[Any, ...]) -> None:
        """Call the handler of an audit event, if it has one; record an error of the handler as an unknown read.

        ``event`` is its name and ``args`` are its arguments, as PEP 578 describes. Nothing is recorded while recording
        is paused, inside another handler of this thread, or when the import system finds modules.
        """
        if self._is_paused:
            return
        handle = self._handlers.get(event)
        if handle is None:
            return
        if event in _LOOKUPS and _is_finding_modules(sys._getframe(1)):
            return  # a shortcut for thousands of events: `_find_author_line` would return None, but is slow
        with self._ignoring_nested_events() as is_free:
            if is_free:
                try:
                    handle(args)
                except Exception as error:  # an error here would end the author's call
                    reason = f"{event} could not be recorded ({type(error).__name__})"
                    self._add_unknown(reason, AuthorLine(""))

    @contextmanager
    def _ignoring_nested_events(self) -> Iterator[bool]:
        """Ignore audit events of this thread inside the block; yield True, or False inside of another such block."""
        if getattr(self._busy, "on", False):
            yield False
            return
        self._busy.on = True
        try:
            yield True
        finally:
            self._busy.on = False

    def _on_open(self, args: tuple[Any, ...]) -> None:
        """Record a file that is opened as read or, if it is opened for writing and new or emptied, as created.

        Only files that the author's code causes to be opened are recorded. A missing file that is opened for reading
        counts as read. Opening an existing file only to append to it is not recorded. A relative path that may belong
        to a folder's descriptor, as `os.open` accepts one, is recorded as an unknown read, unless `shutil.rmtree` opens
        it.
        """
        path, flags = args[0], args[2]  # between them is the mode, which is None for `os.open`
        if not isinstance(path, str | bytes | os.PathLike) or not isinstance(flags, int):
            return  # a file descriptor: its file was opened earlier
        # `os.open`, which has no mode, may get a folder's descriptor, which its event does not name. If it may create
        # the file, the path is taken as one in the working folder.
        is_by_descriptor = (
            args[1] is None and not flags & os.O_CREAT and not _make_path(path).is_absolute()
        )
        if is_by_descriptor:
            if not _is_removal():
                self._note_unknown(
                    "opens a file by a path that may be relative to a folder's descriptor"
                )
            return
        access = flags & os.O_ACCMODE
        is_new = not _make_path(path).exists()
        is_emptied = flags & os.O_TRUNC
        if access != os.O_RDONLY and (is_new or is_emptied):
            # not a folder: `NamedTemporaryFile` passes one to `open`, with a function that creates the file in it
            if is_new or _make_path(path).is_file():
                self._note_written(path)
        elif access != os.O_WRONLY:  # code that only appends sees nothing of the file
            self._note_read(path, self._add_file)

    def _note_read(self, path: object, add: Callable[[object, AuthorLine], None]) -> None:
        """Call ``add`` with the path of a file or folder and the author's line that reads it, to record it.

        Does nothing if reading it does not count (`_is_left_out`), or no line of the author's code causes it.
        """
        # so it is for most files; checked first because inspecting the stack takes longer
        if self._resolve(path) is None:
            return
        place = self._find_author_line()
        if place is not None:
            add(path, place)

    def _add_file(self, path: object, place: AuthorLine) -> None:
        """Add a file with its fingerprint, unless this process has created it or reading it does not count.

        If the file has changed since its first read, add an unknown read instead. Above `MOST_FILES` files, add one as
        well.
        """
        resolved = self._resolve(path)
        if resolved is None or self._was_written(resolved):
            return
        name = self._choose_recorded_path(path, resolved)
        found = fingerprint_file(name)
        if self._reads.files.get(name, found) != found:
            self._add_unknown(
                f"{place.line}reads {name}, which has changed since it was read first", place
            )
            return
        for reads in self._find_records(place):
            reads.files.setdefault(name, found)
        if len(self._reads.files) > MOST_FILES:
            self._add_unknown(_TOO_MANY_FILES, place)

    def _add_folder(self, path: object, place: AuthorLine) -> None:
        """Add a folder with the digest of its names, unless this process has created it or reading it does not count.

        Names of files that this process has created do not count. A folder that was added before keeps its digest.
        """
        resolved = self._resolve(path)
        if resolved is None or self._was_written(resolved):
            return
        name = self._choose_recorded_path(path, resolved)
        for reads in self._find_records(place):
            reads.folders.setdefault(name, digest_listing(resolved, self._written))

    def _add_unknown(self, reason: str, place: AuthorLine) -> None:
        """Add an unknown read: ``reason`` says why what the trial has read cannot be compared later.

        So the trial cannot be reused. A reason that was added before is not added again.
        """
        for reads in self._find_records(place):
            reads.unknown.setdefault(reason, None)

    def _find_records(self, place: AuthorLine) -> list[Reads]:
        """Return the records that a read by the line ``place`` is added to: that of all reads, and one for each file.

        The files are those of the author that led to this line. A missing record is created.
        """
        return [
            self._reads,
            *(self._reads.by_file.setdefault(file, Reads()) for file in place.files),
        ]

    def _on_listdir(self, args: tuple[Any, ...]) -> None:
        """Record the listing of a folder, given by its path or by a descriptor; None is the working folder.

        Only listings that the author's code causes are recorded. A descriptor whose folder cannot be found is recorded
        as an unknown read. Descriptors that `shutil.rmtree` lists are not recorded.
        """
        path = "." if args[0] is None else args[0]
        if isinstance(path, int):  # a descriptor
            if _is_removal():  # `shutil.rmtree` lists folders by their descriptors
                return
            link = Path(f"/proc/self/fd/{path}")  # leads to the folder, on Linux
            if link.is_symlink():
                path = link.readlink()
            else:
                path = None
        if isinstance(path, str | bytes | os.PathLike):
            self._note_read(path, self._add_folder)
        else:
            self._note_unknown("lists a folder by its descriptor")

    def _on_rename(self, args: tuple[Any, ...]) -> None:
        """Record the new name of a file or folder as created by this process, if it has created the old one.

        Do nothing if the author's code does not cause the renaming, or has read the file of the new name before.
        """
        source = self._resolve(args[0])
        if source is not None and self._was_written(source):
            self._note_written(args[1])

    def _on_mkdir(self, args: tuple[Any, ...]) -> None:
        """Record a new folder as created by this process, if the author's code creates it."""
        if not _make_path(args[0]).exists():  # otherwise it fails, as `exist_ok` expects
            self._note_written(args[0])

    def _on_link(self, args: tuple[Any, ...]) -> None:
        """Record the target of a hard link as read, and a new link as created, if the author's code makes the link."""
        self._note_read(args[0], self._add_file)  # reading the new name reads this file
        self._on_symlink(args)

    def _on_symlink(self, args: tuple[Any, ...]) -> None:
        """Record a new link as created by this process, if the author's code creates it."""
        if not os.path.lexists(args[1]):  # otherwise it fails
            self._note_written(args[1])

    def _on_library_load(self, args: tuple[Any, ...]) -> None:
        """Record a shared library as read, if the author's code causes that it is loaded by its path.

        One that is loaded by its name does not count.
        """
        # other names are found among the system's libraries
        if isinstance(args[0], str) and os.sep in args[0]:
            self._note_read(args[0], self._add_file)

    def _on_sqlite_connect(self, args: tuple[Any, ...]) -> None:
        """Record a database file as read if it exists, otherwise as created by this process.

        It is recorded if the author's code causes this, but not if it is a temporary database or one in memory.
        """
        path = os.fsdecode(args[0])
        if path.startswith("file:"):
            path = path.removeprefix("file:").partition("?")[0]
        if not path or path == ":memory:":  # "" is a temporary database
            return
        if _make_path(path).exists():
            self._note_read(path, self._add_file)
        else:
            self._note_written(path)

    def _on_variable_set(self, args: tuple[Any, ...]) -> None:
        """Keep the digest of the value that an environment variable has before the author's code first changes it.

        Later changes are ignored, as are those that other code makes.
        """
        name = os.fsdecode(args[0])
        if name not in self._variables_before and self._find_author_line() is not None:
            self._variables_before[name] = digest_environment_variable(name)

    def _on_program_start(self, args: tuple[Any, ...]) -> None:
        """Record the start of a program as an unknown read, if the author's code causes it.

        Programs that only report about the machine, such as ``nproc``, are not recorded.
        """
        if not _reports_on_machine(args):
            self.note_process()

    def _on_network_use(self, args: tuple[Any, ...]) -> None:
        """Record the use of a network as an unknown read, if the author's code causes it."""
        self.note_network()

    def _on_exec(self, args: tuple[Any, ...]) -> None:
        """Record the digest of the source of an author's module when it is executed; ignore all other code.

        If a line of the author's code caused that, the file of the module is also recorded as read.
        """
        code = args[0]
        if (
            not isinstance(code, CodeType)
            or code.co_name != "<module>"
            or code.co_filename.startswith("<")  # it comes from no file
        ):
            return
        if not is_author_file(code.co_filename):
            return
        file = Path(code.co_filename)
        if not file.is_file():
            return
        place = self._find_author_line(importing=True)
        # the name of the module may be computed, perhaps from what was read
        if place is not None:
            self._add_file(file, place)
        # after `_add_file`, which leaves out files that are recorded here
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        self._module_digests[os.path.realpath(file)] = digest

    def note_environment_read(self, name: object) -> None:
        """Record the environment variable ``name`` as read, if the author's code itself reads it rather than a library.

        It is added to the record of all reads, and to the records of the author's files that led to this read, with the
        value from before the author's code changed it. A record that has the variable already stays as it is. Outside
        of trials, only reads at the top level of a module that is being imported (other than ``__main__``) count.
        """
        if self._is_paused or not isinstance(name, str):
            return
        with self._ignoring_nested_events() as is_free:
            if not is_free:
                return
            place = self._find_asking_line()
            if place is None:
                return
            for reads in self._find_records(place):
                reads.environment.setdefault(name, self.digest_of_variable(name))

    # ---- what counts

    def _note_unknown(self, what: str) -> None:
        """Record a reason why the trial cannot be reused, if the author's code caused the present event.

        The reason is the author's line followed by ``what``.
        """
        place = self._find_author_line()
        if place is not None:
            self._add_unknown(f"{place.line}{what}", place)

    def _note_written(self, path: object) -> None:
        """Record a file as created by this process, if the author's code has created it and has not read it before.

        Does nothing if reading the file would not count anyway (`_is_left_out`).
        """
        resolved = self._resolve(path)
        if resolved is None:
            return
        names = {resolved, self._choose_recorded_path(path, resolved)}
        is_known = not names.isdisjoint({*self._reads.files, *self._reads.folders})
        if not is_known and self._find_author_line() is not None:
            self._written.add(resolved)

    def _was_written(self, name: str) -> bool:
        """Return whether this process has created the file ``name`` (a path) or one of the folders that contain it."""
        return name in self._written or any(
            str(parent) in self._written for parent in Path(name).parents
        )

    def _resolve(self, path: object) -> str | None:
        """Return the absolute path of a file with all links resolved; None if reading it does not count.

        None is also returned for anything that is not a path, such as a file descriptor.
        """
        if not isinstance(path, str | bytes | os.PathLike):
            return None
        name = os.path.realpath(os.fsdecode(path))
        return None if self._is_left_out(name) else name

    def _choose_recorded_path(self, path: Any, resolved: str) -> str:
        """Return the path under which a file is recorded: the one that the author's code uses, not the resolved one.

        A link on the path may lead elsewhere when the paths are compared later. ``resolved``, the path with all links
        resolved, is returned if this process has created ``path`` or a folder above it, or if ``..`` follows a link.
        """
        name = os.path.normpath(_make_path(path).absolute())
        is_same_file = os.path.realpath(name) == resolved  # false if `..` follows a link
        if is_same_file and not self._was_written(name):
            return name
        return resolved

    def _is_left_out(self, name: str) -> bool:
        """Return whether reading the file or folder ``name``, a path without links, does not count.

        That is so for files of the system, of installed packages and of sweep, for those in folders passed to
        `exclude`, for compiled files, and for modules whose execution was recorded.
        """
        return (
            name.startswith(_SYSTEM_FOLDERS)
            or name.endswith((".pyc", "__pycache__"))
            or name in self._module_digests
            or any(f"{name}{os.sep}".startswith(folder) for folder in self._excluded)
            or is_installed(name)
            or is_own_file(name)
        )

    def _find_author_line(self, *, importing: bool = False) -> AuthorLine | None:
        """Return the line of the author's code that causes the present event; None if there is none.

        It is the line of the innermost frame of the author's code of which reads are recorded at present; other frames
        of that code are skipped (`_is_counted`). Frames beyond sweep's call of the author's code are not searched.
        Return None for file access by the import system while it finds modules, unless ``importing`` is true.

        If no such frame is found while a trial runs, an event in another thread than the main one counts nevertheless,
        because thread pools call functions of libraries directly; the line is then ``a thread``. Return None, too, if
        there is code of sweep or Ray on the stack of that thread.
        """
        frame: FrameType | None = sys._getframe(1)
        has_seen_sweep_or_ray = False
        has_seen_python_only = True  # whether all frames so far were of Python's own library
        while frame is not None:
            file = frame.f_code.co_filename
            if file == __file__:  # the recorder's own frames
                frame = frame.f_back
                continue
            if has_seen_python_only and not importing and _is_finding_modules(frame):
                return None  # it looks for modules, which are recorded as code
            has_seen_python_only = has_seen_python_only and _is_of_python(file)
            if is_author_file(file) and self._is_counted(frame):
                return _make_author_line(frame)
            # it calls the author's code, of which no frame was found
            if file.endswith(_BOUNDARIES):
                return None
            if is_own_file(file) or f"{os.sep}ray{os.sep}" in file:
                has_seen_sweep_or_ray = True
            frame = frame.f_back
        is_in_main_thread = threading.current_thread() is threading.main_thread()
        if self._in_trial and not is_in_main_thread and not has_seen_sweep_or_ray:
            return AuthorLine("a thread ")
        return None

    def _is_counted(self, frame: FrameType) -> bool:
        """Return whether reads by a frame of the author's code are recorded at present.

        Outside of trials, only the top level of a module other than ``__main__`` during its import is recorded.
        """
        if self._in_trial:
            return True
        return frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") != "__main__"

    def _find_asking_line(self) -> AuthorLine | None:
        """Return the author's line that reads an environment variable; None if a library reads it.

        Frames of Python's own library in between are skipped. Return None, too, if reads by the line are not recorded
        at present (`_is_counted`).
        """
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            file = frame.f_code.co_filename
            if is_author_file(file):
                if not self._is_counted(frame):
                    return None
                return _make_author_line(frame)
            if file != __file__ and not _is_of_python(file):
                return None
            frame = frame.f_back
        return None


class _RecordedEnvironment(type(os.environ)):  # type: ignore[misc]  # the class of `os.environ` has no public name
    """The class of `os.environ` while recording: each variable that is read is recorded."""

    def __getitem__(self, name: Any) -> Any:
        recorder.note_environment_read(name)
        return super().__getitem__(name)


def _make_author_line(frame: FrameType) -> AuthorLine:
    """Return the line of a frame, and the author's files from this frame outwards, up to sweep's call of their code.

    The line is in words, such as ``models.py:12 in model`` with a space at the end.
    """
    code = frame.f_code
    files: dict[str, None] = {}
    outer: FrameType | None = frame
    while outer is not None and not outer.f_code.co_filename.endswith(_BOUNDARIES):
        if is_author_file(outer.f_code.co_filename):
            files[outer.f_code.co_filename] = None
        outer = outer.f_back
    return AuthorLine(
        f"{Path(code.co_filename).name}:{frame.f_lineno} in {code.co_name} ", tuple(files)
    )


def fingerprint_file(path: str) -> str:
    """Return a fingerprint of a file's content; `ABSENT` if the file does not exist.

    It consists of size and SHA-256 or, for files above `HASHED_BYTES`, size and modification time. A folder, device or
    unreadable file has a fingerprint that says so; no OSError is raised. While size, times and inode of a file stay the
    same, this process does not read it again.
    """
    try:
        found = Path(path).stat()
    except OSError:
        return ABSENT
    if stat.S_ISDIR(found.st_mode):
        return "folder"
    if not stat.S_ISREG(found.st_mode):
        return "device"
    if found.st_size > HASHED_BYTES:
        return f"{found.st_size} bytes of {found.st_mtime_ns}"
    key = path, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino
    if key not in _hashes:
        try:
            with Path(path).open("rb") as file:
                _hashes[key] = (
                    f"{found.st_size} bytes {hashlib.file_digest(file, 'sha256').hexdigest()}"
                )
        except OSError as error:
            return f"unreadable ({error.strerror})"
    return _hashes[key]


def digest_listing(path: str, own: Container[str] = ()) -> str:
    """Return a digest of the names in a folder; `ABSENT` if the folder cannot be listed.

    ``__pycache__`` and the paths in ``own``, which begin with ``path`` as it is given, do not count.
    """
    try:
        names = [
            entry.name
            for entry in Path(path).iterdir()
            if entry.name != "__pycache__" and str(entry) not in own
        ]
    except OSError:
        return ABSENT
    names.sort()
    return hashlib.sha256("\0".join(names).encode("utf-8", "surrogateescape")).hexdigest()


def _list_native_reads(path: str) -> Iterator[tuple[Path, bool]]:
    """Yield each file and folder that a native function reads if it gets ``path``, with whether it is a folder.

    They are the file itself; a folder and all that is below it; or the matches of a pattern such as ``data/*.parquet``
    and the folders in which they are searched. A missing file is yielded too, as is a pattern without a match. Some
    paths are yielded several times.
    """
    parts = Path(path).parts
    first_wildcard = _find_first_wildcard(parts)
    if first_wildcard is None or os.path.lexists(path):  # a name may have brackets
        yield from _list_below(Path(path))
        return
    for folder in list_pattern_folders(path):
        yield folder, True
    base = Path(*parts[:first_wildcard])
    matches = sorted(base.glob(str(Path(*parts[first_wildcard:]))))
    if not matches:
        yield Path(path), False
    for match in matches:
        yield from _list_below(match)


def list_pattern_folders(pattern: str) -> Iterator[Path]:
    """Yield each folder that a pattern such as ``data/*/*.parquet`` looks into: ``data``, and the folders in it.

    The first is that before the first part with a wildcard, even if it does not exist. That of a path without wildcards
    is the folder of its file.
    """
    parts = Path(pattern).parts
    first_wildcard = _find_first_wildcard(parts)
    if first_wildcard is None:
        yield Path(pattern).parent
        return
    base = Path(*parts[:first_wildcard])
    yield base
    # fixed parts as well: what they name may be missing in one folder, and come later
    for end in range(first_wildcard + 1, len(parts)):
        for folder in sorted(base.glob(str(Path(*parts[first_wildcard:end])))):
            if folder.is_dir():
                yield folder


def _find_first_wildcard(parts: Sequence[str]) -> int | None:
    """Return the position of the first of a path's ``parts`` that has a wildcard; None if none has."""
    for position, part in enumerate(parts):
        if not _WILDCARDS.isdisjoint(part):
            return position
    return None


def _list_below(path: Path, above: frozenset[str] = frozenset()) -> Iterator[tuple[Path, bool]]:
    """Yield a file or folder and all that is below it, each with whether it is a folder.

    A missing file is yielded, too. Links are followed, except those to a folder that contains them, which are only
    yielded. ``above`` are the resolved paths of the folders that contain ``path``. Raises OSError if a folder cannot be
    listed.
    """
    is_folder = path.is_dir()
    yield path, is_folder
    resolved = os.path.realpath(path)
    if is_folder and resolved not in above:
        for entry in sorted(path.iterdir()):
            yield from _list_below(entry, above | {resolved})


def _is_finding_modules(frame: FrameType) -> bool:
    """Return whether a frame belongs to the import system and finds or reads modules.

    Return False for one that reads the data of a package, as `pkgutil.get_data` and `importlib.resources` do.
    """
    file = frame.f_code.co_filename
    if not file.startswith(_IMPORT_SYSTEM) or file.startswith(_RESOURCES):
        return False
    if frame.f_code.co_name != "get_data" or frame.f_back is None:
        return True
    # a loader's `get_data` reads modules for these two, and data for all others
    return frame.f_back.f_code.co_name in ("get_code", "get_source")


def _is_of_python(file: str) -> bool:
    """Return whether a frame's file belongs to Python's own library; False for installed packages."""
    return file.startswith("<frozen") or (file.startswith(_PYTHON) and "site-packages" not in file)


def _is_removal() -> bool:
    """Return whether `shutil.rmtree` causes the present event; it opens and lists folders only to remove them."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return (
        frame is not None
        and frame.f_code.co_filename == shutil.__file__
        and "rmtree" in frame.f_code.co_name
    )


def _reports_on_machine(args: tuple[Any, ...]) -> bool:
    """Return whether a started program only reports about the machine, such as ``nproc``.

    ``args`` are the arguments of the audit event. Return False if the program is part of one text, as in `os.system`.
    """
    # `subprocess` passes the program and its arguments as a list in second place; `os.system` passes one text
    command = args[1] if len(args) > 1 else None
    if not isinstance(command, list | tuple) or not command:
        return False
    program = command[0]
    return isinstance(program, str) and Path(program).name in _MACHINE_PROGRAMS


def _make_path(path: str | bytes | os.PathLike[Any]) -> Path:
    """Return a path of any type as a `Path`."""
    return Path(os.fsdecode(path))


def digest_environment_variable(name: str) -> str:
    """Return a digest of an environment variable, whose value may be secret; `ABSENT` if it is not set."""
    value = os.environb.get(os.fsencode(name))  # unlike `os.environ`, it is not recorded
    if value is None:
        return ABSENT
    return hashlib.sha256(name.encode() + b"\0" + value).hexdigest()


_WILDCARDS = frozenset("*?[")
_ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
_IN_MEMORY = "ram://"  # TensorFlow's files in the memory of this process
_NETWORK_USE = "speaks to another process or machine"
_TOO_MANY_FILES = f"more than {MOST_FILES:,} files were read"
_PYTHON = f"{Path(os.__file__).parent}{os.sep}"
_IMPORT_SYSTEM = (
    "<frozen importlib",
    "<frozen zipimport",
    f"{_PYTHON}importlib{os.sep}",
    f"{_PYTHON}pkgutil.py",
)
_RESOURCES = f"{_PYTHON}importlib{os.sep}resources{os.sep}"
_MACHINE_PROGRAMS = (
    "getconf",
    "hostname",
    "ldconfig",
    "lscpu",
    "nproc",
    "nvidia-smi",
    "sysctl",
    "uname",
)
_PROGRAM_EVENTS = (
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.spawn",
    "pty.spawn",
)
_NETWORK_EVENTS = (
    "socket.connect",
    "socket.getaddrinfo",
    "socket.gethostbyname",
    "socket.sendto",
    "socket.sendmsg",
    "urllib.Request",
)

recorder = ReadRecorder()
"""The recorder of this process."""
