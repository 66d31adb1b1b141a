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
    """A position in a text; line and column are counted from 1, as in editors."""

    line: int
    column: int


# includes words of YAML 1.1, which other programs may use
_WORDS_WITH_A_MEANING = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
_MAX_LENGTH = 500
_LAST = TextPosition(2**31, 0)  # sorts mistakes outside of the text last


@dataclass(slots=True)
class Document:
    """The data of a sweep file, the position of each key and value, and the mistakes found so far."""

    source: str
    data: dict[str, Value] = field(default_factory=dict)
    keys: dict[KeyPath, TextPosition] = field(default_factory=dict)
    values: dict[KeyPath, TextPosition] = field(default_factory=dict)
    overrides: dict[KeyPath, str] = field(default_factory=dict)  # as typed, such as "--set a.b=1"
    mistakes: list[tuple[TextPosition, Problem]] = field(default_factory=list)
    found: int = 0  # number of mistakes, including suppressed ones
    faulty: set[TextPosition] = field(default_factory=set)  # places of mistakes in the text itself
    # words that YAML 1.1 reads differently: the word, and its value there
    otherwise: dict[TextPosition, tuple[str, Value]] = field(default_factory=dict)

    def where(self, mark: TextPosition) -> str:
        """Format a position as compilers do: ``file:line:column``."""
        return f"{self.source}:{mark.line}:{mark.column}"

    def add_text_mistake(self, mark: TextPosition, what: str, hint: str = "") -> None:
        """Add a mistake in the text itself, at the position ``mark``.

        `add_mistake` only counts later mistakes in the value or key at the same position, because they follow from it.
        """
        self.faulty.add(mark)
        self._add(mark, self.where(mark), what, hint)

    def add_mistake(
        self, path: KeyPath, what: str, hint: str = "", *, at_key: bool = False
    ) -> None:
        """Add a mistake in the value at ``path`` or, with ``at_key``, in its key.

        If the value is missing, the mistake has the position of the block around it; for a value from an assignment,
        messages show the assignment. A mistake at the position of a mistake in the text itself is only counted in
        `found`.
        """
        mark, where = self._find_place(path, at_key=at_key)
        if mark in self.faulty:
            self.found += 1
            return
        self._add(mark, where, f"{format_path(path)}: {what}" if path else what, hint)

    def add_outside_mistake(self, where: str, what: str, hint: str = "") -> None:
        """Add a mistake that has no position in the text, such as one in an assignment of ``--set``.

        Messages show ``where`` as its place, and it is sorted after all mistakes that have a position.
        """
        self._add(_LAST, where, what, hint)

    def check(self) -> None:
        """Raise InputError with all mistakes, sorted by their position; do nothing if there are none."""
        in_file_order = sorted(self.mistakes, key=lambda entry: entry[0])
        refuse(problem for _, problem in in_file_order)

    def fail(self, mark: TextPosition, what: str, hint: str = "") -> NoReturn:
        """Add a mistake that prevents further parsing, and raise InputError with all mistakes so far."""
        self.add_text_mistake(mark, what, hint)
        self.check()
        raise AssertionError("a mistake was noted")

    def override(self, path: KeyPath, typed: str) -> None:
        """Record that the value at ``path`` comes from an assignment; the value itself is not changed here.

        The positions of what stood there, and of all within it, are forgotten. ``typed`` is the assignment as the user
        has typed it, which messages show in place of a position.
        """
        self.overrides[path] = typed
        for marks in (self.keys, self.values):
            # A list, because the mapping changes during the loop.
            for inner in [inner for inner in marks if inner[: len(path)] == path]:
                del marks[inner]

    def _add(self, mark: TextPosition, where: str, what: str, hint: str) -> None:
        """Add a mistake to the list and count it; each of its texts is put on one line and shortened (`one_line`)."""
        self.found += 1
        self.mistakes.append((mark, Problem(one_line(where), one_line(what), one_line(hint))))

    def place(self, path: KeyPath, *, at_key: bool = False) -> str:
        """Format the position and path of a value, or of its key, as messages begin."""
        return f"{self._find_place(path, at_key=at_key)[1]}: {format_path(path)}"

    def _find_place(self, path: KeyPath, *, at_key: bool) -> tuple[TextPosition, str]:
        """Return the position of a value or key, and the text that shows it in messages.

        Without a known position, they are those of the innermost block around it that has one. For a value from an
        assignment, the position is `_LAST` and the text is the assignment; without any position, the text is `source`.
        """
        for length in range(len(path), -1, -1):  # down to (), the file itself
            prefix = path[:length]
            if prefix in self.overrides:
                return _LAST, self.overrides[prefix]
            if at_key and prefix in self.keys:  # an item of a list has no key
                marks = self.keys
            else:
                marks = self.values
            if prefix in marks:
                return marks[prefix], self.where(marks[prefix])
        return _LAST, self.source


