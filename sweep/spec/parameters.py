"""The `parameters:` block: nested or dotted names, each with a distribution and optionally a condition."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import Field, JsonValue

from sweep.events import Value
from sweep.space import Condition, Parameter
from sweep.space.domains import Categorical, Constant, Domain, IntUniform, Tied, list_choices
from sweep.spec import distributions
from sweep.spec.blocks import Block
from sweep.spec.distributions import HINTS, KeyMistake, ParameterBlock, When
from sweep.spec.validation import Document, KeyPath, describe_value, flow, validate
from sweep.standard_hyperparameters import get_standard_bounds, is_standard
from sweep.text import did_you_mean, shortened

_LEVEL = "[A-Za-z0-9_*?/-]"
NAME = rf"[A-Za-z_][A-Za-z0-9_-]*(\.{_LEVEL}+)*"
"""A parameter's name; dots separate levels of nesting, of which the inner ones may be patterns."""
NAME_WITHIN = rf"[A-Za-z_*]{_LEVEL}*(\.{_LEVEL}+)*"
"""A name nested below another one."""

_KEYS = ParameterBlock.model_fields.keys()


class ParameterGroup(Block):
    """Parameters under a common name."""

    parameters: Annotated[dict[str, JsonValue], Field(min_length=1)] = Field(
        description="Nested parameters; an inner one is known as outer.inner."
    )
    when: When | None = Field(None, description="Condition for all of them.")


@dataclass(frozen=True, slots=True)
class Entry:
    """A parameter as read from the file, valid or not, with the places of its references to other parameters."""

    name: str
    path: KeyPath
    condition: Condition | None = None
    # places of the condition's tests, by name
    tests: Mapping[str, KeyPath] = field(default_factory=dict)
    domain: Domain | None = None  # None: invalid, and noted as a mistake
    count: int | None = None

    @property
    def parameter(self) -> Parameter | None:
        """The parameter; None if it is invalid."""
        if self.domain is None:
            return None
        return Parameter(self.name, self.domain, self.condition, self.count)

    @property
    def references(self) -> dict[str, KeyPath]:
        """The places in the file of this parameter's references, by the name of the parameter that is referred to.

        References are those in its condition, in the conditions of its groups and, if it is tied, in its expression. A
        parameter that appears in a condition and in the expression has its place in the condition.
        """
        tied = self.domain.expression.names if isinstance(self.domain, Tied) else ()
        return {**dict.fromkeys(sorted(tied), (*self.path, "value")), **self.tests}


def read_parameters(data: Mapping[str, Value], path: KeyPath, document: Document) -> list[Entry]:
    """Read the `parameters:` block; return its entries in file order, and add mistakes to the document.

    ``data`` is the block and ``path`` its place. Parameters whose own keys are invalid are included, with None as their
    domain. Those with an invalid name, and a second one of the same name, are left out. Mistakes in how the parameters
    refer to each other are added as well.
    """
    entries: dict[str, Entry] = {}
    whole_block = Entry("", path)  # without a name, which would be that of a group
    for entry in _read_group(data, path, whole_block, document):
        if entry.name in entries:
            document.add_mistake(entry.path, f"a second parameter {entry.name!r}", at_key=True)
        else:
            entries[entry.name] = entry
    for name, entry in entries.items():
        outer = _find_outer_name(name, entries)
        if outer is not None:
            document.add_mistake(
                entry.path, f"{outer!r} is itself a parameter and holds no others", at_key=True
            )
    circles: set[frozenset[str]] = set()  # each is noted once, not for each of its members
    for entry in entries.values():
        _check_references(entry, entries, circles, document)
    return list(entries.values())


def _find_outer_name(name: str, entries: Mapping[str, Entry]) -> str | None:
    """Return the first of ``a`` and ``a.b`` that is a parameter itself, for the name ``a.b.c``; None if neither is."""
    parts = name.split(".")
    for count in range(1, len(parts)):
        outer = ".".join(parts[:count])
        if outer in entries:
            return outer
    return None


def note_unusual_values(entries: Sequence[Entry], document: Document) -> Iterator[str]:
    """Yield notes on valid values of parameters that are probably not intended.

    They are words that YAML 1.1 reads differently, such as an unquoted ``off``, with one note for all of a parameter,
    and the list of two values or more as the only value of a parameter that cannot be a list.
    """
    for entry in entries:
        yield from _note_words_of_yaml_1_1(entry, document)
        match entry.domain:
            # Two values or more; with one, there would be nothing to choose from, so a list is what is meant.
            case Constant(value=[_, _, *_] as value) if not _accepts_lists(entry.name):
                what = f"one value, the list {shortened(flow(value), 60)}, in every trial"
                yield f"{document.place((*entry.path, 'value'))}: {what}; did you mean values?"


