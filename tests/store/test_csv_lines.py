from __future__ import annotations

import math
from datetime import UTC, datetime

import pyarrow as pa

from sweep.store.csv_lines import lines


def test_lines() -> None:
    table = pa.table(
        {
            "x": [0.1 + 0.2, math.nan, None, -math.inf],
            "n": [2**62, None, -1, 0],
            "ok": [True, None, False, True],
            "=t": ["=1+1", "", None, 'a "b", c\nd'],
            "at": [datetime(2026, 1, 1, tzinfo=UTC), None, None, None],
        }
    )
    assert "".join(lines(table)).split("\r\n") == [
        "x,n,ok,'=t,at",
        "0.30000000000000004,4611686018427387904,true,'=1+1,2026-01-01T00:00:00+00:00",
        'nan,,,"",',
        ",-1,false,,",
        '-inf,0,true,"a ""b"", c\nd",',
        "",
    ]


def test_long_tables_are_written_in_parts() -> None:
    table = pa.table({"n": list(range(50_001))})
    assert "".join(lines(table)).split("\r\n")[1:-1] == [str(n) for n in range(50_001)]
