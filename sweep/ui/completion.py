"""Completes a sweep file while it is being typed, by the schema that also validates it.

The result depends only on the text, the cursor and what is known about the trainable. Nothing in the text is executed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import cache
from typing import Any, TypeAlias

from sweep.space.draws import CONFIDENCES
from sweep.spec import json_schema
from sweep.spec.distributions import DISTRIBUTIONS
from sweep.spec.search_methods import METHODS
from sweep.spec.sweep_file import SERVER_KEYS
from sweep.spec.validation import KeyPath, flow
from sweep.standard_hyperparameters import (
    STANDARD,
    Flag,
    Names,
    Words,
    expected,
    get_standard_bounds,
    is_standard,
)
from sweep.ui.outline import Outline, read_outline, remove_quotes

Json: TypeAlias = dict[str, Any]

MOST = 100  # maximum number of proposals in an answer
ABOUT = 240  # maximum number of characters of a description


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One entry in the list of completions: its label, the text to insert, and its meaning."""

    label: str
    insert: str
    about: str = ""
    default: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The proposals at the cursor, and the offsets of the part of the text that they replace."""

    start: int
    end: int
    proposals: tuple[Proposal, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Facts from outside of the text, from which proposals are made.

    ``parameters`` are the hyperparameters that the trainable reads, or None if that is not known. ``metrics`` are the
    metrics that its source visibly reports. ``sweeps`` are the names in the results folder. ``trainables`` are the
    trainables that a sweep file may name, each with the place where it was found.
    """

    parameters: frozenset[str] | None = None
    metrics: Sequence[str] = ()
    sweeps: Sequence[str] = ()
    trainables: Mapping[str, str] = field(default_factory=dict)


NOTHING = Known()

LENGTHS = {"epochs": "How long a trial trains; it takes the place of the key epochs of the file."}
"""Parameters that sweep itself reads."""


def propose(text: str, cursor: int, known: Known = NOTHING, *, asked: bool = False) -> Completion:
    """Return the completions, at most 100, at the cursor in the text of a sweep file, which may be unfinished.

    ``cursor`` is an offset in characters; one outside of the text counts as its beginning or end. A text of more than
    300,000 characters has no completions. ``asked`` is explained in `propose_in`.
    """
    return propose_in(read_outline(text, cursor), known, asked=asked)


def propose_in(outline: Outline, known: Known = NOTHING, *, asked: bool = False) -> Completion:
    """Return the completions at the cursor of an outline, at most 100.

    Those that contain the word at the cursor are returned, first those that begin with it. If a person has ``asked``
    for them, completions for a word that is complete or misspelt are added, except in an expression. Where nothing can
    be typed, the result has no proposals, and both its offsets are the cursor.
    """
    place = outline.place
    if place is None:
        return Completion(start=outline.cursor, end=outline.cursor)
    expression = _complete_expression(outline, known)
    if expression is not None:  # only the name at the cursor is replaced then, not the whole value
        return expression
    found: list[Proposal] = []
    if place.kind in ("key", "item"):
        found += _propose_keys(outline, known)
    if place.kind in ("value", "item"):
        found += _propose_values(outline, known)
    elif not place.key:  # a line without a colon yet: it may also become an item of a list
        found += _propose_next_items(outline, known)
    if place.needs_space:
        found = [replace(one, insert=f" {one.insert}") for one in found]
    # While somebody types, similar words would only be in the way.
    choose = _choose_by_likeness if asked else _choose_by_text
    chosen = choose(found, outline.typed)
    return Completion(start=place.start, end=place.end, proposals=tuple(chosen[:MOST]))


def _choose_by_text(found: Sequence[Proposal], typed: str) -> list[Proposal]:
    """Return the proposals whose labels begin with the typed text, then those that contain it, without regard to case.

    Blanks around the typed text do not count; for an empty one, all are returned. Each label occurs once, as first
    proposed. If only one proposal is left and it would insert exactly the typed text, the list is empty.
    """
    word = typed.strip().lower()
    # reversed, so that the first one of a label stays
    by_label = {one.label: one for one in reversed(found)}
    labels = list(dict.fromkeys(one.label for one in found))
    beginning = [by_label[label] for label in labels if label.lower().startswith(word)]
    containing = [
        by_label[label]
        for label in labels
        if word in label.lower() and not label.lower().startswith(word)
    ]
    chosen = beginning + containing
    return [] if len(chosen) == 1 and chosen[0].insert == typed else chosen


