"""Informs the recorder of files that libraries open in native code, for which Python raises no audit event.

The functions listed here are replaced by ones that record their path and call the original, as soon as their library is
imported.
"""

from __future__ import annotations

import functools
import importlib.machinery
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple, TypeAlias

from sweep.read_recorder import list_pattern_folders, recorder

Use: TypeAlias = Literal[
    "file",
    "source",
    "query",
    "opened",
    "prefix",
    "folder",
    "pattern",
    "written",
    "copied",
    "process",
]
"""What a native function does with the file that its first argument names.

``source``: it reads the file, unless the argument is no path but data, such as bytes; ``~`` is the home folder.
``query``: it reads the files that its first argument, a text in SQL, names. ``opened``: its second argument, the mode,
says whether it reads or creates the file. ``prefix``: it reads all files whose paths begin with it. ``pattern``: it
lists the folders that the pattern looks into. ``copied``: it reads its first argument and writes its second.
``process``: it starts a process, whatever its arguments.
"""


class NativeReader(NamedTuple):
    """A library function that opens files in native code, and the position of the path among its arguments."""

    module: str
    name: str  # may be "Class.method" or "module.function"
    use: Use
    position: int = 0  # of the argument, not counting ``self``
    is_public_class: bool = False  # authors may derive classes from it, or ask for instances of it


_PATHS = ("filename", "path", "file", "name")
"""Names of arguments that are paths, for functions whose arguments Python does not know."""

_TENSORFLOW_OPS = "tensorflow.python.ops"
_TENSORFLOW_FILES = "tensorflow.python.lib.io._pywrap_file_io"
_TENSORFLOW_RECORDS = "tensorflow.python.lib.io._pywrap_record_io"

READERS: dict[str, tuple[NativeReader, ...]] = {
    "tensorflow": (
        NativeReader(_TENSORFLOW_FILES, "BufferedInputStream", "file"),
        NativeReader(_TENSORFLOW_FILES, "ReadFileToString", "file"),
        NativeReader(_TENSORFLOW_RECORDS, "RecordIterator", "file"),
        NativeReader(_TENSORFLOW_FILES, "GetChildren", "folder"),
        NativeReader(_TENSORFLOW_FILES, "GetMatchingFiles", "pattern"),
        NativeReader(_TENSORFLOW_FILES, "WritableFile", "written"),
        NativeReader(_TENSORFLOW_FILES, "WriteStringToFile", "written"),
        NativeReader(_TENSORFLOW_FILES, "CopyFile", "copied"),
        NativeReader(_TENSORFLOW_FILES, "RenameFile", "copied"),
        NativeReader(f"{_TENSORFLOW_OPS}.gen_io_ops", "read_file", "file"),
        NativeReader(f"{_TENSORFLOW_OPS}.gen_io_ops", "matching_files", "pattern"),
        NativeReader("tensorflow", "io.matching_files", "pattern"),
        NativeReader("tensorflow", "io.write_file", "written"),
        NativeReader(f"{_TENSORFLOW_OPS}.gen_io_ops", "restore_v2", "prefix"),
        NativeReader(f"{_TENSORFLOW_OPS}.gen_io_ops", "save_v2", "written"),
        NativeReader("tensorflow.python.data.ops.readers", "TFRecordDatasetV2.__init__", "file"),
        NativeReader("tensorflow.python.data.ops.readers", "TextLineDatasetV2.__init__", "file"),
        NativeReader(
            "tensorflow.python.data.ops.readers", "FixedLengthRecordDatasetV2.__init__", "file"
        ),
        NativeReader(f"{_TENSORFLOW_OPS}.gen_experimental_dataset_ops", "csv_dataset", "file"),
        NativeReader(f"{_TENSORFLOW_OPS}.gen_experimental_dataset_ops", "csv_dataset_v2", "file"),
        NativeReader(f"{_TENSORFLOW_OPS}.gen_experimental_dataset_ops", "sql_dataset", "file", 1),
        NativeReader(f"{_TENSORFLOW_OPS}.gen_experimental_dataset_ops", "load_dataset", "prefix"),
        NativeReader(
            f"{_TENSORFLOW_OPS}.gen_lookup_ops", "initialize_table_from_text_file_v2", "file", 1
        ),
        NativeReader(
            "tensorflow.python.training.py_checkpoint_reader", "NewCheckpointReader", "prefix"
        ),
    ),
    "scipy.io": (
        NativeReader("scipy.io", "mmread", "source"),
        NativeReader("scipy.io", "mminfo", "source"),
    ),
    "h5py": (NativeReader("h5py", "File.__init__", "opened"),),
    "multiprocessing.process": (
        NativeReader("multiprocessing.process", "BaseProcess.start", "process"),
    ),
    "cv2": (NativeReader("cv2", "imread", "file"), NativeReader("cv2", "imreadmulti", "file")),
    "polars": (
        *(
            NativeReader("polars", f"{action}_{form}", "source")
            for action in ("read", "scan")
            for form in (
                *("csv", "parquet", "ipc", "ipc_stream", "json", "ndjson", "avro", "excel", "ods"),
                *("lines", "delta"),
            )
        ),
        NativeReader("polars", "read_parquet_schema", "source"),
        NativeReader("polars", "read_parquet_metadata", "source"),
        NativeReader("polars", "read_ipc_schema", "source"),
        NativeReader("polars", "SQLContext.execute", "query"),
    ),
    "pyarrow.parquet": (
        NativeReader("pyarrow.parquet", "read_table", "source"),
        NativeReader("pyarrow.parquet", "read_pandas", "source"),
        NativeReader("pyarrow.parquet", "read_metadata", "source"),
        NativeReader("pyarrow.parquet", "read_schema", "source"),
        NativeReader("pyarrow.parquet", "ParquetFile.__init__", "source"),
        NativeReader("pyarrow.parquet", "ParquetDataset.__init__", "source"),
    ),
    "pyarrow.dataset": (
        NativeReader("pyarrow.dataset", "dataset", "source"),
        NativeReader("pyarrow.dataset", "parquet_dataset", "source"),
    ),
    "pyarrow.csv": (
        NativeReader("pyarrow.csv", "read_csv", "source"),
        NativeReader("pyarrow.csv", "open_csv", "source"),
    ),
    "pyarrow.json": (
        NativeReader("pyarrow.json", "read_json", "source"),
        NativeReader("pyarrow.json", "open_json", "source"),
    ),
    "pyarrow.orc": (
        NativeReader("pyarrow.orc", "read_table", "source"),
        NativeReader("pyarrow.orc", "ORCFile.__init__", "source"),
    ),
    "pyarrow.feather": (
        NativeReader("pyarrow.feather", "read_table", "source"),
        NativeReader("pyarrow.feather", "read_feather", "source"),
        NativeReader("pyarrow.feather", "FeatherDataset.__init__", "source"),
    ),
    "pyarrow.ipc": (
        NativeReader("pyarrow.ipc", "RecordBatchFileReader.__init__", "source"),
        NativeReader("pyarrow.ipc", "RecordBatchStreamReader.__init__", "source"),
        NativeReader("pyarrow.ipc", "read_schema", "source"),
    ),
    "pyarrow": (
        NativeReader("pyarrow", "input_stream", "source"),
        NativeReader("pyarrow", "memory_map", "file"),
        NativeReader("pyarrow", "OSFile", "opened", is_public_class=True),
    ),
}
"""Functions by the module whose import makes them available."""