def format_path(path: KeyPath) -> str:
    """Format a path with dots and indices, such as ``metrics[1].goal``; "" for the empty path."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def one_line(text: str) -> str:
    """Return a text on one line: shortened to 500 characters, and then with unprintable characters escaped."""
    return escaped(shortened(text, _MAX_LENGTH))


def describe_value(value: Value) -> str:
    """Describe a value for a message, such as "text 'adam'", "number 0.1", "a list of 3" or "nothing" for None.

    A text is shortened to 60 characters.
    """
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
    """Format a value as YAML on one line, in which texts other than plain words are in double quotes.

    Characters that are not printable are escaped. Null is written as ``null``.
    """
    match value:
        # A plain word needs no quotes, unless YAML reads it as something else than a text.
        case str() if (
            re.fullmatch(r"[A-Za-z][A-Za-z0-9_./-]*", value)
            and value.lower() not in _WORDS_WITH_A_MEANING
        ):
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
_TYPES = (
    (bool, "boolean"),
    (int | float, "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
)
_BOUNDS = {
    "minimum": "of at least {}",
    "exclusiveMinimum": "above {}",
    "exclusiveMaximum": "below {}",
}


def name_kind(value: Value) -> str:
    """Return the kind of a value in words, such as "a list", "true or false" for a bool, or "nothing" for None.

    Integers and floats are both "a number".
    """
    return _KINDS[next((name for of, name in _TYPES if isinstance(value, of)), "null")]


def validate(
    model: type[ModelT],
    data: Value,
    path: KeyPath,
    document: Document,
    hints: Mapping[str, str] = MappingProxyType({}),
) -> ModelT | None:
    """Validate data with a pydantic model; return the model, or None after adding all mistakes to the document.

    ``path`` is the place of the data in the document. ``hints`` maps unknown keys and texts that are not allowed to the
    help for them.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        _note_mistakes(error, model, data, path, document, hints)
        return None


def validate_parts(
    model: type[ModelT], data: dict[str, Value], document: Document, hints: Mapping[str, str]
) -> tuple[ModelT, set[str]]:
    """Validate a whole file with a pydantic model; return the model of its valid top-level keys and the invalid ones.

    All keys of the model must be optional: in the model, invalid ones have their default. The set of invalid keys also
    has unknown ones. Mistakes are added to the document; ``hints`` is as for `validate`.
    """
    try:
        return model.model_validate(data), set()
    except ValidationError as error:
        _note_mistakes(error, model, data, (), document, hints)
        wrong = {str(fault["loc"][0]) for fault in error.errors()}  # the top-level key of each
        return model.model_validate({key: data[key] for key in data if key not in wrong}), wrong


@cache
def get_schema(model: type[BaseModel]) -> Schema:
    """Return the JSON Schema of a pydantic model with all references resolved; it is kept, and must not be changed."""
    schema = model.model_json_schema(schema_generator=_InFileOrder)
    resolved: Schema = _resolve_references(schema, schema.get("$defs", {}))
    return resolved


def describe_expected(schema: Schema) -> str:
    """Describe what a schema allows in a few words, such as "a whole number of at least 1".

    A text `expected` in the schema is returned as it is. Alternatives are joined by "or", without null and, beside a
    number, without a whole number. An example takes the place of limits, and of alternatives that are mappings.
    """
    if "expected" in schema:
        return str(schema["expected"])
    # null is always allowed and not mentioned
    members = []
    for part in _list_alternatives(schema):
        if part.get("type") != "null":
            members.append(part)
    kinds = {part.get("type") for part in members}
    if "number" in kinds:
        # a number may be whole
        members = [part for part in members if part.get("type") != "integer"]
    # An example says more than a list of what is possible.
    examples = schema.get("examples") or members[0].get("examples", ())
    if examples:
        such = f" such as {flow(examples[0])}"
    else:
        such = ""
    if len(members) == 1:
        return _describe_alternative(members[0], such)
    # alternatives with an example are mappings of several types, such as `early_terminate`
    if such:
        return f"a mapping{such}"
    return " or ".join(dict.fromkeys(describe_expected(part) for part in members))