LIKE = 0.6
"""How like a word another one must be to be meant, from 0 to 1."""


def _choose_by_likeness(found: Sequence[Proposal], typed: str) -> list[Proposal]:
    """Return the proposals that match the typed text; if it is complete or nothing matches, others by likeness.

    It is complete if it is one of the labels, without regard to case. Then all proposals are returned, the most similar
    first. If no label contains it, only those with a likeness of at least `LIKE` are, or all if there are none. Each
    label occurs once, as first proposed.
    """
    matching = _choose_by_text(found, typed)
    word = typed.strip().lower()
    is_part = any(one.label.lower() != word for one in matching)  # of a longer label
    is_complete = any(one.label.lower() == word for one in found)
    if is_part and not is_complete:
        return matching
    # reversed, so that the first one of a label stays
    by_label = {one.label: one for one in reversed(found)}
    likeness = {}
    for label in dict.fromkeys(one.label for one in found):
        likeness[label] = SequenceMatcher(None, word, label.lower()).ratio()
    ordered = sorted(likeness, key=lambda label: -likeness[label])
    like = [by_label[label] for label in ordered if likeness[label] >= LIKE]
    rest = [by_label[label] for label in ordered if likeness[label] < LIKE]
    if like and not is_complete:
        return like
    return like + rest


# ---- the schema -----------------------------------------------------------------------------------------------------


@cache
def _get_schema() -> Json:
    """Return the JSON Schema of sweep files: one object for all callers, which must not change it."""
    return json_schema()


def _find_schemas(path: KeyPath, outline: Outline) -> list[Json]:
    """Return the schemas that apply to the value at a path, given the other values of the text.

    They are as the schema has them: references in them are not resolved, and they may have alternatives. Returns [] if
    there are none.
    """
    found = [_get_schema()]
    for depth, part in enumerate(path):  # one step further into the schemas for each part
        outer = _list_alternatives(found, path[:depth], outline)
        found = [inner for node in outer for inner in _get_inner_schemas(node, part)]
    return found


def _get_inner_schemas(node: Json, part: str | int) -> Iterator[Json]:
    """Yield the one schema that ``node`` has for ``part``: of list items for a number, else of the value of that key.

    For a key that is not among its properties, this is the schema of additional properties. Nothing is yielded if there
    is none.
    """
    if isinstance(part, int):
        inner = node.get("items")
    else:
        inner = node.get("properties", {}).get(part, node.get("additionalProperties"))
    if isinstance(inner, dict):
        yield inner


def _list_alternatives(nodes: Iterable[Json], path: KeyPath, outline: Outline) -> list[Json]:
    """Return all alternatives of the schemas, without those whose fixed values differ from the text's.

    ``path`` is the path of the mapping that the schemas describe. A key that the text does not have there does not
    count as different.
    """
    found = []
    for node in nodes:
        for part in _expand_alternatives(node):
            constants = _find_constants(part)
            given = {key: outline.find_scalar((*path, key)) for key in constants}
            if all(text in ("", constants[key]) for key, text in given.items()):
                found.append(part)
    return found


def _expand_alternatives(node: Json) -> Iterator[Json]:
    """Yield the alternatives of a schema with references resolved; the schema itself if it has none.

    A schema with properties of its own counts as one alternative.
    """
    if "$ref" in node:  # such as "#/$defs/parameter"
        yield from _expand_alternatives(_get_schema()["$defs"][node["$ref"].rpartition("/")[2]])
        return
    parts = [*node.get("anyOf", ()), *node.get("oneOf", ())]
    if not parts or "properties" in node:
        yield node
        return
    for part in parts:
        yield from _expand_alternatives(part)


def _find_constants(node: Json) -> dict[str, str]:
    """Return the keys for which a schema fixes the value (``const``), such as the type of a rule, with that value.

    They tell its alternatives apart.
    """
    properties = node.get("properties", {})
    return {key: inner["const"] for key, inner in properties.items() if "const" in inner}


