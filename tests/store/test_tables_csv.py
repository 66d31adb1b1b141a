from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from sweep.store.tables import write_csv


def test_values_of_each_type(tmp_path: Path) -> None:
    table = pa.table(
        {
            "x": [0.1 + 0.2, math.nan, None, -math.inf],
            "n": [2**62, None, -1, 0],
            "ok": [True, None, False, True],
            "=t": ["=1+1", "", None, 'a "b", c\nd'],
            "at": pa.array(
                [datetime(2026, 1, 1, tzinfo=UTC), None, None, None], pa.timestamp("us", "UTC")
            ),
            "none": pa.nulls(4),
        }
    )
    write_csv(table, tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_bytes().decode().split("\r\n") == [
        '"x","n","ok","\'=t","at","none"',
        '0.30000000000000004,4611686018427387904,true,"\'=1+1",2026-01-01 00:00:00.000000Z,',
        'nan,,,"",,',
        ",-1,false,,,",
        '-inf,0,true,"a ""b"", c\nd",,',
        "",
    ]


def test_what_looks_like_a_formula_is_text(tmp_path: Path) -> None:
    texts = ["=a", "+a", "-a", "@a", "\ta", "\ra", "a=", "'a", " =a", None]
    write_csv(pa.table({"t": texts}), tmp_path / "t.csv")
    _, *lines, end = (tmp_path / "t.csv").read_bytes().decode().split("\r\n")
    assert end == ""
    assert lines == [
        *(f'"\'{text}"' for text in texts[:6]),
        *(f'"{text}"' for text in texts[6:9]),
        "",
    ]
