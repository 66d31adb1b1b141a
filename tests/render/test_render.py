"""JSON as it is read."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import pytest

from sweep.events import Status
from sweep.render import document


@dataclass(frozen=True)
class Inner:
    """With all that JSON has no word for."""

    state: Status
    values: tuple[float, ...]
    path: Path


@dataclass(frozen=True)
class Outer:
    """A tuple of data classes in a data class."""

    inner: tuple[Inner, ...]
    params: dict[str, object]


def test_data_classes_tuples_enumerations_and_numbers_that_are_none() -> None:
    inner = Inner(Status.COMPLETED, (0.5, math.nan), Path("results/a"))
    told = json.loads(document(Outer((inner,), {"x": [1, None, True]})))
    assert told == {
        "inner": [{"state": "completed", "values": [0.5, "nan"], "path": "results/a"}],
        "params": {"x": [1, None, True]},
    }


def test_what_has_no_json_is_refused() -> None:
    with pytest.raises(TypeError, match="is of type object"):
        document({"x": object()})