def _is_allowed(
    node: Json, key: str, given: frozenset[str], path: KeyPath, outline: Outline
) -> bool:
    """Return whether the keys ``given`` of a mapping leave room for ``key``, by the rules of the schema ``node``.

    ``path`` is the path of the mapping. Rules are those for keys that exclude each other, and those that depend on
    other keys and their values. Whether the schema has ``key`` among its properties is not checked.
    """
    # a file has `metric` or `metrics`, not both
    exclusive = node.get("not", {}).get("required", ())
    if key in exclusive and given & set(exclusive):
        return False
    for rule in node.get("allOf", ()):  # the keys of a parameter depend on its distribution
        is_met = _is_condition_met(rule["if"], given, path, outline)
        branch = rule.get("then" if is_met else "else", {})
        allowed = branch.get("propertyNames", {}).get("enum")
        if allowed is not None and key not in allowed:
            return False
    # In a parameter, whose schema has such rules, the key `parameters` makes a group, which only has `when` besides.
    return not (key == "parameters" and given - {"when"} and "allOf" in node)


def _is_condition_met(
    condition: Json, given: frozenset[str], path: KeyPath, outline: Outline
) -> bool:
    """Return whether the ``if`` of a schema's rule is true for the mapping at a path, which has the keys ``given``.

    Only required keys, fixed values and ``not`` are understood. A fixed value is not met if the text has no such key.
    """
    if not set(condition.get("required", ())) <= given:
        return False
    if "not" in condition and _is_condition_met(condition["not"], given, path, outline):
        return False
    constants = _find_constants(condition)
    return all(outline.find_scalar((*path, key)) == value for key, value in constants.items())


# ---- keys -----------------------------------------------------------------------------------------------------------


def _propose_keys(outline: Outline, known: Known) -> list[Proposal]:
    """Propose the keys that the mapping at the cursor does not have yet; the key at the cursor counts as not there.

    If that key has its colon already, the proposals insert none. Returns [] if nothing can be typed at the cursor.
    """
    place = outline.place
    if place is None:
        return []
    keys = outline.list_keys(place.path)
    if place.key in keys:
        keys.remove(place.key)
    given = frozenset(keys)
    found = [
        *_propose_schema_keys(place.path, given, outline),
        *_propose_named_keys(place.path, outline, known),
    ]
    new = [one for one in found if one.label not in given]
    if place.key:  # the key already has its colon
        return [replace(one, insert=one.label) for one in new]
    return new


def _propose_schema_keys(
    path: KeyPath, given: frozenset[str], outline: Outline
) -> Iterator[Proposal]:
    """Propose the keys that the schema allows in the mapping at a path, which has the keys ``given``.

    Keys in ``given`` may be among them. Left out are `SERVER_KEYS` at the top of the file and, as long as it is
    undecided which of several alternatives the mapping is, all keys except those that decide it.
    """
    nodes = [
        node
        for node in _list_alternatives(_find_schemas(path, outline), path, outline)
        if "properties" in node
    ]
    # such as the type of a rule, which decides
    deciding = {key for node in nodes for key in _find_constants(node)}
    is_undecided = len(nodes) > 1 and not deciding & given
    for node in nodes:
        for key, inner in node["properties"].items():
            if path == () and key in SERVER_KEYS:
                continue
            if is_undecided and key not in deciding:
                continue
            if not _is_allowed(node, key, given, path, outline):
                continue
            if key in deciding:
                about = _describe_constants(nodes, key)
            else:
                about = _get_description(inner)
            yield Proposal(label=key, insert=f"{key}: ", about=about, default=_find_default(inner))


def _get_description(node: Json) -> str:
    """Return the description of a schema on one line, cut after 240 characters without a mark; "" if it has none."""
    return " ".join(str(node.get("description", "")).split())[:ABOUT]


def _describe_constants(nodes: Sequence[Json], key: str) -> str:
    """Return a sentence that lists the values that the alternatives ``nodes`` fix for ``key``, each once.

    Alternatives that do not fix its value are passed over.
    """
    values = [_find_constants(node)[key] for node in nodes if key in _find_constants(node)]
    return f"One of {', '.join(dict.fromkeys(values))}."


