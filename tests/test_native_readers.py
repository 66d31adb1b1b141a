"""Files that TensorFlow, Keras and others open in C++ are known as well."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import keras
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
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
    "arrow csv": ("a.csv", _text, lambda path: pyarrow.csv.read_csv(path)),
    "OSFile by keywords": ("a.txt", _text, lambda path: pa.OSFile(mode="rb", path=path).read()),
    "memory_map by keywords": ("a.txt", _text, lambda path: pa.memory_map(mode="r", path=path)),
    "feather": (
        "a.feather",
        lambda path: pyarrow.feather.write_feather(TABLE, path),
        lambda path: pyarrow.feather.read_table(path),
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
        "pyarrow.csv",
        "pyarrow.feather",
    ):
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
