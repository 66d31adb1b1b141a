"""``init --from-hypermodel``: the search space that a model's code declares with ``hp.Int`` and its kin.

The model is built as KerasTuner builds it, once for each value of each choice, so that parameters which matter only
for some of them are found, with what they depend on.
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
"""So many models are built at most."""

FEW, PAIRS = 4, 24
"""Of longer ranges the ends are tried first, and all only if these differ; so many pairs of choices are tried at once.
"""

Build: TypeAlias = Callable[[Hyperparameters], object]
Space: TypeAlias = "dict[str, Declaration]"


@dataclass(frozen=True)
class HyperModel:
    """What ``module:Name`` builds models with."""

    target: str
    build: Build
    call: str  # how another module calls it
    is_trainable: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Written:
    """The contents of files by name, and what whoever goes on with them should know."""

    files: dict[str, str]
    notes: tuple[str, ...]


def files(target: str, name: str, folder: Path) -> Written:
    """Return a sweep file for ``module:Name``, and a trainable around it where it is none.

    Raises `InputError` for what cannot be imported, builds no model, or declares nothing, or what no file can hold.
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
    """A model that was built: what it declared, with the values that it was given of what can be chosen."""

    found: Space
    values: Mapping[str, Value]


class _Builds:
    """All models that are built, to learn what a space is."""

    def __init__(self, build: Build, where: str) -> None:
        self._build, self._where = build, where
        self._count = 0
        self.all: list[_Built] = []
        self.space: Space = {}
        self.failed: list[str] = []
        self.explored: set[str] = set()

    @property
    def left(self) -> int:
        """How many more may be built."""
        return MOST - self._count

    def run(self, values: Mapping[str, Value]) -> Space | None:
        """Return what building with these values declares, None where it fails; raise `InputError` if all do."""
        if not self.left:
            raise InputError.one(self._where, f"has more than {MOST} ways to be built", "write the file by hand")
        self._count += 1
        declared: list[Declaration] = []
        hp = Hyperparameters(dict(values))
        hp.declare_into(declared)
        try:
            made = self._build(hp)
        except Exception as error:  # the border to the user's code
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
    """Return what building declares, for all values of what it chooses from, and notes on what was not learned.

    Raises `InputError` where it fails with all defaults, or has too many ways to be built.
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
    return {name: one for name, one in space.items() if all(one.when.values())}, notes  # others never matter


def _explore_from(values: Mapping[str, Value], found: Space, builds: _Builds) -> None:
    """Build with each value of each choice that was not explored yet, and go on from where there is more to choose."""
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
    """Build with two choices that differ from the defaults at once; return how many of these were left out."""
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
    """Return the values of choices for which a parameter matters, nothing if it always does.

    None where no such values, taken together, tell the models that declare it from those that do not.
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
    for choice in list(found):  # what it depends on matters itself for some choices only
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
    """Say that KerasTuner's way to train is left behind, where a class has one of its own."""
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
            "early_terminate: {type: asha, eta: 3}   # stop the worst two thirds at epochs 3 and 9",
            "",
        ]
    )


def _keys(one: Declaration) -> dict[str, Any]:
    when = {name: values[0] if len(values) == 1 else list(values) for name, values in one.when.items()}
    return {**one.keys, **({"when": when} if when else {})}


def _class_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))