def _find_default(node: Json) -> str:
    """Return the default of a schema as it is written in a file; "" for none or null, and for a list or mapping."""
    default = node.get("default")
    return "" if default is None or isinstance(default, dict | list) else flow(default)


def _propose_named_keys(path: KeyPath, outline: Outline, known: Known) -> Iterator[Proposal]:
    """Propose keys that are names of hyperparameters for the mapping at a path, if its keys are such names.

    In a block of parameters they are new ones. In a ``when``, a configuration of ``start_with``, ``prior`` or
    ``baseline``, they are those that the file has. Keys that the mapping has already may be among them.
    """
    split = _split_parameter(path)
    if split is not None:
        name, rest = split
        if rest == ("parameters",):  # the block of the group `name`, or of all parameters
            yield from _propose_new_parameters(name, known)
        elif rest == ("when",):
            yield from _propose_parameters_of_file(outline, but=name)
        return
    match path:
        case ("start_with", int()) | ("prior",) | ("baseline",):
            yield from _propose_parameters_of_file(outline)


def _propose_new_parameters(group: str, known: Known) -> Iterator[Proposal]:
    """Propose hyperparameters within ``group``: the trainable's own ones, then the standard ones that it reads.

    The own ones are sorted by name. If it is not known what the trainable reads, all standard hyperparameters are
    proposed. ``group`` is a dotted name; at the top level, where it is "", ``epochs`` is proposed too, as the last one
    unless the trainable reads it. Within the group ``loss_weights``, the name ``loss_weights.*`` is left out.
    """
    names = list(STANDARD)
    if known.parameters is not None:
        own = sorted(known.parameters - STANDARD.keys())
        names = [*own, *(name for name in STANDARD if name in known.parameters)]
    beginning = f"{group}." if group else ""
    for name in dict.fromkeys([*names, *LENGTHS]):
        inner = name.removeprefix(beginning)
        # Within the group `loss_weights`, the `*` of `loss_weights.*` stands for names that are not known here.
        if name.startswith(beginning) and inner and not inner.startswith("*"):
            yield _make_parameter_proposal(name, inner)


def _make_parameter_proposal(name: str, inner: str) -> Proposal:
    """Make the proposal of the hyperparameter ``name``; ``inner`` is its name within its group.

    If the name ends in ``*``, only the part before it is inserted, and otherwise the name with a colon.
    """
    about = "Read by the trainable."
    if name in LENGTHS:
        about = LENGTHS[name]
    elif is_standard(name):
        about = f"Standard hyperparameter: {expected(get_standard_bounds(name))}."
    if inner.endswith("*"):  # one for each layer or loss, whose name is still to be typed
        return Proposal(label=f"{inner[:-1]}", insert=inner[:-1], about=about)
    return Proposal(label=inner, insert=f"{inner}: ", about=about)


def _propose_parameters_of_file(outline: Outline, but: str = "") -> Iterator[Proposal]:
    """Propose the dotted names of the parameters in the file, except ``but``; "" excludes none.

    Names that would contain ``but``, such as ``head`` for ``head.units``, are left out as well.
    """
    for name in _find_parameters(outline):
        if name != but and not but.startswith(f"{name}."):
            yield Proposal(label=name, insert=f"{name}: ", about="A parameter of this file.")


def _split_parameter(path: KeyPath) -> tuple[str, KeyPath] | None:
    """Split a path into the dotted name of the parameter that it lies in, and the rest of the path within it.

    ``("parameters", "head", "parameters", "units", "min")`` gives "head.units" and ``("min",)``. For the path of a
    block of parameters, the rest is ``("parameters",)``, and the name is that of the group; it is "" for the block at
    the top level. Returns None for a path outside of ``parameters``.
    """
    if path[:1] != ("parameters",):
        return None
    names = []
    rest = path
    while len(rest) > 1 and rest[0] == "parameters":
        names.append(str(rest[1]))
        rest = rest[2:]
    return ".".join(names), rest


