"""JSON Schemas (draft 2020-12) of what the commands print with ``--json``, made from the types of the documents."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec

from sweep import spec
from sweep.analysis.confirmation import Confirmation
from sweep.analysis.verdict import SweepSummary
from sweep.backends.ray_tune.jobs import SweepJob
from sweep.doctor.findings import Finding
from sweep.documents import shapes
from sweep.documents.mistakes import ErrorDocument
from sweep.errors import UnknownNameError
from sweep.events import Event, Facts, Inputs, Record
from sweep.text import did_you_mean

Json: TypeAlias = dict[str, Any]

DRAFT = "https://json-schema.org/draft/2020-12/schema"
NUMBER: Json = {
    "description": "A number; what is not finite is a text.",
    "anyOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}],
}
IMPORTED_LATE = {"Confirmation": Confirmation}
"""Types of fields, by the names in annotations: the modules of these fields import the types only when needed."""
PLAIN: Mapping[Any, Json] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    str: {"type": "string"},
    Path: {"type": "string"},
    type(None): {"type": "null"},
    Any: {},
}

SESSION = shapes.SessionDocument
SHAPES: Mapping[str, Any] = {
    "add": shapes.AddedDocument,
    "best": shapes.BestDocument,
    "change": shapes.ChangedDocument,
    "compare": shapes.ComparisonDocument,
    "confirm": SESSION,
    "dashboard": shapes.DashboardDocument,
    "doctor": tuple[Finding, ...],
    "error": ErrorDocument,
    "event": Event,
    "examples": tuple[shapes.ShippedExample, ...] | shapes.FilesWritten,
    "export": shapes.ExportDocument,
    "init": shapes.FilesWritten,
    "kube": shapes.KubernetesList,
    "list": tuple[SweepSummary | SweepJob, ...],
    "logs": shapes.LogsDocument | shapes.TrialOutputDocument,
    "note": shapes.NotedDocument,
    "plan": shapes.PlanDocument,
    "repair": shapes.RepairDocument,
    "replay": shapes.ReplayDocument,
    "report": shapes.ReportDocument,
    "resume": SESSION | shapes.DetachedDocument | shapes.SubmittedDocument,
    "retrain": SESSION,
    "run": SESSION | shapes.DetachedDocument,
    "slurm": shapes.SlurmDocument,
    "star": shapes.StarredDocument,
    "status": shapes.StatusDocument,
    "stop": shapes.StoppedDocument,
    "submit": shapes.SubmittedDocument,
    "ui": shapes.PageDocument,
    "wait": shapes.WaitDocument,
}
"""The type of what each command prints; ``error`` is what all of them print if they fail, ``event`` a line of a log."""

NAMES = ("file", *SHAPES)
"""What a schema can be asked for: the sweep file, and the names in `SHAPES`."""


def find_schema(name: str) -> Json:
    """Return the schema with this name: of a command's document, of ``error``, of ``event`` or of a sweep ``file``.

    Raises `UnknownNameError` if ``name`` is none of `NAMES`.
    """
    if name == "file":
        return spec.json_schema()
    if name not in SHAPES:
        hint = did_you_mean(name, NAMES) or f"there are {', '.join(NAMES)}"
        raise UnknownNameError.one(name, "no schema has this name", hint)
    if name in ("error", "event"):  # all others are names of commands
        title = f"sweep {name}"
    else:
        title = f"sweep {name} --json"
    return make_schema(title, SHAPES[name])


def make_schema(title: str, kind: Any) -> Json:
    """Return the whole schema of a type, with ``title``, and with the classes that the type is made of under ``$defs``.

    ``kind`` is a class of a document, or a type made of such classes and plain types, such as a union or a tuple.
    Raises TypeError if a type has no schema.
    """
    definitions: dict[str, Json] = {}
    schema = _make_schema(kind, definitions)
    return {"$schema": DRAFT, "title": title, **schema, "$defs": dict(sorted(definitions.items()))}


def _make_schema(kind: Any, definitions: dict[str, Json]) -> Json:
    """Return the schema of a type; add the schemas of classes in it to ``definitions``, by their names.

    The schema of a class, and of a float, is only a reference to its definition; a class that ``definitions`` already
    has is not described again. Raises TypeError if a type has no schema.
    """
    if kind is float:
        definitions["number"] = NUMBER
        return {"$ref": "#/$defs/number"}
    if kind in PLAIN:
        return PLAIN[kind]
    # `Value` within itself, which is a name there and not a type; {} allows everything
    if isinstance(kind, typing.ForwardRef):
        return {}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    if _is_record(kind):
        if kind.__name__ not in definitions:
            definitions[kind.__name__] = {}  # so that a class may contain itself
            definitions[kind.__name__] = _describe_record(kind, definitions)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    return _describe_generic(kind, definitions)


def _describe_generic(kind: Any, definitions: dict[str, Json]) -> Json:
    # of ``tuple[int, str]``, the origin is ``tuple``, and the parts are the types in brackets
    origin = get_origin(kind)
    parts = get_args(kind)
    if origin is Literal:
        return {"enum": list(parts)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_make_schema(part, definitions) for part in parts]}
    # of fixed length; others are sequences, below
    if origin is tuple and parts[-1] is not Ellipsis:
        items = [_make_schema(part, definitions) for part in parts]
        return {
            "type": "array",
            "prefixItems": items,
            "minItems": len(items),
            "maxItems": len(items),
        }
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _make_schema(parts[1], definitions)}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return {"type": "array", "items": _make_schema(parts[0], definitions)}
    raise TypeError(f"{kind} has no schema")


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and (
        dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct)
    )


def _describe_record(kind: type, definitions: dict[str, Json]) -> Json:
    """Return the schema of a class whose fields are the keys of an object; further keys are allowed.

    Its description is the first line of the class's docstring. The schemas of classes in its fields are added to
    ``definitions``. All keys are required, except, in the classes of a log's lines, those with a default. An event also
    has the required key ``event``, its name.
    """
    hints = get_type_hints(kind, localns=IMPORTED_LATE)
    properties: dict[str, Json] = {}
    required = []
    if issubclass(kind, Record):
        properties["event"] = {"const": kind.__struct_config__.tag}
        required.append("event")
    # a line of a log; documents have all their keys
    leaves_out_defaults = issubclass(kind, Record | Facts | Inputs)
    for key, name, has_default in _list_keys(kind):
        properties[key] = _make_schema(hints[name], definitions)
        if not (leaves_out_defaults and has_default):
            required.append(key)
    about = (kind.__doc__ or "").splitlines()[0]
    return {"type": "object", "description": about, "properties": properties, "required": required}


def _list_keys(kind: Any) -> list[tuple[str, str, bool]]:
    """Return, for each field of a class, the key in JSON, the name of the attribute, and whether there is a default.

    ``kind`` is a class of msgspec, whose fields may have other names in JSON, or a dataclass. A default factory of a
    dataclass does not count as a default.
    """
    if issubclass(kind, msgspec.Struct):
        found = []
        for field in msgspec.structs.fields(kind):
            has_default = (
                field.default is not msgspec.NODEFAULT
                or field.default_factory is not msgspec.NODEFAULT
            )
            found.append((field.encode_name, field.name, has_default))
        return found
    return [
        (field.name, field.name, field.default is not dataclasses.MISSING)
        for field in dataclasses.fields(kind)
    ]
