"""The schemas of the documents: golden files, and what they say of values that JSON lacks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sweep.documents import schemas, shapes
from sweep.errors import UnknownNameError
from sweep.events import EpochReported, SessionStarted, Status, TrialEnded, encode
from sweep.render import document

GOLDEN = Path(__file__).parents[2] / "docs" / "schemas"


@pytest.mark.parametrize("name", schemas.SHAPES)
def test_the_schema_is_the_one_in_the_docs(name: str) -> None:
    """If you changed it on purpose: ``python -m sweep schema NAME > docs/schemas/NAME.json``.

    If a key has gone or has another meaning, raise the ``version`` of its document as well.
    """
    schema = schemas.find_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert json.loads((GOLDEN / f"{name}.json").read_text()) == schema


def test_the_docs_have_no_other_schema() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(schemas.SHAPES)


@pytest.mark.parametrize("kind", schemas.SHAPES.values(), ids=list(schemas.SHAPES))
def test_a_document_has_a_version(kind: Any) -> None:
    if not isinstance(kind, type) or kind is shapes.KubernetesList:
        return  # a list, lines of a log, or a format of Kubernetes
    assert schemas.make_schema("", kind)["$defs"][kind.__name__]["properties"]["version"] == {
        "enum": [1]
    }


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True, kw_only=True)
class Several(shapes.Document):
    """All kinds of values."""

    score: float
    count: int | None
    colour: Colour
    pair: tuple[int, str]
    inner: tuple[shapes.ShippedExample, ...]


def test_values_that_json_lacks() -> None:
    example = shapes.ShippedExample(name="a", question="b", cost="c")
    given = Several(
        score=float("nan"), count=None, colour=Colour.RED, pair=(1, "x"), inner=(example,)
    )
    found = json.loads(document(given))
    schema = schemas.make_schema("several", Several)
    jsonschema.validate(found, schema)
    assert list(found) == ["version", "score", "count", "colour", "pair", "inner"]
    for wrong in (
        {"score": "much"},
        {"count": 1.5},
        {"colour": "blue"},
        {"pair": [1]},
        {"version": 2},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**found, **wrong}, schema)


def test_the_lines_of_a_log_meet_the_schema_of_events() -> None:
    schema = schemas.find_schema("event")
    for event in (
        SessionStarted(time=1.0, resumed=False, version="1"),
        EpochReported(trial=0, epoch=1, metrics={"loss": float("inf")}, time=2.0, time_s=1.0),
        TrialEnded(trial=0, status=Status.FAILED, reason="ValueError: no", time=3.0),
    ):
        jsonschema.validate(json.loads(encode(event)), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"event": "trial_ended"}, schema)


def test_an_unknown_schema() -> None:
    with pytest.raises(UnknownNameError, match="no schema has this name; did you mean 'status'"):
        schemas.find_schema("staus")