def _find_parameters(outline: Outline) -> dict[str, KeyPath]:
    """Return the paths of all parameters in the file by their dotted names, in their order; groups are left out."""
    found: dict[str, KeyPath] = {}
    # A parameter that has parameters of its own only groups these.
    groups = {path[:-2] for path in outline.values if path[-2:-1] == ("parameters",)}
    for path in outline.values:
        split = _split_parameter(path)
        if split is not None and split[1] == () and path not in groups:
            found.setdefault(split[0], path)
    return found


# ---- values ---------------------------------------------------------------------------------------------------------


def _propose_values(outline: Outline, known: Known) -> list[Proposal]:
    """Propose the values that are allowed at the cursor: names first, then those of the schema.

    Within quotes, lists and mappings are left out. Returns [] if nothing can be typed at the cursor.
    """
    place = outline.place
    if place is None:
        return []
    schemas = _find_schemas(place.path, outline)
    found = [
        *_propose_named_values(place.path, outline, known),
        *_propose_schema_values(place.path, schemas, outline),
    ]
    if place.in_quotes:  # they are there already, so the label is inserted, which has none
        return [replace(one, insert=one.label) for one in found if one.label[:1] not in ("[", "{")]
    return found


def _propose_next_items(outline: Outline, known: Known) -> list[Proposal]:
    """Propose items of a block list with their dash, for a line below its key in which no dash has been typed yet.

    They are the keys and values that the next item of the list at the cursor can have. Returns [] if the schema allows
    no list there, within brackets, and if nothing can be typed at the cursor.
    """
    place = outline.place
    if place is None or place.in_flow:
        return []
    nodes = _list_alternatives(_find_schemas(place.path, outline), place.path, outline)
    if not any(node.get("type") == "array" for node in nodes):
        return []
    # As if the dash had been typed: the proposals are those of the item after all that the list has.
    items = [
        path
        for path in outline.values
        if path[:-1] == place.path and path and isinstance(path[-1], int)
    ]
    number = len(items)
    inner = replace(outline, place=replace(place, kind="item", path=(*place.path, number)))
    return [
        replace(one, insert=f"- {one.insert}")
        for one in (*_propose_keys(inner, known), *_propose_values(inner, known))
    ]


def _propose_schema_values(
    path: KeyPath, schemas: Sequence[Json], outline: Outline
) -> Iterator[Proposal]:
    """Propose values from ``schemas``: for each those that it lists, its default, and its examples.

    Listed values are those of all its alternatives that agree with the text. For a mapping with fixed values, such as
    a rule with its type, a mapping of these is proposed. ``path`` is the path of the value.
    """
    for schema in schemas:
        default = _find_default(schema)
        for node in _list_alternatives([schema], path, outline):
            yield from _propose_enumerated(node, default)
            constants = _find_constants(node)
            if constants:  # a mapping, such as {type: asha}
                yield _make_value_proposal({**constants}, _get_description(node))
        if default:
            yield Proposal(label=default, insert=default, about="The default.", default=default)
        for example in schema.get("examples", ()):
            yield _make_value_proposal(example, "An example.")


def _propose_enumerated(node: Json, default: str) -> Iterator[Proposal]:
    """Propose the values that a schema lists or fixes; for a boolean, true and false.

    ``default`` is the default as text, or "" for none; only the proposal of that value has it as its ``default``.
    """
    values = [*node.get("enum", ()), *([node["const"]] if "const" in node else ())]
    if node.get("type") == "boolean":
        values = [True, False]
    for value in values:
        text = flow(value)
        about = _describe_value(value) or _get_description(node)
        its_default = default if text == default else ""
        yield Proposal(label=text, insert=text, about=about, default=its_default)


def _describe_value(value: object) -> str:
    """Return what a search method or a distribution does, as a sentence; "" for other values."""
    if value in METHODS:
        # Without the links and code marks of Markdown, which the list does not show.
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", METHODS[str(value)].chooses)
        return f"Chooses configurations: {plain.replace('`', '')}."
    if value in DISTRIBUTIONS:
        return DISTRIBUTIONS[value].meaning.replace("`", "")
    return ""


def _make_value_proposal(value: Any, about: str) -> Proposal:
    """Make the proposal of a value, which is inserted in flow style; ``about`` describes it.

    The label is the same text, but that of a string has no quotes.
    """
    text = flow(value)
    return Proposal(label=value if isinstance(value, str) else text, insert=text, about=about)


