"""Tables are read from their files only where these are of the log."""

from __future__ import annotations

from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from tales import STORY, build, started, written

from sweep.errors import StoreError
from sweep.store import reading, tables
from sweep.store.features import STAND_IN
from sweep.store.log import Log
from sweep.store.reading import TableWriter, read_tables


def test_reading_uses_the_files_only_if_they_hold_the_whole_log(tmp_path):
    folder = written(tmp_path, "first", STORY)
    fresh = read_tables(folder)
    assert fresh.history.ended == "finished"
    for table, derived in (
        (fresh.trials, build(STORY).trials()),
        (fresh.metrics, build(STORY).metrics()),
    ):
        assert str(table.to_pylist()) == str(derived.to_pylist())  # as text, for NaN
        assert table.schema == derived.schema
    log_before = folder.log.read_bytes()
    with Log(folder.log) as log:
        log.append([started(2)])
    files = {path: path.read_bytes() for path in (folder.trials, folder.metrics, folder.log)}
    assert read_tables(folder).trials.num_rows == 3
    assert {path: path.read_bytes() for path in files} == files  # reading writes nothing
    folder.trials.write_bytes(b"not Parquet")
    assert read_tables(folder).trials.num_rows == 3
    folder.trials.write_bytes(files[folder.trials])
    folder.log.unlink()
    assert read_tables(folder).trials.num_rows == 2  # only the files are left
    folder.log.write_bytes(log_before)
    folder.metrics.unlink()
    assert read_tables(folder).metrics.num_rows == 3


def test_files_that_are_replaced_while_they_are_read_are_read_as_they_were(tmp_path, monkeypatch):
    folder = written(tmp_path, "first", STORY)
    count_bytes_behind = reading.count_bytes_behind

    def replaced_after(history, log):
        behind = count_bytes_behind(history, log)
        for path in (folder.trials, folder.metrics):
            aside = path.with_suffix(".new")
            aside.write_bytes(b"another one")
            aside.replace(path)
        return behind

    monkeypatch.setattr(reading, "count_bytes_behind", replaced_after)
    assert [table.num_rows for table in (read_tables(folder).trials, build(STORY).trials())] == [
        2,
        2,
    ]


def test_tables_of_an_earlier_version_that_do_not_name_nulls_are_made_of_the_log(
    tmp_path, monkeypatch
):
    story = [started(0, {"a": None, "b": 1}), started(1, {"a": 2})]
    folder = written(tmp_path, "first", story)
    stored = read_tables(folder)
    trials = stored.trials.drop_columns(["null_params"])
    tables.write(folder, replace(stored, trials=trials, history=replace(stored.history, layout=0)))
    assert read_tables(folder).trials["null_params"].to_pylist() == ['["a"]', None]
    folder.log.unlink()
    assert read_tables(folder).trials.num_rows == 2  # only the files are left


@pytest.mark.parametrize("harm", ["missing", "damaged", "of another time"])
def test_without_a_log_tables_that_do_not_belong_together_are_an_error(tmp_path, harm):
    """They are not a sweep without trials."""
    folder = written(tmp_path, "first", [started(0)])
    earlier = folder.metrics.read_bytes()
    with Log(folder.log) as log:
        log.append([started(1)])
    TableWriter(folder).close()
    match harm:
        case "missing":
            folder.metrics.unlink()
        case "damaged":
            folder.metrics.write_bytes(earlier[:100])
        case _:
            folder.metrics.write_bytes(earlier)
    assert read_tables(folder).trials.num_rows == 2
    folder.log.unlink()
    with pytest.raises(StoreError, match=r"trials\.parquet: cannot be read with metrics\.parquet"):
        read_tables(folder)


def test_a_damaged_table_is_named_with_what_to_do(tmp_path):
    folder = written(tmp_path, "first", STORY)
    content = bytearray(folder.trials.read_bytes())
    # the footer stays, so that the file can be opened
    content[4:100] = bytes(96)
    folder.trials.write_bytes(content)
    with pytest.raises(StoreError, match=r"trials\.parquet or metrics\.parquet: damaged .*delete"):
        read_tables(folder)
    folder.trials.unlink()
    assert read_tables(folder).trials.num_rows == 2


def test_only_the_columns_that_are_asked_for_are_read_of_the_metrics(tmp_path):
    folder = written(tmp_path, "first", STORY)
    for _ in ("from the files", "from the log"):
        assert read_tables(folder, ("epoch", "nowhere")).metrics.column_names == ["epoch"]
        assert read_tables(folder, ()).metrics.column_names == []
        folder.trials.unlink(missing_ok=True)


def test_files_of_another_log_of_the_same_length_are_not_taken_for_its(tmp_path):
    folder = written(tmp_path, "first", STORY)
    log = folder.log.read_bytes()
    folder.log.write_bytes(log.replace(b'"loss is nan"', b'"loss is inf"'))
    reasons = read_tables(folder).trials["status_reason"].to_pylist()
    assert reasons == ["", "loss is inf"]


def test_files_of_an_earlier_version_are_still_read(tmp_path, monkeypatch):
    monkeypatch.setattr(tables.log, "mark", lambda path, end: None)
    folder = written(tmp_path, "first", STORY)
    monkeypatch.undo()
    folder.log.write_bytes(folder.log.read_bytes().replace(b'"loss is nan"', b'"loss is inf"'))
    assert read_tables(folder).trials["status_reason"].to_pylist() == ["", "loss is nan"]


def test_checkpoints_that_were_deleted_are_not_named(tmp_path):
    folder = written(tmp_path, "first", STORY)
    named = "checkpoints/t0/2"
    assert read_tables(folder).trials["checkpoint"].to_pylist() == [named, None]
    (folder.path / named).rmdir()
    caught_up = read_tables(folder)
    assert caught_up.trials["checkpoint"].to_pylist() == [None, None]
    assert caught_up.trials.schema == build(STORY).trials().schema
    tables.write(folder, build(STORY).tables())
    assert pq.read_table(folder.trials)["checkpoint"].to_pylist() == [None, None]


def test_a_copy_of_a_store_names_the_checkpoints_of_the_store(tmp_path):
    folder = written(tmp_path, "first", STORY)
    (folder.path / "checkpoints" / "t0" / "2").rmdir()
    (folder.path / STAND_IN).write_text((tmp_path / "store").as_uri())
    assert read_tables(folder).trials["checkpoint"].to_pylist() == ["checkpoints/t0/2", None]
