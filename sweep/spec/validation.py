"""Validation of plain data with a pydantic model, with messages in the terms of the sweep file.

Expected values are described from the model's own JSON Schema, so that messages, editors and parser agree. A `Document`
holds the data of a file, the place of each part, and the mistakes found so far.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, NoReturn, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import ErrorDetails

from sweep.errors import Problem, refuse
from sweep.events import Value
from sweep.text import did_you_mean, escaped, guess, shortened

KeyPath: TypeAlias = tuple[str | int, ...]
"""The path from the top of a file to a value: keys of mappings and indices of lists."""


@dataclass(frozen=True, slots=True, order=True)
class TextPosition:
    """A place in a text; line and column are counted from 1, as in editors."""

    line: int
    column: int


# includes words of YAML 1.1, which other programs may use
_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
_LONG = 500
_LAST = TextPosition(2**31, 0)  # sorts mistakes outside of the text last


@dataclass(slots=True)
class Document:
    """Plain data with their places in a file, and the mistakes found while the data are processed."""

    source: str
    data: dict[str, Value] = field(default_factory=dict)
    keys: dict[KeyPath, TextPosition] = field(default_factory=dict)
    values: dict[KeyPath, TextPosition] = field(default_factory=dict)
    overrides: dict[KeyPath, str] = field(default_factory=dict)  # as typed, such as "--set a.b=1"
    mistakes: list[tuple[TextPosition, Problem]] = field(default_factory=list)
    found: int = 0  # number of mistakes, including suppressed ones
    faulty: set[TextPosition] = field(default_factory=set)  # places of mistakes in the text itself
    otherwise: dict[TextPosition, tuple[str, Value]] = field(
        default_factory=dict
    )  # words that YAML 1.1 reads differently: the word, and its value there

    def where(self, mark: TextPosition) -> str:
        """Format a place as compilers do."""
        return f"{self.source}:{mark.line}:{mark.column}"

    def fault(self, mark: TextPosition, what: str, hint: str = "") -> None:
        """Note a mistake in the text itself; later mistakes at the same place are suppressed as consequences."""
        self.faulty.add(mark)
        self._add(mark, self.where(mark), what, hint)

    def mistake(self, path: KeyPath, what: str, hint: str = "", *, at_key: bool = False) -> None:
        """Note a mistake in the value at ``path``, or in its key; a missing value is reported at its parent."""
        mark, where = self._place(path, at_key=at_key)
        if mark in self.faulty:
            self.found += 1
            return
        self._add(mark, where, f"{dotted(path)}: {what}" if path else what, hint)

    def outside(self, where: str, what: str, hint: str = "") -> None:
        """Note a mistake that is not in the text."""
        self._add(_LAST, where, what, hint)

    def check(self) -> None:
        """Raise InputError if there are mistakes, sorted by their place in the file."""
        in_file_order = sorted(self.mistakes, key=lambda entry: entry[0])
        refuse(problem for _, problem in in_file_order)

    def fatal(self, mark: TextPosition, what: str, hint: str = "") -> NoReturn:
        """Note a mistake that prevents further reading of the text, and raise InputError."""
        self.fault(mark, what, hint)
        self.check()
        raise AssertionError("a mistake was noted")

    def override(self, path: KeyPath, typed: str) -> None:
        """Record that the value at ``path`` was typed by the user and is not from the text."""
        self.overrides[path] = typed
        for marks in (self.keys, self.values):
            for inner in [inner for inner in marks if inner[: len(path)] == path]:
                del marks[inner]

    def _add(self, mark: TextPosition, where: str, what: str, hint: str) -> None:
        self.found += 1
        self.mistakes.append((mark, Problem(one_line(where), one_line(what), one_line(hint))))

    def place(self, path: KeyPath, *, at_key: bool = False) -> str:
        """Return the place and path of a value, or of its key, as in a message of `mistake`."""
        return f"{self._place(path, at_key=at_key)[1]}: {dotted(path)}"

    def _place(self, path: KeyPath, *, at_key: bool) -> tuple[TextPosition, str]:
        for length in range(len(path), -1, -1):
            prefix = path[:length]
            if prefix in self.overrides:
                return _LAST, self.overrides[prefix]
            if at_key and prefix in self.keys:
                marks = self.keys
            else:
                marks = self.values
            if prefix in marks:
                return marks[prefix], self.where(marks[prefix])
        return _LAST, self.source


def dotted(path: KeyPath) -> str:
    """Format a path: ``metrics[1].goal``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def one_line(text: str) -> str:
    """Return text from a file in printable form: on one line and of limited length."""
    return escaped(shortened(text, _LONG))