FORMS = (
    ("{values: [0.1, 0.01]}", "One of these."),
    (
        "{distribution: log_uniform_values, min: 1e-4, max: 1e-1}",
        "A number between two bounds, on a log scale.",
    ),
    ("{min: 0.0, max: 0.5}", "A number between two bounds."),
    ("{min: 1, max: 8}", "A whole number between two bounds."),
    ("{value: 0.1}", "The same in every trial."),
)
"""What a parameter may look like."""


def _propose_named_values(path: KeyPath, outline: Outline, known: Known) -> Iterator[Proposal]:
    """Propose values that no schema lists for the value at ``path``: names, trainables, and values of parameters.

    Names are those of `_find_names`. The trainables in ``known`` are proposed for the key ``trainable``. For a
    parameter in ``start_with``, ``baseline`` or ``prior``, the values that the file gives for that parameter are
    proposed. In ``parameters``, the proposals are those of `_propose_parameter_values`: blocks for a whole parameter,
    and values for ``value``, ``values`` and ``when`` in its block.
    """
    names, about = _find_names(path, outline, known)
    for name in names:
        yield _make_value_proposal(name, about)
    if path == ("trainable",):
        for name, where in known.trainables.items():
            yield Proposal(label=name, insert=name, about=where)
    match path:
        case (
            ("start_with", int(), str(name))
            | ("baseline" | "prior", str(name))
            | ("prior", str(name), "value")
        ):
            yield from _propose_choices(name, outline)
        case ("parameters", *_):
            yield from _propose_parameter_values(path, outline)


def _find_names(path: KeyPath, outline: Outline, known: Known) -> tuple[Sequence[str], str]:
    """Return the names that are allowed as the value at a path, and a sentence about them; ((), "") if none are.

    They are metrics, sweeps for ``warm_start``, parameters for ``population.perturb``, or confidences of a prior.
    """
    match path:
        case ("metric", "name") | ("metrics", int(), "name"):
            return known.metrics, "A metric that the trainable may report."
        case ("warm_start", int()):
            return known.sweeps, "A sweep of the results folder."
        case ("population", "perturb", int()):
            return [*_find_parameters(outline)], "A parameter of this file."
        case ("prior", str(), "confidence"):
            return [*CONFIDENCES], "How sure you are."
    return (), ""


def _propose_parameter_values(path: KeyPath, outline: Outline) -> Iterator[Proposal]:
    """Propose values for a parameter, or for ``value``, ``values`` or ``when`` in its block, if ``path`` leads to one.

    For a parameter itself, they are blocks of several forms, first one with the words that it can have, if any.
    """
    split = _split_parameter(path)
    if split is None:
        return
    name, rest = split
    match rest:
        case () if name:  # the parameter itself; without a name, it is the block of all parameters
            words = _list_words(name)
            if words:
                yield _make_value_proposal({"values": words}, _describe_words(name))
            yield from (Proposal(label=form, insert=form, about=about) for form, about in FORMS)
        case ("values",):
            words = _list_words(name)
            if words:
                yield _make_value_proposal(words, _describe_words(name))
        case ("value",) | ("values", int()):
            yield from _propose_scalars(name)
        case ("when", str(other)) | ("when", str(other), int()):
            yield from _propose_choices(other, outline)


ACTIVATIONS = (
    *(
        "relu",
        "gelu",
        "silu",
        "elu",
        "selu",
        "leaky_relu",
        "tanh",
        "sigmoid",
        "softplus",
        "softsign",
        "mish",
    ),
    *("hard_silu", "hard_sigmoid", "relu6", "softmax", "exponential", "linear"),
)
"""Activations of Keras, for parameters that are named after them."""


def _propose_scalars(name: str) -> Iterator[Proposal]:
    """Propose the words that a hyperparameter can have as its value, and 0 if it has a special meaning.

    The words are those of `_list_words`. Only a standard hyperparameter may have a meaning of 0.
    """
    about = expected(get_standard_bounds(name)) if is_standard(name) else _describe_words(name)
    for word in _list_words(name):
        yield _make_value_proposal(word, about)
    if is_standard(name):
        zero = get_standard_bounds(name).zero
        if zero:
            yield _make_value_proposal(0, f"0 means: {zero}.")