def _note_words_of_yaml_1_1(entry: Entry, document: Document) -> Iterator[str]:
    """Yield one note if YAML 1.1, which W&B reads, has other values for some of a parameter's words; else nothing.

    A list with other texts, as in ``[off, low, high]``, has none, because such a word is clearly meant as a text.
    """
    # The places of the values: those of a list or, without one, that of the only value.
    value_paths = [path for path in document.values if path[:-1] == (*entry.path, "values")]
    value_paths = value_paths or [(*entry.path, "value")]
    positions = {path: document.values.get(path) for path in value_paths}
    # `otherwise` has, by position, the words that YAML 1.1 reads differently, each with its value there.
    words = []
    for position in positions.values():
        if position in document.otherwise:
            words.append(document.otherwise[position])
    text_paths = []
    for path in value_paths:
        if isinstance(_get_value(document.data, path), str):
            text_paths.append(path)
    has_other_texts = any(positions[path] not in document.otherwise for path in text_paths)
    if not words or has_other_texts:
        return
    kind = "texts" if text_paths else "decimal numbers"
    said = ", ".join(word for word, _ in words)
    other = ", ".join(flow(value) for _, value in words)
    key_path = value_paths[0][: len(entry.path) + 1]  # of the key `values` or `value`
    yield (
        f"{document.place(key_path)}: {said}: {kind} here, by YAML 1.2, and {other} in W&B, by YAML 1.1; write {other} "
        "for these, or quotes for texts"
    )


def _get_value(data: Value, path: KeyPath) -> Value:
    """Return the value at a path of the data; None if there is none, or if the value is null."""
    for key in path:
        if isinstance(data, dict) and isinstance(key, str):
            data = data.get(key)
        elif isinstance(data, list) and isinstance(key, int) and key < len(data):
            data = data[key]
        else:
            data = None
    return data


def _accepts_lists(name: str) -> bool:
    """Return whether ``name`` is a standard hyperparameter, perhaps a nested one, that can be a list."""
    return is_standard(name) and get_standard_bounds(name).accepts([1, 2])


def check_grid(entries: list[Entry], document: Document) -> None:
    """Add mistakes for parameters that a grid cannot enumerate, and for probabilities, which a grid would ignore.

    Without `count`, a grid cannot enumerate a range that is continuous or has too many values to list. Invalid
    parameters, without a domain, are skipped.
    """
    for entry in entries:
        match entry.domain:
            case None | Constant() | Tied() | Categorical(probabilities=None):
                pass
            case Categorical():
                hint = "remove them, or use method: random"
                document.add_mistake(
                    (*entry.path, "probabilities"), "a grid takes every value once", hint
                )
            case domain if entry.count is None and list_choices(domain) is None:
                # whole numbers, but more than `list_choices` lists
                is_whole = isinstance(domain, IntUniform)
                if is_whole:
                    what = "too many values for a grid"
                else:
                    what = "a grid over a continuous range never ends"
                hint = "add count: 5 for five values, or list the values"
                document.add_mistake(entry.path, what, hint, at_key=True)


def parameter_to_dict(parameter: Parameter) -> dict[str, Value]:
    """Return a parameter as the keys of a sweep file, without its name and the belief in `prior`."""
    block = distributions.domain_to_dict(parameter.domain)
    if parameter.grid_count is not None:
        block["count"] = parameter.grid_count
    if parameter.when is not None:
        block["when"] = distributions.condition_to_dict(parameter.when)
    return block


def _read_group(
    data: Mapping[str, Value], path: KeyPath, group: Entry, document: Document
) -> Iterator[Entry]:
    """Yield the entries of a block of parameters and of the groups in it; add mistakes to the document.

    ``data`` is the block at ``path``, and ``group`` an entry with the name and the condition of the group that holds
    it, where the name is empty for the block of the whole file. Parameters with an invalid name are left out; other
    invalid ones have no domain. Two entries may have the same name.
    """
    for key, value in data.items():
        if group.name:
            full_name, pattern = f"{group.name}.{key}", NAME_WITHIN
        else:
            full_name, pattern = key, NAME
        # The entry of the parameter, or of the group, that ``value`` describes; it has the condition of ``group``.
        inner = replace(group, name=full_name, path=(*path, key))
        if not re.fullmatch(pattern, key):
            hint = "letters, digits, _ and - make a name, which begins with no digit; dots separate levels"
            document.add_mistake(inner.path, "not a parameter's name", hint, at_key=True)
        elif not isinstance(value, dict):
            written: Value = {"values" if isinstance(value, list) else "value": value}
            document.add_mistake(
                inner.path, f"{describe_value(value)}, expected a mapping", f"write {flow(written)}"
            )
            yield inner
        elif "parameters" in value:
            block = validate(ParameterGroup, value, inner.path, document)
            if block is not None:
                inner = _with_condition(inner, block.when, document)
            # Also of an invalid group, so that the mistakes in its parameters are found as well.
            if isinstance(nested := value["parameters"], dict):
                yield from _read_group(nested, (*inner.path, "parameters"), inner, document)
        else:
            yield _read_parameter(inner, value, document)


