"""Tables that one number of servers has written, read by another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from trainables.state import checkpoint
from trainables.state.checkpoint import CheckpointError, Shard

pytestmark = pytest.mark.keras

ROWS, WIDTH = 10, 3
TABLE = np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)


def parts(count: int, *, filled: bool) -> list[Shard]:
    ends = np.cumsum([ROWS // count + (i < ROWS % count) for i in range(count)]).tolist()
    cuts = zip([0, *ends[:-1]], ends, strict=True)
    rows = TABLE if filled else np.zeros_like(TABLE)
    return [
        Shard(tf.Variable(rows[start:stop]), "/cpu:0", start, stop, ROWS) for start, stop in cuts
    ]


@pytest.mark.parametrize(("before", "after"), [(2, 1), (2, 3), (1, 2), (3, 2), (2, 2), (1, 7)])
def test_rows_are_where_they_belong_however_many_servers_there_are(
    before: int, after: int, tmp_path: Path
) -> None:
    about = checkpoint.save_tables(
        tmp_path,
        {"table": parts(before, filled=True), "table/momentum": parts(before, filled=False)},
    )
    found = {"table": parts(after, filled=False), "table/momentum": parts(after, filled=True)}
    checkpoint.restore_tables(tmp_path, found, about)
    np.testing.assert_array_equal(
        np.concatenate([part.variable.numpy() for part in found["table"]]), TABLE
    )
    assert not any(part.variable.numpy().any() for part in found["table/momentum"])


def test_what_is_damaged_or_of_another_model_is_said(tmp_path: Path) -> None:
    about = checkpoint.save_tables(tmp_path, {"table": parts(2, filled=True)})
    with pytest.raises(CheckpointError, match="another model's tables: other, table"):
        checkpoint.restore_tables(tmp_path, {"other": parts(2, filled=True)}, about)
    with pytest.raises(CheckpointError, match="not all saved"):
        checkpoint.restore_tables(
            tmp_path, {"table": parts(2, filled=True)}, {"table": about["table"][:1]}
        )
    wider = [Shard(tf.Variable(np.zeros((ROWS, WIDTH + 1), np.float32)), "/cpu:0", 0, ROWS, ROWS)]
    with pytest.raises(CheckpointError, match="table"):
        checkpoint.restore_tables(tmp_path, {"table": wider}, about)
    next((tmp_path / checkpoint.FOLDER).glob("*.index")).unlink()
    with pytest.raises(CheckpointError, match="table"):
        checkpoint.restore_tables(tmp_path, {"table": parts(2, filled=True)}, about)