def _list_words(name: str) -> list[str | bool]:
    """Return the words that a hyperparameter can have as its value, or True and False for a flag.

    A parameter that is not standard has the activations of Keras if it is named after them, as in
    ``hidden_activation``. Returns [] for numbers and all other parameters.
    """
    if not is_standard(name):
        # As in `activation`, `hidden_activation` or `head.activation`.
        is_activation = name.rpartition(".")[2].rpartition("_")[2] == "activation"
        return list(ACTIVATIONS) if is_activation else []
    match get_standard_bounds(name):
        case Words(words):
            return list(words)
        case Names(known=known):
            return list(known)
        case Flag():
            return [True, False]
    return []


def _describe_words(name: str) -> str:
    """Return a sentence that says whether `_list_words` returns all values that this hyperparameter can have.

    Of names of Keras, such as those of activations, it returns all that Keras has, but an author may have more.
    """
    if is_standard(name) and not isinstance(get_standard_bounds(name), Names):
        return "All that this hyperparameter may be."
    return "All that Keras has by name."


def _propose_choices(name: str, outline: Outline) -> Iterator[Proposal]:
    """Propose the values that the file gives for a parameter in ``values`` or else as ``value``; none for a range.

    They are inserted as the file has them; labels have no quotes. None are proposed for a name that the file has not.
    """
    path = _find_parameters(outline).get(name)
    if path is None:
        return
    value = outline.values.get((*path, "value"), "")
    listed = outline.list_items((*path, "values")) or ([value] if value else [])
    for text in listed:
        yield Proposal(label=remove_quotes(text), insert=text, about=f"A value of {name}.")


# ---- expressions ----------------------------------------------------------------------------------------------------

_WORD_BEFORE = re.compile(r"[A-Za-z_][\w.]*$")
_WORD_AFTER = re.compile(r"[\w.]*")


def _complete_expression(outline: Outline, known: Known) -> Completion | None:
    """Return the completions of the name at the cursor, at most 100, if the cursor is in an expression.

    Expressions are the tie of a parameter (``value: =...``), which may name the other parameters, and a constraint,
    which may name all parameters and metrics. Proposals replace only the name, before and after the cursor. Returns
    None if the cursor is in no expression; if no name matches, the result has no proposals.
    """
    place = outline.place
    if place is None:
        return None
    names = list(_find_parameters(outline))
    parameter, rest = _split_parameter(place.path) or ("", ())
    is_tie = rest == ("value",) and outline.typed.lstrip().startswith("=")
    is_constraint = place.path[:1] == ("constraints",) and place.kind != "key"
    if is_tie:
        names = [name for name in names if name != parameter]
    elif is_constraint:
        names += [name for name in _list_metrics(outline, known) if name not in names]
    else:
        return None
    # A proposal replaces the name at the cursor, before it and after it.
    found = _WORD_BEFORE.search(outline.typed)
    word = found[0] if found else ""
    after = _WORD_AFTER.match(outline.text, outline.cursor, place.end)
    proposals = [_make_name_proposal(name, space=place.needs_space) for name in names]
    return Completion(
        start=outline.cursor - len(word),
        end=after.end() if after else outline.cursor,
        proposals=tuple(_choose_by_text(proposals, word)[:MOST]),
    )


def _list_metrics(outline: Outline, known: Known) -> list[str]:
    """Return the names of the metrics that the file has, then those that the trainable reports, each once.

    They have no quotes.
    """
    named = [
        text
        for path, text in outline.values.items()
        if path[-1:] == ("name",) and path[0] in ("metric", "metrics")
    ]
    return list(dict.fromkeys([*map(remove_quotes, named), *known.metrics]))


def _make_name_proposal(name: str, *, space: bool) -> Proposal:
    """Make the proposal of a name in an expression, in backquotes if it is no identifier, with or without dots.

    ``space`` puts a space before it.
    """
    written = name if name.replace(".", "_").isidentifier() else f"`{name}`"
    return Proposal(
        label=name, insert=f" {written}" if space else written, about="A name in this expression."
    )