def _describe_alternative(schema: Schema, such: str) -> str:
    """Describe what a schema without alternatives allows.

    ``such`` is a text with an example, which takes the place of limits but not of listed choices; it may be empty.
    """
    if "expected" in schema:
        return str(schema["expected"])
    choices = _list_choices(schema)
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
    """Format an allowed value for a message: a text as it is, any other value as YAML."""
    if isinstance(choice, str):
        return choice
    return flow(choice)


class _InFileOrder(GenerateJsonSchema):
    """Generates JSON Schemas in which the keys of examples keep their order."""

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
    """Convert the errors of a validation to mistakes of the document, at most one for each place.

    An error of a block is left out if there is another one within the block. Of several errors at one place, one of
    sweep's own checks is kept, or else the first.
    ``path`` is the place of ``data`` in the document; ``hints`` is as for `validate`.
    """
    writer = _MistakeWriter(document, hints)
    faults = []  # each error with its path within ``data``, the value there, and the schema of the value
    for fault in error.errors():
        faults.append((fault, *_find_location(fault["loc"], data, get_schema(model))))
    # A mistake in a union is reported for each member, and one in a list of limited length also for the list. So the
    # blocks around each mistake count as reported from the start.
    reported: set[KeyPath] = set()
    for _, inner, _, _ in faults:
        reported.update(inner[:length] for length in range(len(inner)))
    # Of several at one place, those of sweep's own checks (`value_error`) come first, because they say what is wrong.
    for fault, inner, value, expected in sorted(
        faults, key=lambda found: found[0]["type"] != "value_error"
    ):
        if inner not in reported:
            writer.note(fault, (*path, *inner), value, expected)
        reported.add(inner)


@dataclass(frozen=True, slots=True)
class _MistakeWriter:
    """Converts errors of pydantic to mistakes of a document, in the words of sweep."""

    document: Document
    hints: Mapping[str, str]

    def note(self, fault: ErrorDetails, path: KeyPath, value: Value, expected: Schema) -> None:
        """Add the mistake for one error of pydantic in ``value`` at ``path``, where the schema ``expected`` applies."""
        match fault["type"]:
            case "extra_forbidden":
                key = str(path[-1])
                hint = self.hints.get(key) or did_you_mean(
                    key, _list_offered_keys(expected.get("properties", {}))
                )
                self.document.add_mistake(path, "unknown key", hint, at_key=True)
            case "missing":
                self.document.add_mistake(path, f"missing, expected {describe_expected(expected)}")
            case (
                "union_tag_not_found"
            ):  # a mapping without `type`, which tells the alternatives apart
                self.document.add_mistake(
                    (*path, "type"),
                    f"missing, expected {describe_expected(_make_schema_of_types(expected))}",
                )
            case "union_tag_invalid" if isinstance(value, dict):
                self.add_unexpected((*path, "type"), value["type"], _make_schema_of_types(expected))
            case "value_error":  # of one of sweep's own checks, whose error says what is expected
                self.document.add_mistake(
                    path, f"{describe_value(value)}, expected {fault['ctx']['error']}"
                )
            case _:
                self.add_unexpected(path, value, expected)

    def add_unexpected(self, path: KeyPath, value: Value, expected: Schema) -> None:
        """Add a mistake at ``path`` for a value that the schema does not allow, with a hint if the cause seems clear.

        The hint comes from `hints` or says how to write the value, for a number in quotes, a whole number written as a
        float, a text that resembles a choice, or a single value in place of a list. The mistake describes what is
        expected, but does not list more than `MANY` choices if there is a hint.
        """
        kinds = {part.get("type") for part in _list_alternatives(expected)}
        hint = ""
        match value:  # the first case that applies: hints for known texts come before guesses
            case str() if value in self.hints:
                hint = self.hints[value]
            case str() if kinds & {"integer", "number"} and _is_number(value):
                if "_" in value:
                    hint = "remove the underscores"
                else:
                    hint = "remove the quotes"
            case str() if near := guess(value, map(str, _list_choices(expected))):
                hint = near
            case float() if "integer" in kinds and value.is_integer():
                hint = f"write {int(value)}"
            case str() | int() | float() if "array" in kinds:
                hint = f"write {flow([value])}"
        choices = _list_choices(expected)
        many = hint and len(choices) > MANY  # the hint names the likely one
        if many:
            wanted = f"none of the {len(choices)} that are known"
        else:
            wanted = f"expected {describe_expected(expected)}"
        self.document.add_mistake(path, f"{describe_value(value)}, {wanted}", hint)