def install() -> None:
    """Replace the functions in `READERS` by recording ones, now or when their library is imported.

    Further calls do nothing.
    """
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _Finder())
    for module in READERS:
        if module in sys.modules:
            _replace_functions(module)


class _Finder:
    """A finder of modules that replaces the functions in `READERS` as soon as their module has been imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> Any:
        """Return the spec of a module in `READERS` from Python's own finder; None for others, and if not found.

        The spec's loader also replaces the functions once it has executed the module.
        """
        if name not in READERS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:  # without a loader, it is a folder without code
            return None
        execute = spec.loader.exec_module

        # takes the place of the loader's own method, which Python calls to import the module
        def exec_module(module: ModuleType) -> None:
            execute(module)
            _replace_functions(name)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]  # of this loader only
        return spec


def _replace_functions(name: str) -> None:
    """Replace the functions that the module ``name`` in `READERS` makes available by recording ones.

    Missing ones, and those that are replaced already, are skipped.
    """
    for reader in READERS[name]:
        # the module or class that has the function
        owner: Any = sys.modules.get(reader.module)
        *outer, function = reader.name.split(".")
        for part in outer:
            owner = getattr(owner, part, None)
        original = getattr(owner, function, None)
        if original is None or hasattr(original, "observed_by_sweep"):
            continue
        replacement: Callable[..., Any]
        if reader.is_public_class:
            replacement = _derive_reader(original, reader)
        else:
            skipped = reader.position
            if isinstance(owner, type):  # a method has ``self`` as one more argument
                skipped += 1
            replacement = _wrap_reader(original, reader, skipped)
        setattr(owner, function, replacement)


def _wrap_reader(
    original: Callable[..., Any], reader: NativeReader, skipped: int
) -> Callable[..., Any]:
    """Return a function that records the path in its arguments, and then calls ``original`` and returns its result.

    The first ``skipped`` arguments are not the path; they include ``self`` of a method. For a function that starts a
    process, that is recorded instead of a path. Nothing is recorded if the path is missing.
    """
    names = _list_parameters(original)

    @functools.wraps(original)
    def record_and_call(*args: Any, **kwargs: Any) -> Any:
        arguments = _order_arguments(names, args, kwargs)[skipped:]
        if reader.use == "process":
            recorder.note_process()
        elif arguments and reader.use == "source":
            by_name = dict(zip(names, args, strict=False)) | kwargs
            filesystem = by_name.get("filesystem")
            _note_source(arguments[0], filesystem, reader)
        elif arguments and reader.use == "query":
            recorder.note_native_read(_list_paths_in_query(arguments[0]), reader=reader.name)
        elif arguments:  # otherwise the path is missing, and the original raises the error
            _note_call(arguments, reader)
        return original(*args, **kwargs)

    record_and_call.observed_by_sweep = True  # type: ignore[attr-defined]  # marks the wrapper, which is a function
    return record_and_call


def _derive_reader(original: Any, reader: NativeReader) -> type:
    """Return a subclass of the class ``original``, which opens a file, that records the path when creating an object.

    The subclass takes the class's place: objects and subclasses of either count as its own, as authors may ask.
    """

    # the class of the subclass; the latter is ``recording`` below, whose own subclasses are asked as usual
    class RecordingType(type):
        def __instancecheck__(cls, instance: object) -> bool:
            if cls is recording:
                return isinstance(instance, original)
            return super().__instancecheck__(instance)

        def __subclasscheck__(cls, subclass: type) -> bool:
            if cls is recording:
                return issubclass(subclass, original)
            return super().__subclasscheck__(subclass)

    names = _list_parameters(original)

    # the subclass's `__new__`
    def create(cls: type, *args: Any, **kwargs: Any) -> Any:
        arguments = _order_arguments(names, args, kwargs)
        if arguments:  # otherwise the path is missing, and the original raises the error
            _note_call(arguments, reader)
        return original.__new__(cls, *args, **kwargs)

    members = {"__new__": create, "__module__": original.__module__, "observed_by_sweep": True}
    recording = RecordingType(original.__name__, (original,), members)
    return recording


def _order_arguments(
    names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[Any]:
    """Return the arguments of a call in the order of the parameters ``names``, as if all were passed by position.

    Parameters that got no argument are left out. Arguments of other names come last.
    """
    named = [kwargs[name] for name in names if name in kwargs]
    others = [value for name, value in kwargs.items() if name not in names]
    return [*args, *named, *others]


def _list_parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of a function's parameters in order; `_PATHS` for a native function without a signature.

    ``self`` of a method is among them.
    """
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return _PATHS


