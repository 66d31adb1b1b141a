"""Trainables with data that are too large to lie on the devices, and what a process has read of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from rank_processes import Here
from rank_trials import Trained, outcome
from small import go_on, metrics

from sweep.contract import Assignment
from trainables.data import files
from trainables.data.files import tfrecords
from trainables.keras_trainable import KerasTrainable

ROWS, WIDTH = 320, 60_000  # 77 MB; a chunk has 64 MiB
RECORDS, VALUES = 600, 1024


class Rows:
    """Rows that are made when they are asked for."""

    dtype, shape = np.dtype(np.float32), (ROWS, WIDTH)
    asked: tuple[int, ...] = ()

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, rows: Any) -> np.ndarray[Any, Any]:
        found = np.arange(ROWS)[rows]
        Rows.asked += tuple(found.tolist())
        return np.sin(np.outer(found + 1, np.arange(WIDTH) + 1)).astype(np.float32)


class OfRows(KerasTrainable):
    """Learns from arrays that do not fit."""

    def data(self, hp: Any) -> Any:
        y = np.arange(ROWS) % 3
        return (Rows(), y), (Rows(), y)

    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential([keras.Input((WIDTH,)), keras.layers.Dense(3)])


class OfRecords(KerasTrainable):
    """Learns from record files, some shards of them."""

    def data(self, hp: Any) -> Any:
        features = {
            "x": tf.io.FixedLenFeature([VALUES], tf.float32),
            "y": tf.io.FixedLenFeature([], tf.int64),
        }
        pattern = str(Path(str(hp["folder"])) / "*.records")
        return tfrecords(pattern, features, lambda given: (given["x"], given["y"]), buffer=50), None

    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential(
            [keras.Input((VALUES,)), keras.layers.Dropout(0.2), keras.layers.Dense(3)]
        )


def written(folder: Path) -> None:
    """Shards of records."""
    random = np.random.default_rng(0)
    for shard, numbers in enumerate(np.array_split(np.arange(RECORDS), 5)):
        with tf.io.TFRecordWriter(str(folder / f"{shard}.records")) as file:
            for number in numbers:
                x = tf.train.Feature(
                    float_list=tf.train.FloatList(value=random.normal(size=VALUES))
                )
                y = tf.train.Feature(int64_list=tf.train.Int64List(value=[number % 3]))
                file.write(
                    tf.train.Example(
                        features=tf.train.Features(feature={"x": x, "y": y})
                    ).SerializeToString()
                )


class Noted:
    """What was read of record files since `begin`."""

    passes = 0  # from the first record to the last
    numbers: list[int] = []  # noqa: RUF012  # of records that were read by their places; several threads add to it


def _note_reads() -> None:
    read, whole = files.Records.read, tf.data.TFRecordDataset

    def noted_read(self: files.Records, numbers: Any) -> Any:
        Noted.numbers.extend(numbers.tolist())
        return read(self, numbers)

    def noted_whole(files: Any) -> Any:
        Noted.passes += 1
        return whole(files)

    files.Records.read = noted_read
    tf.data.TFRecordDataset = noted_whole


def read_by(here: Here, kind: str, given: Assignment) -> tuple[Trained, tuple[int, ...], int]:
    """What comes of a trial, the rows or records that were asked for in its epochs, and passes over whole files."""
    if kind == "records" and tf.data.TFRecordDataset.__name__ != "noted_whole":
        _note_reads()
    trainable = {"rows": OfRows, "records": OfRecords}[kind]()
    trainable.begin(here.of(given))
    Rows.asked, Noted.numbers, Noted.passes = (), [], 0
    found = metrics(go_on(trainable))
    return (
        outcome(trainable, found),
        Rows.asked if kind == "rows" else tuple(Noted.numbers),
        Noted.passes,
    )
