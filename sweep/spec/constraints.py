"""The `constraints:` block, and whether ties and constraints leave anything of the space."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from sweep.errors import InputError, did_you_mean
from sweep.events import Value
from sweep.space import conditioning
from sweep.space.draws import from_unit
from sweep.space.expressions import Expression, ExpressionError, UndefinedError
from sweep.space.space import Space
from sweep.spec.document import Document, KeyPath

TRIED = 100
"""Random points on which every expression is tried, to see that its values fit."""


def read(data: Value, names: Sequence[str], path: KeyPath, document: Document) -> dict[str, Expression]:
    """The constraints by their text, as expressions over known parameters; notes those that are not."""
    constraints: dict[str, Expression] = {}
    for index, text in enumerate(data if isinstance(data, list) else []):
        if not isinstance(text, str) or not text:  # noted by the model
            continue
        try:
            constraint = Expression.parse(text)
        except ExpressionError as error:
            note(error, (*path, index), document)
            continue
        for name in sorted(constraint.names - set(names)):
            document.mistake((*path, index), f"no parameter {name!r} in {text!r}", did_you_mean(name, names))
        if not constraint.names:
            document.mistake((*path, index), f"{text!r} names no parameter")
        if text in constraints:
            document.mistake((*path, index), f"{text!r} appears twice")
        constraints[text] = constraint
    return constraints


def note(error: ExpressionError, path: KeyPath, document: Document) -> None:
    """Note what an expression got wrong."""
    document.mistake(path, f"{error.text!r}, column {error.column}: {error.message}")


def check_satisfiable(
    space: Space, places: Mapping[str, KeyPath], path: KeyPath, document: Document, *, grid: bool
) -> None:
    """Note constraints that no point of the space meets, and expressions that its values do not fit.

    ``places`` tells where each expression stands, by its text. A finite space is counted, another sampled.
    """
    if not places:
        return
    try:
        _check_truth(space, places, document)
        if _count(space, grid=grid):
            return
        if not _count(Space(space.parameters), grid=grid):
            document.mistake(next(iter(places.values())), "tied values without a result at any point")
            return
        alone = [c for c in space.constraints if not _count(Space(space.parameters, (c,)), grid=grid)]
        for constraint in alone:
            document.mistake(places[constraint.text], f"{constraint.text!r} holds at no point of the space")
        if not alone:
            document.mistake(path, "each holds somewhere, but no point meets all of them")
    except ExpressionError as error:
        note(error, places.get(error.text, path), document)
    except InputError as error:
        for problem in error.problems:
            document.mistake(("parameters",), problem.what, problem.hint)


def _count(space: Space, *, grid: bool) -> int:
    """How many points are allowed; where they are without end, whether one is found."""
    size = space.grid_size() if grid else space.cardinality()
    return int(conditioning.witness(space) is not None) if size is None else size


def _check_truth(space: Space, places: Mapping[str, KeyPath], document: Document) -> None:
    numbers: dict[str, Value] = {}
    for params in _draws(space, TRIED):
        for constraint in space.constraints:
            if constraint.names <= params.keys():
                with suppress(UndefinedError):
                    numbers.setdefault(constraint.text, constraint.evaluate(params))
    for text, value in numbers.items():
        if not isinstance(value, bool):
            kind = "a number" if isinstance(value, int | float) else "no number"
            what = f"{text!r} is {kind}, expected a comparison"
            document.mistake(places[text], what, f"such as {text} < 1")


def _draws(space: Space, count: int) -> Iterator[dict[str, Value]]:
    """Random points, without those whose tied values have no result; the same ones every time."""
    numbers = random.Random(0)  # not cryptographic: any fixed sample will do
    for _ in range(count):
        with suppress(UndefinedError):
            yield space.complete(lambda parameter: from_unit(parameter.domain, numbers.random()))