def _note_call(arguments: Sequence[Any], reader: NativeReader) -> None:
    """Record what the function ``reader`` reads or writes; ``arguments`` begins with the path and is not empty.

    `Use` says what each kind of function does with the path. If it is "source", "query" or "process", nothing is
    recorded here. A file that is copied is read, and its target, the second argument, is written.
    """
    paths = list(_list_paths(arguments[0]))
    match reader.use:
        case "opened":
            _note_opening(arguments, paths, reader)
        case "file":
            recorder.note_native_read(paths, reader=reader.name)
        case "prefix":
            for prefix in paths:
                files = _list_beginning_with(prefix) if isinstance(prefix, str) else [prefix]
                recorder.note_native_read(files, reader=reader.name)
        case "folder":
            recorder.note_native_read(paths, reader=reader.name, folder=True)
        case "pattern":
            folders = [folder for path in paths for folder in _list_folders(path)]
            recorder.note_native_read(folders, reader=reader.name, folder=True)
        case "written":
            for path in paths:
                recorder.note_native_write(path)
        case "copied":
            recorder.note_native_read(paths, reader=reader.name)
            recorder.note_native_write(arguments[1])


def _note_source(source: object, filesystem: object, reader: NativeReader) -> None:
    """Record what the function ``reader`` reads whose first argument, ``source``, is a path, several paths, or data.

    ``filesystem`` is the call's argument of that name, or None. Unless it is None or Arrow's `LocalFileSystem`, the
    paths may not be those of files on this machine, so that one unknown read is recorded. ``~`` in a path is the home
    folder. Objects that are neither paths nor known data are unknown reads; data that were read before are none.
    """
    type_name = type(filesystem).__name__
    if type_name in ("SubTreeFileSystem", "PyFileSystem"):  # they wrap another file system
        recorder.note_unknown_source(f"a {type_name}", reader=reader.name)
        return
    is_local_address = str(filesystem).startswith("file:")  # of the folder that paths begin in
    if is_local_address:
        recorder.note_unknown_source(f"files below {filesystem}", reader=reader.name)
        return
    if filesystem is not None and type_name != "LocalFileSystem":
        recorder.note_network()
        return
    for part in _list_sources(source):
        if isinstance(part, str | bytes | os.PathLike):
            path = os.path.expanduser(os.fsdecode(part))  # noqa: PTH111  # an address is no `Path`
            recorder.note_native_read([path], reader=reader.name)
        else:
            recorder.note_unknown_source(f"a {type(part).__name__}", reader=reader.name)


