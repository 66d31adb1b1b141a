"""``init --from-hypermodel``: write the search space that a model's code declares with ``hp.Int``, ``hp.Choice`` etc.

The model is built as KerasTuner builds it, once for each value of each choice. So parameters that exist only for some
values are discovered, together with their conditions.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from sweep import errors, functions, runner
from sweep.errors import InputError
from sweep.events import Value
from sweep.hyperparameters import Declaration, Hyperparameters
from sweep.spec import parse
from sweep.spec.validation import flow
from sweep.text import shortened

MOST = 200
"""Maximum number of models that are built."""

FEW, PAIRS = 4, 24
"""How many combinations are tried.

Of a range with more than FEW values, the two ends are tried first, and the others only if the ends declare other
parameters. Of choices with at most FEW values, up to PAIRS pairs are tried together.
"""

Build: TypeAlias = Callable[[Hyperparameters], object]
Space: TypeAlias = "dict[str, Declaration]"


@dataclass(frozen=True)
class HyperModel:
    """The code behind ``module:Name`` that builds models."""

    target: str
    build: Build
    call: str  # the expression by which another module calls it
    is_trainable: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Written:
    """Contents of files by name, and notes for the user."""

    files: dict[str, str]
    notes: tuple[str, ...]


def files(target: str, name: str, folder: Path) -> Written:
    """Return a sweep file for ``module:Name``, and a trainable that wraps it unless it is one already.

    Raises `InputError` if it cannot be imported, builds no model or declares nothing, or if a sweep file cannot express
    what it declares.
    """
    with runner.quiet():
        found = _load(target, folder)
        space, notes = explore(found.build, target)
    if not space:
        raise InputError.one(target, "declares no hyperparameters", 'expected calls such as hp.Int("units", 8, 64)')
    trainable = found.target if found.is_trainable else f"{name}:{_class_name(name)}"
    text = _file(name, trainable, target, space)
    try:
        parse(text, target)
    except InputError as error:
        raise InputError(replace(one, where=target) for one in error.problems) from error
    module = {} if found.is_trainable else {f"{name}.py": _module(name, found)}
    return Written({f"{name}.yaml": text, **module}, (*found.notes, *notes))


@dataclass(frozen=True)
class _Built:
    """One built model: the parameters it declared, and the values of those that are choices."""

    found: Space
    values: Mapping[str, Value]


class _Builds:
    """Builds a KerasTuner model with different values, and keeps the builds from which the search space is inferred."""

    def __init__(self, build: Build, where: str) -> None:
        self._build, self._where = build, where
        self._count = 0
        self.all: list[_Built] = []
        self.space: Space = {}
        self.failed: list[str] = []
        self.explored: set[str] = set()

    @property
    def left(self) -> int:
        """The number of models that may still be built."""
        return MOST - self._count

    def run(self, values: Mapping[str, Value]) -> Space | None:
        """Build a model with these values; return what it declares, or None if building fails.

        Raises `InputError` if it fails before any other build succeeded, or if too many models were built.
        """
        if not self.left:
            raise InputError.one(self._where, f"has more than {MOST} ways to be built", "write the file by hand")
        self._count += 1
        declared: list[Declaration] = []
        hp = Hyperparameters(dict(values))
        hp.declare_into(declared)
        try:
            made = self._build(hp)
        except Exception as error:  # any error of the user's code
            said = ", ".join(f"{name}={value!r}" for name, value in values.items())
            failed = f"fails{f' with {said}' if said else ''}: {errors.reason_of(error)}"
            if not self.all:
                raise InputError.one(self._where, failed) from error
            self.failed.append(failed)
            return None
        self._check(made)
        found: Space = {}
        for one in declared:
            self._check_again(found.setdefault(one.name, one), one)
        for name, one in found.items():
            self.space.setdefault(name, one)
        given = {name: values.get(name, one.default) for name, one in found.items() if one.choices}
        self.all.append(_Built(found, given))
        return found

    def _check(self, made: object) -> None:
        kinds = type(made).__mro__
        is_keras = any(kind.__name__ == "Model" and kind.__module__.partition(".")[0] == "keras" for kind in kinds)
        if made is not None and not is_keras:
            what = f"returns {type(made).__name__}, expected a keras.Model"
            raise InputError.one(self._where, what, "start from a training function: python -m sweep init --function")

    def _check_again(self, first: Declaration, one: Declaration) -> None:
        if one.keys != first.keys and one.when != first.when:
            keys, others = flow({**first.keys}), flow({**one.keys})
            what = f"declares {one.name!r} for some choices as {keys} and for others as {others}"
            raise InputError.one(self._where, what, "give each of them a name of its own")


def explore(build: Build, where: str) -> tuple[Space, list[str]]:
    """Return what building declares for all values of its choices, and notes about what could not be learned.

    Raises `InputError` if building fails with the defaults, or if there are too many combinations.
    """
    builds = _Builds(build, where)
    base = builds.run({}) or {}
    _explore_from({}, base, builds)
    skipped = _explore_pairs(base, builds)
    space: Space = {}
    notes = [f"{where} {text}" for text in builds.failed[:3]]
    notes += [f"{where} fails with {len(builds.failed) - 3} more values"] if len(builds.failed) > 3 else []
    for name, one in builds.space.items():
        inferred = _when(name, builds)
        if inferred is None:
            notes.append(f"{name} is used only for some choices, but `when` cannot express which; all trials have it")
        when = dict(one.when)
        for choice, having in (inferred or {}).items():
            when[choice] = tuple(value for value in having if value in when.get(choice, having))
        space[name] = replace(one, when=when)
    if skipped:
        notes.append(
            f"{skipped} pairs of choices were not tried together; parameters used only for such a pair are missing"
        )
    # a parameter whose condition allows no value can never apply
    return {name: one for name, one in space.items() if all(one.when.values())}, notes


def _explore_from(values: Mapping[str, Value], found: Space, builds: _Builds) -> None:
    """Build with each value of each unexplored choice; recurse into the builds that declare other parameters."""
    further = []
    for name, one in list(found.items()):
        if name in builds.explored or not one.choices:
            continue
        builds.explored.add(name)
        ends, tried = (one.choices[0], one.choices[-1]), {values.get(name, one.default)}
        for choices in (
            ends if isinstance(one.choices, range) and len(one.choices) > FEW else one.choices,
            one.choices,
        ):
            outcomes = []
            for choice in choices:
                if choice not in tried:
                    tried.add(choice)
                    outcomes.append(({**values, name: choice}, builds.run({**values, name: choice})))
            changed = [(given, outcome) for given, outcome in outcomes if outcome and set(outcome) != set(found)]
            further += changed
            if not changed:
                break
    for given, outcome in further:
        _explore_from(given, outcome, builds)


def _explore_pairs(base: Space, builds: _Builds) -> int:
    """Build with pairs of choices that both differ from their defaults; return how many pairs were skipped."""
    few = [one for one in base.values() if 2 <= len(one.choices) <= FEW]
    pairs = [
        {one.name: a, other.name: b}
        for one, other in itertools.combinations(few, 2)
        for a in one.choices
        for b in other.choices
        if a != one.default and b != other.default
    ]
    tried = pairs[: min(PAIRS, builds.left)]
    for values in tried:
        known = set(builds.space)
        found = builds.run(values)
        if found and set(found) - known:
            _explore_from(values, found, builds)
    return len(pairs) - len(tried)


def _when(name: str, builds: _Builds) -> dict[str, tuple[Value, ...]] | None:
    """Return for which values of which choices a parameter exists; empty if it always does.

    Returns None if no such condition separates the builds that declare it from those that do not.
    """
    having = [one.values for one in builds.all if name in one.found]
    lacking = [one.values for one in builds.all if name not in one.found]
    found: dict[str, tuple[Value, ...]] = {}
    for choice in dict.fromkeys(choice for values in having for choice in values):
        seen = {values[choice] for values in (*having, *lacking) if choice in values}
        if all(choice in values for values in having):
            matters = {values[choice] for values in having}
            if matters != seen:
                found[choice] = tuple(value for value in builds.space[choice].choices if value in matters)

    def tells(conditions: Mapping[str, tuple[Value, ...]]) -> bool:
        return not any(all(values.get(choice) in ones for choice, ones in conditions.items()) for values in lacking)

    if not tells(found):
        return None
    for choice in reversed(list(found)):
        others = {other: ones for other, ones in found.items() if other != choice}
        if tells(others):
            found = others
    for choice in list(found):  # a choice that it depends on may itself exist only for some values
        found = (_when(choice, builds) or {}) | found
    return found


def _load(target: str, folder: Path) -> HyperModel:
    name = target.partition(":")[2]
    if not name:
        raise InputError.one(target, "expected module:Name", "the module, a colon, and the function or class in it")
    found = functions.named(target, [folder], "--from-hypermodel")
    of_object = found if isinstance(found, type) or not callable(getattr(found, "build", None)) else type(found)
    if not isinstance(of_object, type):
        if not callable(found):
            what = f"is {shortened(repr(found), 60)}, expected a function, a class or an object that builds a model"
            raise InputError.one(target, what)
        return HyperModel(target, found, f"{name}(hp)", is_trainable=False)
    methods = [method for method in ("model", "build") if callable(getattr(found, method, None))]
    if not methods:
        raise InputError.one(target, "has neither model(self, hp) nor build(self, hp)")
    made, call = found, name
    if found is of_object:
        missing = [
            one.name
            for one in inspect.signature(found).parameters.values()
            if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        ]
        if missing:
            raise InputError.one(target, f"takes {', '.join(missing)} to be made", f"make one: net = {name}(...)")
        made, call = found(), f"{name}()"
    build: Build = getattr(made, methods[0])
    declare = getattr(made, "declare_hyperparameters", lambda hp: None)

    def declare_and_build(hp: Hyperparameters) -> object:
        declare(hp)
        return build(hp)

    is_trainable = found is of_object and not functions.lacking(of_object)
    notes = _notes(of_object, is_trainable=is_trainable)
    return HyperModel(target, declare_and_build, f"{call}.{methods[0]}(hp)", is_trainable, notes)


def _notes(kind: type, *, is_trainable: bool) -> tuple[str, ...]:
    """Note that a class's own ``fit``, which trains with KerasTuner, is not used."""
    owner = next((base for base in kind.__mro__ if "fit" in vars(base)), None)
    if is_trainable or owner is None or owner.__module__.startswith("keras_tuner"):
        return ()
    return (
        f"{kind.__name__}.fit() is not called, and what it reads of hp is not in the file; to train as it does, start "
        "from a training function: python -m sweep init --function",
    )


