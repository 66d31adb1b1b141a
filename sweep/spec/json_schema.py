"""The JSON Schema of the sweep file, for completion, descriptions and simple checks in editors."""

from __future__ import annotations

from typing import Any, TypeAlias

from sweep.spec.distributions import DISTRIBUTIONS, Name, ParameterBlock
from sweep.spec.parameters import NAME, NAME_WITHIN, ParameterGroup
from sweep.spec.sweep_file import REQUIRED, SweepFile
from sweep.spec.validation import get_schema

Json: TypeAlias = dict[str, Any]


def json_schema() -> Json:
    """Return a JSON Schema (draft 2020-12) of sweep files, as far as a schema can express what the parser accepts."""
    top = _simplify_schema(get_schema(SweepFile))
    properties = top["properties"]
    for key in REQUIRED:
        properties[key] = _remove_null(properties[key])
    # A model cannot describe parameters, which may be nested: the file's model takes any mapping.
    properties["parameters"] = {
        "$ref": "#/$defs/parameters",
        "description": properties["parameters"]["description"],
    }
    blocks: Json = {}
    # The names of parameters at the top of `parameters:`, and those within a group.
    for block, name_pattern in (("parameters", NAME), ("nested", NAME_WITHIN)):
        blocks[block] = {
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"pattern": f"^{name_pattern}$"},
            "additionalProperties": {"$ref": "#/$defs/parameter"},
        }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Sweep file",
        **top,
        "required": list(REQUIRED),
        "not": {"required": ["metric", "metrics"]},  # not both
        "$defs": {**blocks, "parameter": _make_parameter_schema()},
    }


def _make_parameter_schema() -> Json:
    """Return the schema of a parameter or of a group of parameters.

    It has rules for the keys that go together: those of a group, and of each distribution, named or inferred.
    """
    single_parameter = _simplify_schema(get_schema(ParameterBlock))
    nested = {
        "$ref": "#/$defs/nested",
        "description": get_schema(ParameterGroup)["properties"]["parameters"]["description"],
    }
    # A group has only the keys of one; any other parameter has keys that say what its values are.
    rules: list[Json] = [
        {
            "if": {"required": ["parameters"]},
            "then": {"propertyNames": {"enum": sorted(ParameterGroup.model_fields)}},
            "else": {
                "anyOf": [
                    {"required": keys}
                    for keys in (["distribution"], ["value"], ["values"], ["min", "max"])
                ]
            },
        }
    ]
    for name, distribution in DISTRIBUTIONS.items():
        rules.append(
            {
                "if": {
                    "properties": {"distribution": {"const": name}},
                    "required": ["distribution"],
                },
                "then": {
                    "required": list(distribution.required),
                    "propertyNames": {"enum": list(distribution.keys)},
                },
            }
        )
    # Without `distribution`, the keys allowed are those of the inferred distribution that has the most of them.
    inferred: tuple[tuple[str, Name], ...] = (
        ("value", "constant"),
        ("values", "categorical_w_probabilities"),
        ("min", "q_uniform"),
    )
    for key, name in inferred:
        rules.append(
            {
                "if": {"required": [key], "not": {"required": ["distribution"]}},
                "then": {"propertyNames": {"enum": list(DISTRIBUTIONS[name].keys)}},
            }
        )
    properties = {**single_parameter["properties"], "parameters": nested}
    return {**single_parameter, "properties": properties, "allOf": rules}


def _remove_null(schema: Json) -> Json:
    """Return a copy of a schema that does not allow null, for a key that is required.

    ``schema`` must have alternatives, `anyOf`. If only one of them is left, its keys replace `anyOf`.
    """
    alternatives = []
    for part in schema["anyOf"]:
        if part != {"type": "null"}:
            alternatives.append(part)
    other_keys = {}
    for key, value in schema.items():
        if key != "anyOf":
            other_keys[key] = value
    if len(alternatives) == 1:
        return {**alternatives[0], **other_keys}
    return {"anyOf": alternatives, **other_keys}


def _simplify_schema(node: Any) -> Any:
    """Return a copy of a schema without titles, null defaults, `discriminator` and `expected`, at any depth.

    ``node`` may also be a list or a single value within a schema. A key of the sweep file that is called ``title``
    stays.
    """
    if isinstance(node, list):
        return [_simplify_schema(item) for item in node]
    if not isinstance(node, dict):
        return node
    # A `title` that is a mapping is the name of a key: ``node`` is then the properties of a model, and all are kept.
    if isinstance(node.get("title"), dict):
        dropped = set()
    else:
        dropped = {"title", "discriminator", "expected"}
    if "default" in node and node["default"] is None:
        dropped.add("default")
    kept = {}
    for key, value in node.items():
        if key not in dropped:
            kept[key] = _simplify_schema(value)
    return kept