def _list_sources(value: object) -> Iterator[object]:
    """Yield the paths and the objects of unknown types in an argument; leave out data that were read before.

    Such data are bytes, open files, and objects of Arrow, Polars and pandas. Lists and tuples may be nested.
    """
    if isinstance(value, list | tuple):
        for part in value:
            yield from _list_sources(part)
        return
    package = type(value).__module__.partition(".")[0]
    is_data = (
        isinstance(value, bytes | bytearray | memoryview)
        or hasattr(value, "read")
        or package in _TABLE_PACKAGES
    )
    if isinstance(value, os.PathLike) or not is_data:
        yield from _list_paths(value)


_TABLE_PACKAGES = frozenset({"pyarrow", "polars", "pandas"})
"""Packages whose objects hold data, or were created from files by one of `READERS`."""


_FILE_IN_QUERY = re.compile(
    r"""\b(?:read|scan)_\w+\s*\(\s*(?:'([^']*)'|"([^"]*)")""", re.IGNORECASE
)


def _list_paths_in_query(query: object) -> list[str]:
    """Return the paths in a text in SQL that table functions of Polars read, such as ``read_csv('data/*.csv')``.

    Return an empty list if ``query`` is not a text.
    """
    if not isinstance(query, str):
        return []
    return [single or double for single, double in _FILE_IN_QUERY.findall(query)]


def _note_opening(arguments: Sequence[Any], paths: Sequence[object], reader: NativeReader) -> None:
    """Record the opening of a file, as read or as created; ``paths`` are those in the first of ``arguments``.

    The second argument, if any, is the mode (`_is_writing`). Values in ``paths`` that are not texts are not recorded.
    """
    if _is_writing(arguments):
        recorder.note_native_write(arguments[0])
        return
    # other values are open files or parts of one, which were recorded when they were opened
    texts = [path for path in paths if isinstance(path, str)]
    recorder.note_native_read(texts, reader=reader.name)


def _list_beginning_with(prefix: str) -> list[Path]:
    """Return the files and folders whose paths begin with ``prefix``, sorted, such as a TensorFlow checkpoint's.

    Only the folder that is part of ``prefix`` is searched, not those below it. Return an empty list if there is no
    such folder.
    """
    folder, name = os.path.split(prefix)
    if not Path(folder).is_dir():
        return []
    return sorted(path for path in Path(folder).iterdir() if path.name.startswith(name))


def _list_folders(pattern: object) -> Iterator[object]:
    """Yield the folders that a file pattern looks into: ``data`` for ``data/*.csv``, ``.`` for ``*.csv``.

    Values that are not texts, and addresses such as ``gs://bucket/*.csv``, are yielded unchanged.
    """
    path = pattern.removeprefix("file://") if isinstance(pattern, str) else pattern
    if isinstance(path, str) and "://" not in path:
        yield from list_pattern_folders(path)
    else:
        yield path


def _is_writing(arguments: Sequence[Any]) -> bool:
    """Return whether the path and perhaps the mode, which ``arguments`` begin with, always create or replace the file.

    This is not so for "a" and "r+", which may read an existing file.
    """
    return len(arguments) > 1 and arguments[1] in ("w", "wb", "w-", "x")


def _list_paths(value: Any) -> Iterable[object]:
    """Yield the paths in an argument, which may be one path or text, a list, an array or a tensor of texts.

    Nothing is yielded for an open file. A value of any other type, such as a symbolic tensor, is yielded unchanged.
    """
    if isinstance(value, bytes):
        yield os.fsdecode(value)
    elif isinstance(value, str | os.PathLike):
        yield os.fspath(value)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _list_paths(part)
    elif hasattr(value, "numpy"):
        try:
            array = value.numpy()
        except Exception:  # a symbolic tensor, whose text is known only when the graph runs
            yield value
            return
        yield from _list_paths(array.tolist() if hasattr(array, "tolist") else array)
    elif hasattr(value, "tolist"):
        yield from _list_paths(value.tolist())
    elif hasattr(value, "read"):
        return  # an open file, which was recorded when it was opened
    else:
        yield value