def _find_location(
    loc: tuple[str | int, ...], data: Value, schema: Schema
) -> tuple[KeyPath, Value, Schema]:
    """Return the path, the value and the schema at the location of a pydantic error.

    ``loc`` is the location in ``data``, which ``schema`` describes. The parts of a location that name the member of a
    union are skipped. For a missing key, the value is None. For an unknown key, the schema is that of the mapping with
    the key.
    """
    path: KeyPath = ()
    for part in loc:
        schema = _find_alternative(schema, data)
        properties = schema.get("properties", {})
        if isinstance(data, dict) and isinstance(part, str) and part in data:
            data = data[part]
            inner = properties.get(part, schema.get("additionalProperties"))
            if isinstance(inner, dict):  # otherwise an unknown key: keep the schema of its mapping
                schema = inner
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
            schema = schema.get("items", {})
        elif isinstance(data, dict) and part in properties:  # a key that is missing
            data, schema = None, properties[part]
        else:  # the part names the member of a union, which is no part of the file
            continue
        path = (*path, part)
    return path, data, schema


def _find_alternative(schema: Schema, data: Value) -> Schema:
    """Return the first alternative of a schema that fits a mapping or a list; the schema itself if there is none.

    A mapping fits one for mappings with the same ``type``, or without a fixed one. For other data, return the schema.
    """
    for part in _list_alternatives(schema):
        tag = part.get("properties", {}).get("type", {}).get("const")
        # A block without a fixed `type` fits any mapping.
        if (
            isinstance(data, dict)
            and part.get("type") == "object"
            and tag in (None, data.get("type"))
        ):
            return part
        if isinstance(data, list) and part.get("type") == "array":
            return part
    return schema


def _list_alternatives(schema: Schema) -> list[Schema]:
    """Return the alternatives of a schema, also those within alternatives; only the schema itself if it has none."""
    parts = schema.get("anyOf") or schema.get("oneOf")
    if not parts:
        return [schema]
    return [member for part in parts for member in _list_alternatives(part)]


def _list_choices(schema: Schema) -> list[Value]:
    """Return the values that a schema lists as allowed, in all its alternatives; [] if it lists none."""
    choices: list[Value] = []
    for part in _list_alternatives(schema):
        if "const" in part:
            choices.append(part["const"])
        else:
            choices.extend(part.get("enum", ()))
    return choices


def _make_schema_of_types(schema: Schema) -> Schema:
    """Return a schema of the values that the key ``type`` has in the alternatives of a schema that are mappings.

    Each of these must have a fixed ``type``.
    """
    tagged = []
    for part in _list_alternatives(schema):
        if part.get("type") == "object":
            tagged.append(part)
    return {"enum": [part["properties"]["type"]["const"] for part in tagged]}


def _resolve_references(node: Any, definitions: Mapping[str, Any]) -> Any:
    """Return a copy of a schema with each ``$ref`` replaced by its definition, and without ``$defs``.

    ``definitions`` has the definitions by name; one that refers to itself never ends. Keys beside a ``$ref`` take
    precedence over those of the definition.
    """
    if isinstance(node, list):
        return [_resolve_references(value, definitions) for value in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        target = definitions[node["$ref"].rsplit("/", 1)[1]]
        siblings = {}  # a description beside the reference replaces that of the definition
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
    """Return the keys that a hint may suggest: all except those whose description has "without effect"."""
    offered = []
    for key, about in properties.items():
        if "without effect" not in str(about.get("description", "")):
            offered.append(key)
    return offered