def describe_value(value: Value) -> str:
    """Describe a value in a few words on one line."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"number {value!r}"
        case str():
            return f"text {shortened(value, 60)!r}"
        case list():
            return f"a list of {len(value)}" if value else "an empty list"
        case _:
            return "a mapping" if value else "an empty mapping"


def flow(value: Value) -> str:
    """Format a value as YAML on one line."""
    match value:
        case str() if re.fullmatch(r"[A-Za-z][A-Za-z0-9_./-]*", value) and value.lower() not in _WORDS:
            return value
        case list():
            return f"[{', '.join(map(flow, value))}]"
        case dict():
            pairs = []
            for key, inner in value.items():
                pairs.append(f"{flow(key)}: {flow(inner)}")
            return f"{{{', '.join(pairs)}}}"
        case str():
            # some readers treat U+0085 and similar characters as line breaks
            return _escape_for_yaml(json.dumps(value, ensure_ascii=False))
        case _:
            return json.dumps(value)


def _escape_for_yaml(text: str) -> str:
    characters = []
    for character in text:
        characters.append(character if character.isprintable() else f"\\U{ord(character):08x}")
    return "".join(characters)


Schema: TypeAlias = Mapping[str, Any]
"""A JSON Schema as plain data."""

ModelT = TypeVar("ModelT", bound=BaseModel)

MANY = 15
"""If there are more choices than this and a hint names a likely one, the choices are not listed."""

_KINDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}
_TYPES = ((bool, "boolean"), (int | float, "number"), (str, "string"), (list, "array"), (dict, "object"))
_BOUNDS = {"minimum": "of at least {}", "exclusiveMinimum": "above {}", "exclusiveMaximum": "below {}"}


def name_kind(value: Value) -> str:
    """Return the word for the kind of a value; integers and floats are both numbers."""
    return _KINDS[next((name for of, name in _TYPES if isinstance(value, of)), "null")]


def validate(
    model: type[ModelT], data: Value, path: KeyPath, document: Document, hints: Mapping[str, str] = MappingProxyType({})
) -> ModelT | None:
    """Return the data as a model, or None after noting all mistakes in the document.

    ``hints`` are help for particular words: unknown keys, and texts that are not allowed.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        _note_mistakes(error, model, data, path, document, hints)
        return None


def validate_parts(
    model: type[ModelT], data: dict[str, Value], document: Document, hints: Mapping[str, str]
) -> tuple[ModelT, set[str]]:
    """Return a model made from the valid parts of the data, and the keys that are invalid.

    All keys of the model must be optional.
    """
    try:
        return model.model_validate(data), set()
    except ValidationError as error:
        _note_mistakes(error, model, data, (), document, hints)
        wrong = {str(fault["loc"][0]) for fault in error.errors()}
        return model.model_validate({key: data[key] for key in data if key not in wrong}), wrong


@cache
def schema_of(model: type[BaseModel]) -> Schema:
    """Return a model's JSON Schema with all references resolved."""
    schema = model.model_json_schema(schema_generator=_InFileOrder)
    resolved: Schema = _resolve_references(schema, schema.get("$defs", {}))
    return resolved


def expectation(schema: Schema) -> str:
    """Describe what a schema expects in a few words."""
    if "expected" in schema:
        return str(schema["expected"])
    # null is always allowed and not mentioned
    members = []
    for part in _members(schema):
        if part.get("type") != "null":
            members.append(part)
    kinds = {part.get("type") for part in members}
    if "number" in kinds:
        members = [part for part in members if part.get("type") != "integer"]  # a number may be whole
    examples = schema.get("examples") or members[0].get("examples", ())
    if examples:
        such = f" such as {flow(examples[0])}"
    else:
        such = ""
    if len(members) == 1:
        return _describe_member(members[0], such)
    if such:
        return f"a mapping{such}"
    return " or ".join(dict.fromkeys(expectation(part) for part in members))


def _describe_member(schema: Schema, such: str) -> str:
    """Describe what a schema without alternatives expects; ``such`` names an example."""
    if "expected" in schema:
        return str(schema["expected"])
    choices = _choices(schema)
    if choices:
        words = ", ".join(map(_name_choice, choices))
        if len(choices) == 1:
            return words
        return f"one of {words}"
    kind = _KINDS.get(schema.get("type", ""), "a value")
    if such:
        return f"{kind}{such}"
    if {"minLength", "minItems", "minProperties"} & schema.keys():
        kind = f"{kind} that is not empty"
    if "minimum" in schema and "maximum" in schema:
        return f"{kind} from {schema['minimum']:,} to {schema['maximum']:,}"
    limits = [words.format(schema[name]) for name, words in _BOUNDS.items() if name in schema]
    return " ".join([kind, *limits])


def _name_choice(choice: Value) -> str:
    if isinstance(choice, str):
        return choice
    return flow(choice)


class _InFileOrder(GenerateJsonSchema):
    """Keeps the order of keys in examples."""

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:
        return value


def _note_mistakes(
    error: ValidationError,
    model: type[BaseModel],
    data: Value,
    path: KeyPath,
    document: Document,
    hints: Mapping[str, str],
) -> None:
    words = _Words(document, hints)
    faults = []
    for fault in error.errors():
        faults.append((fault, *_locate(fault["loc"], data, schema_of(model))))
    # A mistake in a union is reported for each member, and one in a list of limited length also for the list.
    reported: set[KeyPath] = set()
    for _, inner, _, _ in faults:
        reported.update(inner[:length] for length in range(len(inner)))
    for fault, inner, value, expected in sorted(faults, key=lambda found: found[0]["type"] != "value_error"):
        if inner not in reported:
            words.note(fault, (*path, *inner), value, expected)
        reported.add(inner)


