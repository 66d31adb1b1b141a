"""Files that TensorFlow, Keras and others open in C++ are known as well."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import keras
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pyarrow.fs
import pyarrow.ipc
import pyarrow.json
import pyarrow.orc
import pyarrow.parquet
import pytest
import scipy.io
import scipy.sparse
import tensorflow as tf

from sweep import native_readers
from sweep.native_readers import READERS
from sweep.read_recorder import Reads, recorder

pytestmark = [pytest.mark.keras, pytest.mark.filterwarnings("ignore:__array__ implementation")]


@pytest.fixture
def record() -> Iterator[Callable[[Callable[[], object]], Reads]]:
    """Return what runs a function and returns what it has read."""
    native_readers.install()

    def of(function: Callable[[], object]) -> Reads:
        with recorder.in_trial(), recorder.apart() as reads:
            function()
        return reads

    return of


def _network() -> keras.Model:
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])


def _records(path: Path) -> None:
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(b"1")


def _text(path: Path) -> None:
    path.write_text("1\n2\n")


def _database(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE t AS SELECT 1 AS a")


TABLE = pa.table({"a": [1]})


FILES: dict[str, tuple[str, Callable[[Path], object], Callable[[str], object]]] = {
    "read_file": ("a.txt", _text, tf.io.read_file),
    "GFile": ("a.txt", _text, lambda path: tf.io.gfile.GFile(path).read()),
    "gfile.copy": (
        "a.txt",
        _text,
        lambda path: tf.io.gfile.copy(path, f"{path}.copy", overwrite=True),
    ),
    "TFRecordDataset": ("a.records", _records, lambda path: [*tf.data.TFRecordDataset([path])]),
    "tf_record_iterator": (
        "a.records",
        _records,
        lambda path: [*tf.compat.v1.io.tf_record_iterator(path)],
    ),
    "SqlDataset": (
        "a.sqlite",
        _database,
        lambda path: [
            *tf.data.experimental.SqlDataset("sqlite", path, "SELECT a FROM t", (tf.int64,))
        ],
    ),
    "TextLineDataset": ("a.txt", _text, lambda path: [*tf.data.TextLineDataset(path)]),
    "CsvDataset": (
        "a.csv",
        _text,
        lambda path: [*tf.data.experimental.CsvDataset(path, [tf.float32])],
    ),
    "FixedLengthRecordDataset": (
        "a.txt",
        _text,
        lambda path: [*tf.data.FixedLengthRecordDataset(path, 2)],
    ),
    "make_csv_dataset": (
        "a.csv",
        lambda path: path.write_text("a\n1\n2\n"),
        lambda path: next(
            iter(tf.data.experimental.make_csv_dataset(path, 1, num_epochs=1, shuffle=False))
        ),
    ),
    "TextFileInitializer": (
        "a.txt",
        _text,
        lambda path: tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(
                path,
                tf.string,
                tf.lookup.TextFileIndex.WHOLE_LINE,
                tf.int64,
                tf.lookup.TextFileIndex.LINE_NUMBER,
            ),
            -1,
        ),
    ),
    "StringLookup": ("a.txt", _text, lambda path: keras.layers.StringLookup(vocabulary=path)),
    "load_model": ("a.keras", lambda path: _network().save(path), keras.saving.load_model),
    "load_model h5": (
        "a.weights.h5",
        lambda path: _network().save_weights(path),
        lambda path: _network().load_weights(path),
    ),
    "parquet": (
        "a.parquet",
        lambda path: pyarrow.parquet.write_table(TABLE, path),
        lambda path: pyarrow.parquet.read_table(path),
    ),
    "ParquetFile": (
        "a.parquet",
        lambda path: pyarrow.parquet.write_table(TABLE, path),
        lambda path: pyarrow.parquet.ParquetFile(path).read(),
    ),
    "read_pandas": (
        "a.parquet",
        lambda path: pyarrow.parquet.write_table(TABLE, path),
        lambda path: pyarrow.parquet.read_pandas(path),
    ),
    "arrow dataset": (
        "a.parquet",
        lambda path: pyarrow.parquet.write_table(TABLE, path),
        lambda path: pyarrow.dataset.dataset(path).to_table(),
    ),
    "polars": (
        "a[1].parquet",
        lambda path: pyarrow.parquet.write_table(TABLE, path),
        lambda path: pl.scan_parquet(path, glob=False).collect(),
    ),
    "arrow json": (
        "a.json",
        lambda path: path.write_text('{"a": 1}'),
        lambda path: pyarrow.json.read_json(path),
    ),
    "arrow csv": ("a.csv", _text, lambda path: pyarrow.csv.read_csv(path)),
    "OSFile by keywords": ("a.txt", _text, lambda path: pa.OSFile(mode="rb", path=path).read()),
    "memory_map by keywords": ("a.txt", _text, lambda path: pa.memory_map(mode="r", path=path)),
    "feather": (
        "a.feather",
        lambda path: pyarrow.feather.write_feather(TABLE, path),
        lambda path: pyarrow.feather.read_table(path),
    ),
    "FeatherDataset": (
        "a.feather",
        lambda path: pyarrow.feather.write_feather(TABLE, path),
        lambda path: pyarrow.feather.FeatherDataset([path]).read_table(),
    ),
    "arrow json in parts": (
        "a.json",
        lambda path: path.write_text('{"a": 1}'),
        lambda path: pyarrow.json.open_json(path).read_all(),
    ),
    "arrow metadata": (
        "a.parquet",
        lambda path: pyarrow.parquet.write_table(TABLE, path),
        lambda path: pyarrow.parquet.read_metadata(path),
    ),
    "arrow schema": (
        "a.parquet",
        lambda path: pyarrow.parquet.write_table(TABLE, path),
        lambda path: pyarrow.parquet.read_schema(path),
    ),
    "orc": (
        "a.orc",
        lambda path: pyarrow.orc.write_table(TABLE, str(path)),
        lambda path: pyarrow.orc.read_table(path),
    ),
    "arrow ipc": (
        "a.arrow",
        lambda path: pl.DataFrame({"a": [1]}).write_ipc(path),
        lambda path: pyarrow.ipc.open_file(path).read_all(),
    ),
    "arrow ipc stream": (
        "a.arrows",
        lambda path: pl.DataFrame({"a": [1]}).write_ipc_stream(path),
        lambda path: [pyarrow.ipc.open_stream(path).read_all(), pyarrow.ipc.read_schema(path)],
    ),
    "input_stream": ("a.txt", _text, lambda path: pa.input_stream(path).read()),
    "schema": (
        "a.parquet",
        lambda path: pyarrow.parquet.write_table(TABLE, path),
        lambda path: [pl.read_parquet_schema(path), pl.read_parquet_metadata(path)],
    ),
    "schema of ipc": (
        "a.arrow",
        lambda path: pl.DataFrame({"a": [1]}).write_ipc(path),
        lambda path: pl.read_ipc_schema(path),
    ),
    "SQL": ("a.csv", _text, lambda path: pl.sql(f"SELECT * FROM read_csv('{path}')").collect()),
    "Matrix Market": (
        "a.mtx",
        lambda path: scipy.io.mmwrite(path, scipy.sparse.eye(2)),
        lambda path: scipy.io.mmread(path),
    ),
    "head of Matrix Market": (
        "a.mtx",
        lambda path: scipy.io.mmwrite(path, scipy.sparse.eye(2)),
        lambda path: scipy.io.mminfo(path),
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_opened_in_native_code_is_known(
    name: str, tmp_path: Path, record: Callable[[Callable[[], object]], Reads]
) -> None:
    file, write, read = FILES[name]
    path = tmp_path / file
    write(path)
    reads = record(lambda: read(str(path)))
    assert str(path) in reads.files
    # which names its file to a graph as well
    assert not reads.unknown or name == "make_csv_dataset"


FOLDERS: dict[str, Callable[[Path], object]] = {
    "read_table": lambda path: pyarrow.parquet.read_table(path),
    "pandas": lambda path: pd.read_parquet(path),
    "dataset": lambda path: pyarrow.dataset.dataset(path),
    "polars": lambda path: pl.read_parquet(path),
    "polars by a pattern": lambda path: pl.read_parquet(path / "*" / "*.parquet"),
    "polars by a pattern of any depth": lambda path: pl.read_parquet(f"{path}/**/*.parquet"),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_all_files_of_a_folder_or_a_pattern_are_known(
    name: str, tmp_path: Path, record: Callable[[Callable[[], object]], Reads]
) -> None:
    files = [tmp_path / "tables" / part / "1.parquet" for part in ("a", "b")]
    for path in files:
        path.parent.mkdir(parents=True)
        pyarrow.parquet.write_table(TABLE, path)
    reads = record(lambda: FOLDERS[name](tmp_path / "tables"))
    assert {*reads.files} == {*map(str, files)}
    # another file beside them would be read as well
    assert {str(path.parent) for path in files} <= {*reads.folders}
    assert not reads.unknown


def test_a_folder_with_a_link_to_itself_is_read_once(
    tmp_path: Path, record: Callable[[Callable[[], object]], Reads]
) -> None:
    pyarrow.parquet.write_table(TABLE, tmp_path / "1.parquet")
    (tmp_path / "latest").symlink_to(tmp_path)
    reads = record(lambda: recorder.note_native_read([tmp_path], reader="read"))
    assert {*reads.files} == {str(tmp_path / "1.parquet")}
    assert not reads.unknown


def test_many_folders_count_as_many_files(
    tmp_path: Path,
    record: Callable[[Callable[[], object]], Reads],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sweep.read_recorder.MOST_FILES", 3)
    for name in "abcdef":
        (tmp_path / name).mkdir()
    reads = record(lambda: recorder.note_native_read([tmp_path], reader="read"))
    assert len(reads.folders) == 4
    assert reads.unknown


def test_a_file_that_comes_below_a_folder_of_a_pattern_would_be_noticed(
    tmp_path: Path, record: Callable[[Callable[[], object]], Reads]
) -> None:
    for name in ("a/train", "b", "c/train"):
        (tmp_path / name).mkdir(parents=True)
    pyarrow.parquet.write_table(TABLE, tmp_path / "a" / "train" / "x.parquet")
    reads = record(lambda: pl.read_parquet(tmp_path / "*" / "train" / "x.parquet"))
    names = ("", "a", "a/train", "b", "c", "c/train")
    assert {*reads.folders} == {str(tmp_path / name) for name in names}
    assert {*reads.files} == {str(tmp_path / "a" / "train" / "x.parquet")}


def test_a_missing_file_is_known_though_its_name_has_brackets(
    tmp_path: Path, record: Callable[[Callable[[], object]], Reads]
) -> None:
    path = str(tmp_path / "x[1].parquet")
    reads = record(lambda: recorder.note_native_read([path], reader="read"))
    assert reads.files == {path: "absent"}


def test_all_files_of_a_saved_dataset_are_known(
    tmp_path: Path, record: Callable[[Callable[[], object]], Reads]
) -> None:
    path = str(tmp_path / "saved")
    tf.data.Dataset.range(3).save(path)
    reads = record(lambda: [*tf.data.Dataset.load(path)])
    present = {str(file) for file in (tmp_path / "saved").rglob("*") if file.is_file()}
    assert {*reads.files} == present


def test_data_in_place_of_a_path_are_not_taken_for_one(
    tmp_path: Path, record: Callable[[Callable[[], object]], Reads]
) -> None:
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(TABLE, path)
    content = path.read_bytes()  # which has null bytes
    reads = record(
        lambda: [
            pl.read_parquet(content),
            pl.read_csv(b"a,b\n1,2\n"),
            pyarrow.dataset.dataset(TABLE).to_table(),
        ]
    )
    assert not reads.files
    assert not reads.unknown


HOME: dict[str, Callable[[str], object]] = {
    "polars": lambda path: pl.read_parquet(path),
    "polars by a pattern": lambda path: pl.scan_parquet(path.replace("a.", "*.")).collect(),
    "read_table": lambda path: pyarrow.parquet.read_table(Path(path)),
    "input_stream": lambda path: pa.input_stream(path).read(),
}


@pytest.mark.parametrize("name", HOME)
def test_a_path_may_begin_with_the_home_folder(
    name: str,
    tmp_path: Path,
    record: Callable[[Callable[[], object]], Reads],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pyarrow.parquet.write_table(TABLE, tmp_path / "a.parquet")
    monkeypatch.setenv("HOME", str(tmp_path))
    reads = record(lambda: HOME[name]("~/a.parquet"))
    assert {*reads.files} == {str(tmp_path / "a.parquet")}
    assert not reads.unknown


def test_a_query_of_tables_in_memory_reads_no_file(
    record: Callable[[Callable[[], object]], Reads],
) -> None:
    def ask() -> None:
        rows = pl.DataFrame({"a": [1]})
        assert pl.sql("SELECT a FROM rows").collect().equals(rows)

    reads = record(ask)
    assert (reads.files, reads.unknown) == ({}, {})


def test_paths_may_be_an_array(
    tmp_path: Path, record: Callable[[Callable[[], object]], Reads]
) -> None:
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(TABLE, path)

    def read() -> None:
        with suppress(TypeError):  # not all versions take one
            pl.read_parquet(np.array([str(path)]))  # type: ignore[call-overload]  # as authors may

    reads = record(read)
    assert {*reads.files} == {str(path)}
    assert not reads.unknown


class LakeTable:
    """A table of files that sweep does not know."""


@pytest.mark.parametrize(
    ("source", "filesystem", "reason"),
    [
        (LakeTable(), None, "reads a LakeTable"),
        ("a.parquet", LakeTable(), "speaks to another process or machine"),
        ("a.parquet", "s3://bucket", "speaks to another process or machine"),
        (
            "a.parquet",
            pyarrow.fs.SubTreeFileSystem("/", pyarrow.fs.LocalFileSystem()),
            "reads a SubTreeFileSystem",
        ),
        ("a.parquet", "file:///", "reads files below file:///"),
    ],
)
def test_what_is_read_from_unknown_objects_cannot_be_known(
    source: object,
    filesystem: object,
    reason: str,
    record: Callable[[Callable[[], object]], Reads],
) -> None:
    def read() -> None:
        with suppress(Exception):
            pyarrow.parquet.ParquetDataset(source, filesystem=filesystem)

    reads = record(read)
    assert any(reason in why for why in reads.unknown)
    assert not reads.files


def test_arrows_local_file_system_is_that_of_this_machine(
    tmp_path: Path, record: Callable[[Callable[[], object]], Reads]
) -> None:
    path = str(tmp_path / "a.parquet")
    pyarrow.parquet.write_table(TABLE, path)
    local = pyarrow.fs.LocalFileSystem()
    reads = record(lambda: pyarrow.parquet.read_table(path, filesystem=local))
    assert {*reads.files} == {path}
    assert not reads.unknown


def test_files_in_the_memory_of_tensorflow_are_of_this_process(
    record: Callable[[Callable[[], object]], Reads],
) -> None:
    tf.io.write_file("ram://a/text", "x")
    reads = record(lambda: tf.io.read_file("ram://a/text"))
    assert (reads.files, reads.unknown) == ({}, {})


def test_what_lies_on_another_machine_cannot_be_known(
    record: Callable[[Callable[[], object]], Reads],
) -> None:
    def read() -> None:
        with pytest.raises(OSError, match=r"127\.0\.0\.1"):
            pl.scan_parquet("s3://bucket/a.parquet", storage_options=STORE).collect()

    reads = record(read)
    assert not reads.files
    assert [reason.partition("read ")[2] for reason in reads.unknown] == [
        "speaks to another process or machine"
    ]


STORE = {
    "aws_endpoint_url": "http://127.0.0.1:1",
    "aws_access_key_id": "none",
    "aws_secret_access_key": "none",
    "aws_region": "none",
    "max_retries": 0,
}


def test_all_files_of_a_checkpoint_are_known(
    tmp_path: Path, record: Callable[[Callable[[], object]], Reads]
) -> None:
    prefix = tf.train.Checkpoint(a=tf.Variable(1.0)).write(str(tmp_path / "ckpt"))
    for read in (
        tf.train.load_checkpoint,
        lambda path: tf.train.Checkpoint(a=tf.Variable(0.0)).read(path),
    ):
        reads = record(lambda read=read: read(prefix))
        assert {Path(path).name for path in reads.files} == {
            "ckpt.index",
            "ckpt.data-00000-of-00001",
        }


def test_all_files_of_a_saved_model_are_known(
    tmp_path: Path, record: Callable[[Callable[[], object]], Reads]
) -> None:
    module = tf.Module()
    module.a = tf.Variable(1.0)
    tf.saved_model.save(module, str(tmp_path / "saved"))
    names = {
        Path(path).name
        for path in record(lambda: tf.saved_model.load(str(tmp_path / "saved"))).files
    }
    assert {"saved_model.pb", "variables.index", "variables.data-00000-of-00001"} <= names


@pytest.mark.parametrize(
    "listing",
    [
        lambda path: tf.io.gfile.listdir(str(path)),
        lambda path: tf.io.gfile.glob(str(path / "*.txt")),
        lambda path: [*tf.data.Dataset.list_files(str(path / "*.txt"))],
        lambda path: tf.io.matching_files(str(path / "*.txt")),
    ],
)
def test_a_folder_that_tensorflow_lists_is_known(
    listing: Callable[[Path], object],
    tmp_path: Path,
    record: Callable[[Callable[[], object]], Reads],
) -> None:
    _text(tmp_path / "a.txt")
    assert [*record(lambda: listing(tmp_path)).folders] == [str(tmp_path)]


@pytest.mark.parametrize(
    "listing",
    [
        tf.io.gfile.glob,
        lambda pattern: [*tf.data.Dataset.list_files(pattern)],
        lambda pattern: tf.io.matching_files(pattern),
        lambda pattern: tf.io.gfile.glob(f"file://{pattern}"),
    ],
)
def test_all_folders_that_a_pattern_looks_into_are_known(
    listing: Callable[[str], object],
    tmp_path: Path,
    record: Callable[[Callable[[], object]], Reads],
) -> None:
    (tmp_path / "cats").mkdir()
    (tmp_path / "dogs").mkdir()
    _text(tmp_path / "cats" / "a.txt")
    reads = record(lambda: listing(str(tmp_path / "*" / "*.txt")))
    assert {*reads.folders} == {str(tmp_path / name) for name in ("", "cats", "dogs")}


def test_what_a_graph_reads_cannot_be_known(
    tmp_path: Path, record: Callable[[Callable[[], object]], Reads]
) -> None:
    for label in ("a", "b"):
        (tmp_path / label).mkdir()
        keras.utils.save_img(tmp_path / label / "one.png", np.zeros((4, 4, 3)))
    reads = record(
        lambda: next(
            iter(
                keras.utils.image_dataset_from_directory(tmp_path, image_size=(4, 4), verbose=False)
            )
        )
    )
    assert {str(tmp_path / "a"), str(tmp_path / "b")} <= {*reads.folders}
    assert [reason.partition("> ")[2] for reason in reads.unknown] == [
        "read_file reads files inside a graph"
    ]


def test_what_tensorflow_has_written_itself_it_may_read(
    tmp_path: Path, record: Callable[[Callable[[], object]], Reads]
) -> None:
    def write_and_read() -> None:
        tf.io.write_file(str(tmp_path / "a"), "1")
        tf.io.read_file(str(tmp_path / "a"))
        with tf.io.gfile.GFile(str(tmp_path / "b"), "w") as file:
            file.write("1")
        tf.io.gfile.rename(str(tmp_path / "b"), str(tmp_path / "c"))
        tf.io.gfile.GFile(str(tmp_path / "c")).read()
        _network().save_weights(tmp_path / "d.weights.h5")
        _network().load_weights(tmp_path / "d.weights.h5")

    assert not record(write_and_read).files


def test_all_functions_of_the_table_are_there_and_observed() -> None:
    native_readers.install()
    for library in (
        "tensorflow",
        "h5py",
        "pyarrow",
        "pyarrow.parquet",
        "pyarrow.dataset",
        "pyarrow.csv",
        "pyarrow.json",
        "pyarrow.orc",
        "pyarrow.feather",
        "pyarrow.ipc",
        "scipy.io",
    ):
        import_module(library)
        for reader in READERS[library]:
            owner: object = import_module(reader.module)
            for part in reader.name.split("."):
                owner = getattr(owner, part)
            assert hasattr(owner, "observed_by_sweep"), reader


def test_the_order_of_named_arguments_does_not_matter(
    tmp_path: Path, record: Callable[..., Reads]
) -> None:
    import h5py

    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["a"] = [1]
    known = str(tmp_path / "data.h5")
    assert known in record(lambda: h5py.File(mode="r", name=known).close()).files
    assert known in record(lambda: h5py.File(driver="core", mode="r", name=known).close()).files
    new = str(tmp_path / "new.h5")
    written = record(
        lambda: [h5py.File(driver="core", mode="w", name=new).close(), h5py.File(new).close()]
    )
    assert new not in written.files


def test_a_checkpoint_is_known_by_a_path_with_a_dot(
    tmp_path: Path, record: Callable[..., Reads], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept").mkdir()
    tf.train.Checkpoint(a=tf.Variable(1.0)).write("kept/model")
    for prefix in ("kept/model", "./kept/model", str(tmp_path / "kept" / "model")):
        found = record(
            lambda prefix=prefix: tf.train.load_checkpoint(prefix).get_tensor(
                "a/.ATTRIBUTES/VARIABLE_VALUE"
            )
        )
        assert {Path(name).name for name in found.files} >= {
            "model.index",
            "model.data-00000-of-00001",
        }, prefix


def test_an_arrow_file_that_a_trial_writes_is_not_read(
    tmp_path: Path, record: Callable[[Callable[[], object]], Reads]
) -> None:
    path = str(tmp_path / "new.bin")

    def write_and_read() -> None:
        with pa.OSFile(path, mode="wb") as file:
            file.write(b"1")
        pa.OSFile(path).read()
        pa.OSFile(os.open(path, os.O_RDONLY)).read()

    reads = record(write_and_read)
    assert not reads.files
    assert not reads.unknown