def _module(name: str, found: HyperModel) -> str:
    module, _, imported = found.target.partition(":")
    return f'''"""The model of {module}.py, and its data."""

from __future__ import annotations

from typing import Any

import keras
from {module} import {imported}

from trainables.keras_trainable import KerasTrainable


class {_class_name(name)}(KerasTrainable):
    def data(self, hp: Any) -> Any:
        raise NotImplementedError("return (x, y) for training, and (x, y) for validation")

    def model(self, hp: Any) -> keras.Model:
        return {found.call}
'''


def _file(name: str, trainable: str, target: str, space: Space) -> str:
    rows = [f"  {flow(one.name)}: {flow(_keys(one))}" for one in space.values()]
    return "\n".join(
        [
            f"# The space that {target} declares.",
            f"name: {name}",
            f"trainable: {trainable}",
            "method: tpe                             # or grid, random, sobol, gp, cmaes, nsga2",
            "metric: {name: val_loss, goal: minimize} # the tuner's objective",
            "parameters:",
            *rows,
            "epochs: 20                              # as given to the tuner's search()",
            "run_cap: 24                             # configurations to try, the tuner's max_trials",
            "early_terminate: {type: asha, min_iter: 3, eta: 3}   # stop the worst two thirds at epochs 3 and 9",
            "",
        ]
    )


def _keys(one: Declaration) -> dict[str, Any]:
    when = {name: values[0] if len(values) == 1 else list(values) for name, values in one.when.items()}
    return {**one.keys, **({"when": when} if when else {})}


def _class_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))