def _read_parameter(entry: Entry, data: dict[str, Value], document: Document) -> Entry:
    """Return ``entry`` completed by the keys of one parameter; its domain is None if these are invalid.

    ``data`` has the keys, and ``entry`` the name, the place and the condition of the groups around it. Mistakes are
    added to the document.
    """
    # Only mappings, and none under a key that a parameter has: a group without its key `parameters`.
    if data and all(isinstance(inner, dict) for inner in data.values()) and not data.keys() & _KEYS:
        hint = f"write {entry.path[-1]}: {{parameters: {{...}}}}"
        document.add_mistake(
            entry.path, "nested parameters without the key 'parameters'", hint, at_key=True
        )
        return entry
    block = validate(ParameterBlock, data, entry.path, document, HINTS)
    if block is None:
        return entry
    entry = _with_condition(entry, block.when, document)
    distribution = block.distribution or distributions.infer_distribution(block)
    if distribution is None:
        what = "has no values, expected value, values, min and max, distribution or parameters"
        document.add_mistake(entry.path, what, at_key=True)
        return entry
    mistakes = distributions.find_key_mistakes(block, distribution)
    if not mistakes:
        try:
            return replace(
                entry, domain=distributions.build_domain(block, distribution), count=block.count
            )
        except KeyMistake as error:
            mistakes = [error]
    for mistake in mistakes:
        document.add_mistake((*entry.path, mistake.key), mistake.what, mistake.hint)
    return entry


def _with_condition(entry: Entry, when: When | None, document: Document) -> Entry:
    """Return a copy of the entry with the condition ``when`` added to those of the groups around it.

    Add a mistake for each parameter that both have a condition on. Without ``when``, the entry itself is returned.
    """
    if when is None:
        return entry
    tests = {name: (*entry.path, "when", name) for name in when}
    for name in sorted(tests.keys() & entry.tests.keys()):
        document.add_mistake(
            tests[name], "the group around it has a condition on this already", at_key=True
        )
    own = distributions.make_condition(when)
    if entry.condition:
        outer = entry.condition.tests
    else:
        outer = ()
    return replace(entry, condition=Condition(outer + own.tests), tests={**entry.tests, **tests})


def _check_references(
    entry: Entry, entries: Mapping[str, Entry], circles: set[frozenset[str]], document: Document
) -> None:
    """Add mistakes for references of ``entry`` to missing or later parameters, and for conditions that cannot hold.

    A reference in a circle of parameters is a mistake, too, once for each circle. ``circles`` contains the circles that
    were noted already, each as the names of its parameters; the new ones are added to it.
    """
    names = list(entries)
    for name, path in entry.references.items():
        if name not in entries:
            document.add_mistake(
                path, f"no parameter {name!r}", did_you_mean(name, names), at_key=True
            )
        # Before the order is checked, because one parameter of a circle always stands below another.
        elif circle := _find_references(name, entry.name, entries):
            if frozenset(circle) not in circles:
                chain = " needs ".join([entry.name, *circle])
                document.add_mistake(path, f"parameters in a circle: {chain}", at_key=True)
            circles.add(frozenset(circle))
        elif names.index(name) > names.index(entry.name):
            what = f"parameter {name!r} stands below {entry.name!r}"
            document.add_mistake(path, what, "move it above", at_key=True)
    for name, test in entry.condition.tests if entry.condition else ():
        if name in entries:
            domain = entries[name].domain
        else:
            domain = None
        if domain is not None:  # otherwise the mistake is noted already
            distributions.check_test_is_possible(test, domain, entry.tests[name], document)


def _find_references(start: str, goal: str, entries: Mapping[str, Entry]) -> list[str]:
    """Return the parameters on a shortest chain of references from ``start`` to ``goal``, both included.

    Returns [] if there is no such chain. Names that are not in ``entries`` are passed over, except ``start``, which
    must be there.
    """
    chains = [[start]]
    seen = {start}
    for chain in chains:  # the list grows during the loop; the first chain found is a shortest one
        if chain[-1] == goal:
            return chain
        for name in entries[chain[-1]].references:
            if name in entries and name not in seen:
                seen.add(name)
                chains.append([*chain, name])
    return []
