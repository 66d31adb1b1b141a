"""What code reads is recorded, by whatever function it reads."""

from __future__ import annotations

import builtins
import concurrent.futures
import ctypes
import gzip
import importlib
import importlib.resources
import io
import json
import multiprocessing
import os
import pickle
import pkgutil
import platform
import pydoc
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_svmlight_file

from sweep import native_readers
from sweep.read_recorder import ABSENT, HASHED_BYTES, Reads, fingerprint_file, recorder


@contextmanager
def recording() -> Iterator[Reads]:
    """Record what the block reads, as if it were a trial."""
    native_readers.install()
    with recorder.in_trial(), recorder.apart() as found:
        yield found


@pytest.fixture
def reads() -> Iterator[Reads]:
    """Record what the test reads, as if it were a trial."""
    with recording() as found:
        yield found


def _parquet(path: Path) -> None:
    pd.DataFrame({"a": [1]}).to_parquet(path)


def _sqlite(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("create table t (a)")
    connection.close()


def _zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a", "1")


def _text(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


READERS: dict[str, tuple[Callable[[Path], object], Callable[[Path], object]]] = {
    "open": (_text("1"), lambda path: open(path).close()),  # noqa: PTH123  # it is another way in
    "io.open": (_text("1"), lambda path: io.open(path).close()),  # noqa: UP020  # it is another way in
    "os.open": (_text("1"), lambda path: os.close(os.open(path, os.O_RDONLY))),
    "FileIO": (_text("1"), lambda path: io.FileIO(str(path)).close()),
    "read_text": (_text("1"), Path.read_text),
    "read_bytes": (_text("1"), Path.read_bytes),
    "json": (_text("1"), lambda path: json.loads(path.read_text())),
    "toml": (_text("a = 1"), lambda path: tomllib.loads(path.read_text())),
    "pickle": (
        lambda path: path.write_bytes(pickle.dumps(1)),
        lambda path: pickle.loads(path.read_bytes()),
    ),
    "gzip": (
        lambda path: path.write_bytes(gzip.compress(b"1")),
        lambda path: gzip.decompress(path.read_bytes()),
    ),
    "zipfile": (_zip, lambda path: zipfile.ZipFile(path).close()),
    "copy": (_text("1"), lambda path: shutil.copy(path, path.parent / "copy")),
    "r+": (_text("1"), lambda path: path.open("r+").close()),
    "sqlite3": (_sqlite, lambda path: sqlite3.connect(path).close()),
    "sqlite3 uri": (
        _sqlite,
        lambda path: sqlite3.connect(f"file:{path}?mode=ro", uri=True).close(),
    ),
    "np.load": (lambda path: np.save(path.open("wb"), np.zeros(2)), np.load),
    "np.loadtxt": (_text("1 2"), np.loadtxt),
    "np.genfromtxt": (_text("1 2"), np.genfromtxt),
    "np.fromfile": (_text("12345678"), np.fromfile),
    "np.memmap": (_text("12345678"), lambda path: np.memmap(path, mode="r")),
    "pd.read_csv": (_text("a\n1\n"), pd.read_csv),
    "pd.read_json": (_text('{"a": [1]}'), pd.read_json),
    "pd.read_pickle": (pd.DataFrame({"a": [1]}).to_pickle, pd.read_pickle),
    "pd.read_parquet": (_parquet, pd.read_parquet),
    "svmlight": (_text("1 1:2\n"), lambda path: load_svmlight_file(str(path))),
    "in a thread": (_text("1"), lambda path: _in_a_thread(path.read_text)),
    "by a pool": (_text("1"), lambda path: _in_a_thread(Path.read_text, path)),
}


RESOURCES: dict[str, Callable[[str], object]] = {
    "pkgutil": lambda package: pkgutil.get_data(package, "table.csv"),
    "loader": lambda package: _get_by_loader(package, "table.csv"),
    "read_text": lambda package: importlib.resources.read_text(package, "table.csv"),
    "open_binary": lambda package: importlib.resources.open_binary(package, "table.csv").close(),
    "files": lambda package: importlib.resources.files(package).joinpath("table.csv").read_text(),
}


def _get_by_loader(package: str, name: str) -> object:
    module = importlib.import_module(package)
    loader: Any = module.__loader__
    return loader.get_data(str(Path(module.__file__ or "").with_name(name)))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", RESOURCES)
def test_the_data_of_a_package_are_files_that_are_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    package = f"with_data_{name}"
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text("")
    (tmp_path / package / "table.csv").write_text("1")
    with recording() as found:
        RESOURCES[name](package)
    assert str(tmp_path / package / "table.csv") in found.files
    assert not found.folders  # where the package was looked for
    assert not found.unknown


def _in_a_thread(function: Callable[..., object], *args: object) -> object:
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return pool.submit(function, *args).result()


def test_files_that_are_opened_by_the_descriptor_of_their_folder(
    tmp_path: Path, reads: Reads
) -> None:
    (tmp_path / "input").write_text("1")
    folder = os.open(tmp_path, os.O_RDONLY)
    os.close(os.open("input", os.O_RDONLY, dir_fd=folder))
    os.listdir(folder)  # noqa: PTH208  # Path has no descriptors
    os.close(folder)
    (reason,) = reads.unknown
    assert reason.endswith("opens a file by a path that may be relative to a folder's descriptor")
    assert str(tmp_path) in reads.folders


def test_a_file_of_the_working_folder_does_not_hide_one_opened_by_a_descriptor(
    tmp_path: Path, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "input").write_text(folder)
    monkeypatch.chdir(tmp_path / "here")
    descriptor = os.open(tmp_path / "there", os.O_RDONLY)
    os.close(os.open("input", os.O_RDONLY, dir_fd=descriptor))
    os.close(descriptor)
    assert len(reads.unknown) == 1


def _remove_a_tree(folder: Path) -> None:
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "file").write_text("1")
    shutil.rmtree(folder)


REMOVALS: dict[str, Callable[[Path], object]] = {
    "rmtree": lambda path: _remove_a_tree(path / "new"),
    "in TemporaryDirectory": lambda path: _in_a_temporary_folder(path),
    "in a thread": lambda path: _in_a_thread(_remove_a_tree, path / "new"),
}


def _in_a_temporary_folder(path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path) as folder:
        (Path(folder) / "a" / "b").mkdir(parents=True)
        (Path(folder) / "a" / "b" / "file").write_text("1")


@pytest.mark.parametrize("name", REMOVALS)
def test_a_folder_that_is_removed_was_not_read(name: str, tmp_path: Path, reads: Reads) -> None:
    REMOVALS[name](tmp_path)
    assert not reads.unknown
    assert not reads.folders
    assert not reads.files


def test_a_file_that_another_process_has_read_otherwise_is_a_reason(
    tmp_path: Path, reads: Reads
) -> None:
    with recorder.apart():  # another program has written them
        subprocess.run(
            ["sh", "-c", "printf 1 > same; printf 1 > changed"], cwd=tmp_path, check=True
        )
    for name in ("same", "changed"):
        (tmp_path / name).read_text()
    elsewhere = Reads()
    elsewhere.files = {str(tmp_path / "same"): reads.files[str(tmp_path / "same")]}
    recorder.absorb(elsewhere)
    assert not reads.unknown
    elsewhere.files = {str(tmp_path / "changed"): "1 bytes of another"}
    recorder.absorb(elsewhere)
    (reason,) = reads.unknown
    assert reason == f"reads {tmp_path / 'changed'}, which has changed since it was read first"


def test_a_file_that_a_trial_writes_and_another_process_reads_does_not_count(
    tmp_path: Path, reads: Reads
) -> None:
    (tmp_path / "cache").write_text("1")
    elsewhere = Reads()
    elsewhere.files = {str(tmp_path / "cache"): fingerprint_file(str(tmp_path / "cache"))}
    recorder.absorb(elsewhere)
    assert not reads.files


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("name", READERS)
def test_a_file_that_is_read_is_known(name: str, tmp_path: Path) -> None:
    write, read = READERS[name]
    path = tmp_path / "input"
    write(path)
    with recording() as reads:
        read(path)
    assert str(path) in reads.files
    before = reads.files[str(path)]
    assert before == fingerprint_file(str(path))
    path.write_bytes(b"something else")
    assert fingerprint_file(str(path)) != before


SPAWN = multiprocessing.get_context("spawn")
PROGRAMS: dict[str, Callable[[], object]] = {
    "run": lambda: subprocess.run([sys.executable, "-c", ""], check=True),
    "Popen": lambda: subprocess.Popen([sys.executable, "-c", ""]).wait(),
    "check_output": lambda: subprocess.check_output(["true"]),
    "popen": lambda: os.popen("true").close(),
    "system": lambda: os.system("true"),
    "fork": lambda: os.fork() or os._exit(0),
    "posix_spawn": lambda: os.posix_spawn("/bin/true", ["true"], {}),
    "multiprocessing": lambda: SPAWN.Process(target=abs, args=(1,)).start(),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_is_started_is_a_reason_with_its_line(name: str, reads: Reads) -> None:
    PROGRAMS[name]()
    assert [*reads.unknown] == [
        f"test_read_recorder.py:{_line_of(name)} in <lambda> starts a program"
    ]


def test_a_program_that_only_tells_about_the_machine_does_not_count(reads: Reads) -> None:
    platform.processor()
    subprocess.run(["uname", "-a"], check=True, capture_output=True)
    assert not reads.unknown
    subprocess.run("uname -a; true", shell=True, check=True, capture_output=True)
    assert reads.unknown


def _line_of(name: str) -> int:
    return PROGRAMS[name].__code__.co_firstlineno


def test_a_word_with_another_process_is_a_reason(reads: Reads) -> None:
    with socket.socket() as server, socket.socket() as client:
        server.bind(("127.0.0.1", 0))
        server.listen()
        client.connect(server.getsockname())
    assert [reason.partition(" in ")[2] for reason in reads.unknown] == [
        "test_a_word_with_another_process_is_a_reason speaks to another process or machine"
    ]


def test_a_question_to_the_user_is_a_reason(reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("8\n"))
    builtins.input()
    assert [reason.partition(" in ")[2] for reason in reads.unknown] == [
        "test_a_question_to_the_user_is_a_reason asks for input"
    ]


LISTINGS: dict[str, Callable[[Path], object]] = {
    "listdir": os.listdir,
    "iterdir": lambda path: [*path.iterdir()],
    "glob": lambda path: [*path.glob("*.npy")],
    "walk": lambda path: [*os.walk(path)],
}


@pytest.mark.parametrize("name", LISTINGS)
def test_the_names_in_a_folder_that_is_listed_are_known(
    name: str, tmp_path: Path, reads: Reads
) -> None:
    LISTINGS[name](tmp_path)
    assert [*reads.folders] == [str(tmp_path)]


def test_a_file_that_is_not_there_is_known_as_absent(tmp_path: Path, reads: Reads) -> None:
    with pytest.raises(FileNotFoundError):
        (tmp_path / "none").read_text()
    assert reads.files == {str(tmp_path / "none"): ABSENT}


def test_what_a_trial_has_written_itself_it_may_read(tmp_path: Path, reads: Reads) -> None:
    (tmp_path / "model.txt").write_text("1")
    (tmp_path / "model.txt").rename(tmp_path / "best.txt")
    (tmp_path / "made").mkdir()
    (tmp_path / "best.txt").read_text()
    [*(tmp_path / "made").iterdir()]
    assert not reads.files
    assert not reads.folders


MAKERS: dict[str, Callable[[Path], object]] = {
    "mkdir": lambda folder: folder.mkdir(exist_ok=True),
    "makedirs": lambda folder: os.makedirs(folder, exist_ok=True),  # noqa: PTH103  # it is another way in
    "a temporary file in it": lambda folder: tempfile.NamedTemporaryFile(dir=folder).close(),
    "a file in it": lambda folder: (folder / "other").write_text("1"),
    "symlink": lambda folder: _fails(os.symlink, "elsewhere", folder),
    "link": lambda folder: _fails(os.link, folder / "none", folder / "input"),
}


def _fails(function: Callable[..., object], *args: object) -> None:
    with pytest.raises(OSError, match=r"."):
        function(*args)


@pytest.mark.parametrize("name", MAKERS)
def test_a_folder_that_was_there_before_is_not_the_trial_s_own(
    name: str, tmp_path: Path, reads: Reads
) -> None:
    before = tmp_path / "input"
    with recorder.apart():
        os.close(os.open(before, os.O_CREAT))  # which notes nothing: it only reads
    MAKERS[name](tmp_path)
    before.read_text()
    assert str(before) in reads.files


def test_a_link_that_is_made_to_lead_elsewhere_changes_what_was_read(tmp_path: Path) -> None:
    for version in ("v1", "v2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "table").write_text(version)
    current = tmp_path / "current"
    current.symlink_to("v1")
    with recording() as reads:
        (current / "table").read_text()
        [*current.iterdir()]
    ((file, before),) = reads.files.items()
    current.unlink()
    current.symlink_to("v2")
    assert fingerprint_file(file) != before
    assert [*reads.folders] == [str(current)]


def test_a_link_that_the_trial_has_made_itself_is_followed(tmp_path: Path) -> None:
    (tmp_path / "table").write_text("1")
    with recording() as reads:
        (tmp_path / "soft").symlink_to("table")
        (tmp_path / "soft").read_text()
        (tmp_path / "hard").hardlink_to(tmp_path / "table")
        (tmp_path / "hard").read_text()
    assert [*reads.files] == [str(tmp_path / "table")]


def test_what_is_only_appended_to_was_not_read(tmp_path: Path, reads: Reads) -> None:
    path = tmp_path / "log.txt"
    with recorder.apart():
        os.close(os.open(path, os.O_CREAT))
    with path.open("a") as file:
        file.write("1\n")
    assert not reads.files
    path.read_text()
    assert [*reads.files] == [str(path)]  # it may hold what earlier trials have written


def test_a_shared_library_that_is_loaded_by_its_path_is_known(tmp_path: Path, reads: Reads) -> None:
    path = tmp_path / "simulation.so"
    with pytest.raises(OSError, match="cannot open"):
        ctypes.CDLL(str(path))
    assert [*reads.files] == [str(path)]


def test_a_file_that_is_replaced_by_one_of_its_size_and_time_is_another_one(tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_text("1")
    before = fingerprint_file(str(path))
    other.write_text("2")
    shutil.copystat(path, other)
    other.replace(path)
    assert fingerprint_file(str(path)) != before


def test_installed_files_devices_and_compiled_code_do_not_count(reads: Reads) -> None:
    Path(np.__file__).read_text()
    Path("/dev/null").read_bytes()
    Path("/proc/self/stat").read_text()
    assert not reads.files


def test_files_of_sweep_s_own_do_not_count(tmp_path: Path, reads: Reads) -> None:
    recorder.exclude(tmp_path)
    with pytest.raises(FileNotFoundError):
        (tmp_path / "log.jsonl").read_text()
    assert not reads.files


def test_a_variable_counts_if_the_author_s_line_asks_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TO_READ", "8")
    monkeypatch.delenv("NOT_SET", raising=False)
    with recording() as reads:
        assert os.environ["TO_READ"] == "8"
        assert os.getenv("NOT_SET") is None
    assert {*reads.environment} == {"TO_READ", "NOT_SET"}
    assert reads.environment["NOT_SET"] == ABSENT
    before = recorder.digest_of_variable("TO_READ")
    assert before == reads.environment["TO_READ"] != "8"  # it may be a secret
    monkeypatch.setenv("TO_READ", "16")
    assert recorder.digest_of_variable("TO_READ") != before


def test_each_file_that_asks_for_a_variable_has_it_in_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a later trainable that uses the second file alone would not have read it."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TO_READ", "8")
    for name in ("asks_first", "asks_second"):
        (tmp_path / f"{name}.py").write_text(
            'import os\n\n\ndef ask():\n    return os.environ["TO_READ"]\n'
        )
    with recording() as reads:
        for name in ("asks_first", "asks_second"):
            assert importlib.import_module(name).ask() == "8"
    by_file = {Path(file).stem: {*found.environment} for file, found in reads.by_file.items()}
    assert by_file["asks_first"] == by_file["asks_second"] == {"TO_READ"}


def test_a_variable_that_the_author_s_code_sets_is_known_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TO_SET", raising=False)
    with recording() as reads:
        monkeypatch.setenv("TO_SET", "8")
        assert os.environ["TO_SET"] == "8"
    assert reads.environment == {"TO_SET": ABSENT}


def test_outside_of_trials_only_modules_that_are_imported_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reads_at_import.py").write_text(
        f"import pathlib\nTEXT = pathlib.Path({str(tmp_path / 'a.txt')!r}).read_text()\n"
    )
    (tmp_path / "a.txt").write_text("1")
    monkeypatch.syspath_prepend(tmp_path)
    with recorder.apart() as found:
        (tmp_path / "a.txt").read_text()
        assert not found.files
        __import__("reads_at_import")
    assert [*found.files] == [str(tmp_path / "a.txt")]
    module = str(tmp_path / "reads_at_import.py")
    assert recorder.digest_of_module(module) == fingerprint_file(module).split()[-1]


def test_a_module_that_is_imported_by_a_computed_name_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "found_by_its_name.py"
    module.write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    with recording() as reads:
        pydoc.locate("_".join(["found", "by", "its", "name"]))
    assert str(module) in reads.files


def test_what_a_module_may_still_keep_counts_for_the_next_sweep_in_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "keeps_a_table.py"
    module.write_text(
        "import functools, pathlib\n"
        "@functools.cache\n"
        "def table():\n"
        f"    return pathlib.Path({str(tmp_path / 'table.txt')!r}).read_text()\n"
    )
    (tmp_path / "table.txt").write_text("1")
    monkeypatch.syspath_prepend(tmp_path)
    keeps = importlib.import_module("keeps_a_table")
    with recorder.in_trial(), recorder.apart():
        recorder.begin_session("first", [str(module)])
        keeps.table()
        recorder.begin_session("without the module", [])
        assert str(tmp_path / "table.txt") not in recorder.reads.files
        recorder.begin_session("second", [str(module)])
        keeps.table()
        assert str(tmp_path / "table.txt") in recorder.reads.files


def test_a_large_file_is_known_by_its_size_and_time(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(HASHED_BYTES + 1)
    assert fingerprint_file(str(path)) == f"{HASHED_BYTES + 1} bytes of {path.stat().st_mtime_ns}"


def test_nothing_is_recorded_until_the_author_s_code_is_imported(tmp_path: Path) -> None:
    """In a command, from its start to the import of a trainable."""
    (tmp_path / "data.txt").write_text("1")
    (tmp_path / "author.py").write_text(
        "import os\nfrom pathlib import Path\n"
        f"TEXT = Path({str(tmp_path / 'data.txt')!r}).read_text()\nHOME = os.environ.get('HOME')\n"
        "def train(hp, report): report(loss=1.0)\n"
    )
    script = f"""
import runpy, sys
from pathlib import Path
from sweep.read_recorder import recorder
recorder.pause()
before = runpy.run_path({str(tmp_path / "author.py")!r}, run_name="author")
assert not recorder.reads.files and not recorder.reads.environment, recorder.reads.files
from sweep.functions import load_trainable
load_trainable("author:train", [Path({str(tmp_path)!r})])
print(sorted(recorder.reads.files), sorted(recorder.reads.environment))
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == f"[{str(tmp_path / 'data.txt')!r}] ['HOME']\n"


def test_a_class_that_opens_files_stays_a_class(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"text")
    with recording() as reads:
        import pyarrow

        class Mine(pyarrow.OSFile):
            pass

        with pyarrow.OSFile(str(tmp_path / "a.txt")) as file, Mine(str(tmp_path / "a.txt")) as mine:
            assert file.read() == b"text"
            assert isinstance(file, pyarrow.OSFile)
            assert isinstance(file, pyarrow.NativeFile)
            assert isinstance(mine, pyarrow.OSFile)
            assert not isinstance(file, Mine)
            assert issubclass(Mine, pyarrow.OSFile)
    assert {Path(name).name for name in reads.files} == {"a.txt"}
