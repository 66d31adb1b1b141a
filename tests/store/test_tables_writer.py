import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from waiting import until

from sweep.errors import StoreError
from sweep.events import EpochReported, Event, TrialStarted
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log
from sweep.store.reading import TableWriter


@pytest.fixture
def folder(tmp_path) -> ResultsFolder:
    return ResultsFolder.create(
        tmp_path, "first", "", {"objectives": [{"name": "loss", "goal": "minimize"}]}
    )


def story(trial: int) -> list[Event]:
    return [
        TrialStarted(trial=trial, trial_id=f"t{trial}", params={}, seed=0, repeat=0, time=1.0),
        EpochReported(trial=trial, epoch=1, metrics={"loss": 0.5}, time=2.0, time_s=0.5),
    ]


def wait_for_trials(folder: ResultsFolder, count: int) -> None:
    def are_there() -> bool:
        # By its bytes: pandas opens a path twice, and the file may be another one by then.
        return (
            folder.trials.exists()
            and len(pq.read_table(pa.BufferReader(folder.trials.read_bytes()))) == count
        )

    until(are_there, f"never saw {count} trials")


def test_the_files_follow_the_log_and_are_complete_at_the_end(folder):
    with Log(folder.log) as log, TableWriter(folder, first_s=0.01):
        log.append(story(0))
        wait_for_trials(folder, 1)
        log.append(story(1))
        wait_for_trials(folder, 2)
        log.append(story(2))
    assert pd.read_parquet(folder.trials)["objective"].tolist() == [0.5] * 3
    assert pd.read_parquet(folder.metrics)["trial"].tolist() == [0, 1, 2]
    assert not [path for path in folder.path.iterdir() if path.name.startswith(".")]


def test_a_sweep_without_a_trial_has_empty_tables(folder):
    TableWriter(folder).close()
    assert len(pd.read_parquet(folder.trials)) == len(pd.read_parquet(folder.metrics)) == 0


def test_a_failed_update_is_logged_and_made_good(folder, caplog):
    folder.trials.mkdir()  # no file can take this place
    with Log(folder.log) as log, TableWriter(folder, first_s=0.01) as writer:
        log.append(story(0))
        until(lambda: caplog.records)
        assert "the tables could not be written" in caplog.text
        with pytest.raises(StoreError, match=r"trials.parquet: Is a directory"):
            writer.close()
        folder.trials.rmdir()
    assert len(pd.read_parquet(folder.trials)) == 1


def test_a_log_that_cannot_be_read_is_an_error_at_the_end(folder):
    folder.log.write_bytes(b'{"event":"trial_paused"}\n')
    writer = TableWriter(folder)
    with pytest.raises(StoreError, match=r"log.jsonl:1: unknown event 'trial_paused'"):
        writer.close()
    assert not folder.trials.exists()