@dataclass(frozen=True, slots=True)
class _Words:
    """Converts pydantic's errors to mistakes of the document."""

    document: Document
    hints: Mapping[str, str]

    def note(self, fault: ErrorDetails, path: KeyPath, value: Value, expected: Schema) -> None:
        match fault["type"]:
            case "extra_forbidden":
                key = str(path[-1])
                hint = self.hints.get(key) or did_you_mean(key, _list_offered_keys(expected.get("properties", {})))
                self.document.mistake(path, "unknown key", hint, at_key=True)
            case "missing":
                self.document.mistake(path, f"missing, expected {expectation(expected)}")
            case "union_tag_not_found":
                self.document.mistake((*path, "type"), f"missing, expected {expectation(_tags(expected))}")
            case "union_tag_invalid" if isinstance(value, dict):
                self.unexpected((*path, "type"), value["type"], _tags(expected))
            case "value_error":
                self.document.mistake(path, f"{describe_value(value)}, expected {fault['ctx']['error']}")
            case _:
                self.unexpected(path, value, expected)

    def unexpected(self, path: KeyPath, value: Value, expected: Schema) -> None:
        kinds = {part.get("type") for part in _members(expected)}
        hint = ""
        match value:
            case str() if value in self.hints:
                hint = self.hints[value]
            case str() if kinds & {"integer", "number"} and _is_number(value):
                if "_" in value:
                    hint = "remove the underscores"
                else:
                    hint = "remove the quotes"
            case str() if near := guess(value, map(str, _choices(expected))):
                hint = near
            case float() if "integer" in kinds and value.is_integer():
                hint = f"write {int(value)}"
            case str() | int() | float() if "array" in kinds:
                hint = f"write {flow([value])}"
        choices = _choices(expected)
        many = hint and len(choices) > MANY
        if many:
            wanted = f"none of the {len(choices)} that are known"
        else:
            wanted = f"expected {expectation(expected)}"
        self.document.mistake(path, f"{describe_value(value)}, {wanted}", hint)


def _locate(loc: tuple[str | int, ...], data: Value, schema: Schema) -> tuple[KeyPath, Value, Schema]:
    """Return path, value and schema at the location of an error; locations also contain names of union members."""
    path: KeyPath = ()
    for part in loc:
        schema = _find_member(schema, data)
        properties = schema.get("properties", {})
        if isinstance(data, dict) and isinstance(part, str) and part in data:
            data = data[part]
            inner = properties.get(part, schema.get("additionalProperties"))
            if isinstance(inner, dict):  # otherwise an unknown key: keep the schema of its mapping
                schema = inner
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
            schema = schema.get("items", {})
        elif isinstance(data, dict) and part in properties:
            data, schema = None, properties[part]
        else:
            continue
        path = (*path, part)
    return path, data, schema


def _find_member(schema: Schema, data: Value) -> Schema:
    """Return the member of a union that the data probably mean, or the schema itself if unclear."""
    for part in _members(schema):
        tag = part.get("properties", {}).get("type", {}).get("const")
        if isinstance(data, dict) and part.get("type") == "object" and tag in (None, data.get("type")):
            return part
        if isinstance(data, list) and part.get("type") == "array":
            return part
    return schema


def _members(schema: Schema) -> list[Schema]:
    """Return the alternatives of a schema, or the schema itself."""
    parts = schema.get("anyOf") or schema.get("oneOf")
    if not parts:
        return [schema]
    return [member for part in parts for member in _members(part)]


def _choices(schema: Schema) -> list[Value]:
    choices: list[Value] = []
    for part in _members(schema):
        if "const" in part:
            choices.append(part["const"])
        else:
            choices.extend(part.get("enum", ()))
    return choices


def _tags(schema: Schema) -> Schema:
    tagged = []
    for part in _members(schema):
        if part.get("type") == "object":
            tagged.append(part)
    return {"enum": [part["properties"]["type"]["const"] for part in tagged]}


def _resolve_references(node: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_resolve_references(value, definitions) for value in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        target = definitions[node["$ref"].rsplit("/", 1)[1]]
        siblings = {}
        for key, value in node.items():
            if key != "$ref":
                siblings[key] = value
        return _resolve_references({**target, **siblings}, definitions)
    resolved = {}
    for key, value in node.items():
        if key != "$defs":
            resolved[key] = _resolve_references(value, definitions)
    return resolved


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _list_offered_keys(properties: Mapping[str, Any]) -> list[str]:
    """Return the keys that hints may suggest: all that have an effect."""
    offered = []
    for key, about in properties.items():
        if "without effect" not in str(about.get("description", "")):
            offered.append(key)
    return offered
