"""``init --from-hypermodel``: write the search space that a model's code declares with ``hp.Int``, ``hp.Choice`` etc.

The model is built as KerasTuner builds it, once for each value of each choice. This finds parameters that exist only
for some values, together with their conditions.
"""

from __future__ import annotations

import inspect
import itertools
import keyword
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from sweep import errors, functions, runner
from sweep.errors import InputError, in_short
from sweep.events import Value
from sweep.hyperparameters import Declaration, Hyperparameters
from sweep.spec import parse_spec
from sweep.spec.validation import flow
from sweep.text import shortened

MOST = 200
"""Maximum number of models that are built."""

FEW, PAIRS = 4, 24
"""How many combinations are tried.

Of a range with more than FEW values, the two ends are tried first, and the others only if the ends declare other
parameters. Of choices with at most FEW values, and of those that declare other parameters, up to PAIRS pairs are tried
together.
"""

Build: TypeAlias = Callable[[Hyperparameters], object]
Space: TypeAlias = "dict[str, Declaration]"


@dataclass(frozen=True)
class HyperModel:
    """A function or object that builds a Keras model, found under ``module:Name``, and how to call it."""

    target: str
    build: Build
    call: str  # the expression by which another module calls it
    is_trainable: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class WrittenFiles:
    """The contents of files by name, and notes for the user."""

    files: dict[str, str]
    notes: tuple[str, ...]


def make_files(target: str, name: str, folder: Path) -> WrittenFiles:
    """Return the texts of a sweep file for ``module:Name``, and of a module with a trainable that wraps it.

    ``target`` is ``module:Name``, which is imported and built here, ``folder`` is where it is searched first, and
    ``name`` is that of the sweep and of both files. If the target is itself a trainable, only the sweep file is
    returned. Raises `InputError` if the target cannot be imported, builds no model or declares nothing, or if a sweep
    file cannot express what it declares.
    """
    with runner.silence_libraries():
        hypermodel = _load_hypermodel(target, folder)
        space, notes = explore(hypermodel.build, target)
    if not space:
        raise InputError.one(
            target, "declares no hyperparameters", 'expected calls such as hp.Int("units", 8, 64)'
        )
    if hypermodel.is_trainable:
        trainable = hypermodel.target
    else:
        trainable = f"{name}:{_make_class_name(name, target)}"
    text = _format_sweep_file(name, trainable, target, space)
    try:
        parse_spec(text, target)  # only to check that a sweep file can express the space
    except InputError as error:
        raise InputError(replace(problem, where=target) for problem in error.problems) from error
    contents = {f"{name}.yaml": text}
    if not hypermodel.is_trainable:
        contents[f"{name}.py"] = _format_module(name, hypermodel)
    return WrittenFiles(contents, (*hypermodel.notes, *notes))


@dataclass(frozen=True)
class _Built:
    """A model that was built: the parameters it declared, and the values of the choices among them."""

    declared: Space
    values: Mapping[str, Value]


class _Builds:
    """Builds a KerasTuner model with different values, and keeps what each build has declared."""

    def __init__(self, build: Build, where: str) -> None:
        self._build = build
        self._where = where
        self._count = 0  # of models, also those that failed
        self.all: list[_Built] = []  # those that did not fail
        self.space: Space = {}  # each parameter as the first build has declared it
        self.failed: list[str] = []  # messages
        self.explored: set[str] = set()  # choices of which each value was tried, or enough of them
        self.deciding: set[str] = set()  # choices by which other parameters are declared

    @property
    def left(self) -> int:
        """The number of models that may still be built, of `MOST`; those that failed count as built."""
        return MOST - self._count

    def run(self, values: Mapping[str, Value]) -> Space | None:
        """Build a model with ``values`` and the defaults of the others; return what it declares, or None if that fails.

        What it declares is kept in `all`, and in `space` unless an earlier build has declared the parameter; a failure
        is kept in `failed`. Raises `InputError` if building fails and no earlier build has succeeded, if it returns
        something other than a Keras model or None, if it declares a parameter in two ways, or if `MOST` models were
        built already.
        """
        if not self.left:
            raise InputError.one(
                self._where, f"has more than {MOST} ways to be built", "write the file by hand"
            )
        self._count += 1
        declarations: list[Declaration] = []
        hp = Hyperparameters(dict(values))
        hp.declare_into(declarations)
        try:
            model = self._build(hp)
        except Exception as error:  # any error of the user's code
            settings = ", ".join(f"{name}={value!r}" for name, value in values.items())
            failure = f"fails{f' with {settings}' if settings else ''}: {errors.reason_of(error)}"
            if not self.all:  # it fails with the defaults, so there is nothing to start from
                raise InputError.one(self._where, failure) from error
            self.failed.append(failure)
            return None
        self._check_model(model)
        declared: Space = {}
        for declaration in declarations:
            first = declared.setdefault(declaration.name, declaration)
            self._check_redeclaration(first, declaration)
        chosen = {}  # the values of the choices in this build
        for name, declaration in declared.items():
            self.space.setdefault(name, declaration)  # the first build with a parameter counts
            if declaration.choices:
                chosen[name] = values.get(name, declaration.default)
        self.all.append(_Built(declared, chosen))
        return declared

    def _check_model(self, model: object) -> None:
        """Raise `InputError` if a build has returned something other than a Keras model or None."""
        kinds = type(model).__mro__
        is_keras = any(
            kind.__name__ == "Model" and kind.__module__.partition(".")[0] == "keras"
            for kind in kinds
        )
        if model is not None and not is_keras:
            what = f"returns {type(model).__name__}, expected a keras.Model"
            raise InputError.one(
                self._where, what, "start from a training function: python -m sweep init --function"
            )

    def _check_redeclaration(self, first: Declaration, later: Declaration) -> None:
        """Raise `InputError` if a build declares the same parameter twice, with other keys and under another condition.

        The keys are those of a sweep file, such as the range. Other keys under the same condition are allowed.
        """
        if later.keys != first.keys and later.when != first.when:
            first_keys = flow({**first.keys})
            later_keys = flow({**later.keys})
            what = f"declares {later.name!r} for some choices as {first_keys} and for others as {later_keys}"
            raise InputError.one(self._where, what, "give each of them a name of its own")


def explore(build: Build, where: str) -> tuple[Space, list[str]]:
    """Build models with the values of each choice; return the declared parameters, and notes on what remains unknown.

    ``where`` is the ``module:Name`` that messages name. Of a long range only the ends are tried, unless an end changes
    what is declared; of pairs of values, only some. Returned are the parameters by name, each with the condition that
    was found, without those whose condition allows no value. Raises `InputError` as `_Builds.run` does, such as for a
    failure with the defaults or for too many combinations.
    """
    builds = _Builds(build, where)
    base = builds.run({}) or {}
    _explore_from({}, base, builds)
    skipped = _explore_pairs(base, builds)
    space: Space = {}
    notes = [f"{where} {text}" for text in builds.failed[:3]]
    if len(builds.failed) > 3:
        notes.append(f"{where} fails with {len(builds.failed) - 3} more values")
    for name, declaration in builds.space.items():
        inferred = _infer_conditions(name, builds)
        if inferred is None:
            notes.append(
                f"{name} is used only for some choices, but `when` cannot express which; all trials have it"
            )
        when = dict(declaration.when)
        # of values in both conditions, those that both allow
        for choice, inferred_values in (inferred or {}).items():
            when[choice] = tuple(
                value for value in inferred_values if value in when.get(choice, inferred_values)
            )
        space[name] = replace(declaration, when=when)
    if skipped:
        notes.append(
            f"{skipped} pairs of choices were not tried together; parameters used only for such a pair are missing"
        )
    # a parameter whose condition allows no value can never apply
    applicable = {}
    for name, one in space.items():
        if all(one.when.values()):
            applicable[name] = one
    return applicable, notes


def _explore_from(values: Mapping[str, Value], declared: Space, builds: _Builds) -> None:
    """Build a model with each value of each choice in ``declared`` that was not explored yet.

    The other values are ``values``. Of a range with more than `FEW` values, those between its ends are tried only if an
    end declares other parameters. Builds that declare other parameters are explored in the same way. Results are kept
    in ``builds``.
    """
    # builds that declare other parameters: their values, and what they declare
    further: list[tuple[dict[str, Value], Space]] = []
    for name, declaration in list(declared.items()):
        choices = declaration.choices
        if name in builds.explored or not choices:
            continue
        builds.explored.add(name)
        # values of this choice; the first one by the build that has declared ``declared``
        tried = {values.get(name, declaration.default)}
        is_long = isinstance(choices, range) and len(choices) > FEW
        first_choices = (choices[0], choices[-1]) if is_long else choices
        # Of a long range, the values between its ends are tried only if an end declares other parameters.
        for some_choices in (first_choices, choices):
            changed: list[tuple[dict[str, Value], Space]] = []
            for choice in some_choices:
                if choice in tried:
                    continue
                tried.add(choice)
                other_values = {**values, name: choice}
                declared_then = builds.run(other_values)
                # None if this build has failed
                if declared_then and set(declared_then) != set(declared):
                    changed.append((other_values, declared_then))
            if not changed:
                break
            further += changed
            builds.deciding.add(name)
    for other_values, declared_then in further:
        _explore_from(other_values, declared_then, builds)


def _explore_pairs(base: Space, builds: _Builds) -> int:
    """Build models in which two choices differ from their defaults; return how many pairs of values were skipped.

    ``base`` is what the build with all defaults has declared. Only its choices with at most `FEW` values, and those
    that decide what else is declared, are paired. At most `PAIRS` pairs are built, those of deciding choices first. A
    pair that declares new parameters is explored further. Results are kept in ``builds``. Raises what `_Builds.run`
    raises.
    """
    paired = []
    for one in base.values():
        is_deciding = one.name in builds.deciding
        if len(one.choices) >= 2 and (is_deciding or len(one.choices) <= FEW):
            paired.append(one)
    pairs = []  # of values, by the names of both choices
    for one, other in itertools.combinations(paired, 2):
        for a, b in itertools.product(one.choices, other.choices):
            if a != one.default and b != other.default:
                pairs.append({one.name: a, other.name: b})
    # those with most deciding choices first
    pairs.sort(key=lambda pair: -len(builds.deciding & pair.keys()))
    tried = pairs[: min(PAIRS, builds.left)]
    # Values of single choices are explored already: only parameters that a pair alone declares lead further.
    for values in tried:
        known = set(builds.space)
        declared = builds.run(values)
        if declared and set(declared) - known:
            _explore_from(values, declared, builds)
    return len(pairs) - len(tried)


def _infer_conditions(name: str, builds: _Builds) -> dict[str, tuple[Value, ...]] | None:
    """Return the values of other choices for which a parameter exists, by choice; {} if it always exists.

    The conditions of these choices themselves are included. Returns None if no such condition separates the builds that
    declare it from those that do not.
    """
    # the values of the choices in each build with the parameter, and in each build without it
    having = [built.values for built in builds.all if name in built.declared]
    lacking = [built.values for built in builds.all if name not in built.declared]
    conditions: dict[str, tuple[Value, ...]] = {}
    # Candidates are the choices that all builds with the parameter have, if they have fewer values in these builds.
    for choice in dict.fromkeys(choice for values in having for choice in values):
        if not all(choice in values for values in having):
            continue
        all_values = {values[choice] for values in (*having, *lacking) if choice in values}
        with_it = {values[choice] for values in having}
        if with_it != all_values:
            conditions[choice] = tuple(
                value for value in builds.space[choice].choices if value in with_it
            )
    if _is_met_by_any(lacking, conditions):
        return None
    # Leave out each condition that the others make superfluous.
    for choice in reversed(list(conditions)):
        others = {other: allowed for other, allowed in conditions.items() if other != choice}
        if not _is_met_by_any(lacking, others):
            conditions = others
    # a choice that it depends on may itself exist only for some values
    for choice in list(conditions):
        conditions = (_infer_conditions(choice, builds) or {}) | conditions
    return conditions


def _is_met_by_any(
    configurations: Iterable[Mapping[str, Value]], conditions: Mapping[str, tuple[Value, ...]]
) -> bool:
    """Return whether one of the configurations meets all conditions; each does if there are no conditions.

    A condition has the allowed values of a choice, by its name. A configuration without that choice does not meet it.
    """
    for values in configurations:
        if all(values.get(choice) in allowed for choice, allowed in conditions.items()):
            return True
    return False


def _load_hypermodel(target: str, folder: Path) -> HyperModel:
    """Import ``module:Name``, searched first in ``folder``, and find out how to build a model with it.

    A function is called with ``hp``. A class is instantiated; of its object, and of a target that is an object with
    such a method, ``model`` is called or, if there is none, ``build``, each time after the object's own
    ``declare_hyperparameters``. No model is built yet. Raises `InputError` if the target cannot be imported or
    instantiated, is a class that requires arguments, or is nothing that builds a model.
    """
    name = target.partition(":")[2]
    if not name:
        raise InputError.one(
            target, "expected module:Name", "the module, a colon, and the function or class in it"
        )
    named = functions.import_target(target, [folder], "--from-hypermodel")
    is_class = isinstance(named, type)
    # `model` must be one of its class, because a function may have a Keras model as its attribute `model`.
    has_method = callable(getattr(named, "build", None)) or callable(
        getattr(type(named), "model", None)
    )
    if not is_class and not has_method:  # it must be a function
        if not callable(named):
            what = f"is {shortened(repr(named), 60)}, expected a function, a class or an object that builds a model"
            raise InputError.one(target, what)
        return HyperModel(target, named, f"{name}(hp)", is_trainable=False)
    kind: type = named if is_class else type(named)
    methods = [method for method in ("model", "build") if callable(getattr(named, method, None))]
    if not methods:
        raise InputError.one(target, "has neither model(self, hp) nor build(self, hp)")
    instance = named
    expression = name
    if is_class:  # it is instantiated, here and in the module that is written
        missing = _list_required_arguments(kind)
        if missing:
            raise InputError.one(
                target, f"takes {', '.join(missing)} to be made", f"make one: net = {name}(...)"
            )
        try:
            instance = kind()
        except Exception as error:
            raise InputError.one(
                target, f"cannot be made: {in_short(error)}", f"make one: net = {name}(...)"
            ) from error
        expression = f"{name}()"
    # a trainable's `model` comes before KerasTuner's `build`
    build: Build = getattr(instance, methods[0])
    declare = getattr(instance, "declare_hyperparameters", lambda hp: None)

    def declare_and_build(hp: Hyperparameters) -> object:
        """Declare the hyperparameters that have a method of their own, then build the model."""
        declare(hp)
        return build(hp)

    is_trainable = is_class and not functions.list_missing_methods(kind)
    notes = _note_unused_fit(kind, is_trainable=is_trainable)
    return HyperModel(
        target, declare_and_build, f"{expression}.{methods[0]}(hp)", is_trainable, notes
    )


def _list_required_arguments(kind: type) -> list[str]:
    """Return the names of the arguments that a class requires when it is instantiated: those without a default.

    Raises ValueError or TypeError if its signature is not known, as for some classes that are written in C.
    """
    required = []
    for argument in inspect.signature(kind).parameters.values():
        if argument.default is argument.empty and argument.kind not in (
            argument.VAR_POSITIONAL,
            argument.VAR_KEYWORD,
        ):
            required.append(argument.name)
    return required


def _note_unused_fit(kind: type, *, is_trainable: bool) -> tuple[str, ...]:
    """Return a note in a tuple if a class has a ``fit``: KerasTuner would call it, and sweep does not.

    Returns () for a trainable, and for a class that has only the ``fit`` of KerasTuner's base class.
    """
    # the class whose ``fit`` it has
    owner = next((base for base in kind.__mro__ if "fit" in vars(base)), None)
    if is_trainable or owner is None or owner.__module__.startswith("keras_tuner"):
        return ()
    return (
        f"{kind.__name__}.fit() is not called, and what it reads of hp is not in the file; to train as it does, start "
        "from a training function: python -m sweep init --function",
    )


def _format_module(name: str, hypermodel: HyperModel) -> str:
    """Return the text of a module with a trainable named after ``name`` that wraps the model.

    The method `data` of the trainable is left to the user: it raises NotImplementedError.
    """
    module, _, imported = hypermodel.target.partition(":")
    return f'''"""The model of {module}.py, and its data."""

from __future__ import annotations

from typing import Any

import keras
from {module} import {imported}

from trainables.keras_trainable import KerasTrainable


class {_make_class_name(name, hypermodel.target)}(KerasTrainable):
    def data(self, hp: Any) -> Any:
        raise NotImplementedError("return (x, y) for training, and (x, y) for validation")

    def model(self, hp: Any) -> keras.Model:
        return {hypermodel.call}
'''


def _format_sweep_file(name: str, trainable: str, target: str, space: Space) -> str:
    """Return the text of a sweep file with the name ``name`` and the parameters ``space``.

    ``trainable`` is its trainable, and ``target`` the ``module:Name`` that declares the space, for a comment. Its
    metric, epochs and run_cap are always the same, for the user to change.
    """
    rows = []
    for declaration in space.values():
        rows.append(f"  {flow(declaration.name)}: {flow(_make_keys(declaration))}")
    return "\n".join(
        [
            f"# The space that {target} declares.",
            f"name: {name}",
            f"trainable: {trainable}",
            "metric: {name: val_loss, goal: minimize} # the tuner's objective",
            "parameters:",
            *rows,
            "epochs: 20                              # as given to the tuner's search()",
            "run_cap: 24                             # configurations to try, the tuner's max_trials",
            "",
        ]
    )


def _make_keys(declaration: Declaration) -> dict[str, Any]:
    """Return the keys of a parameter in a sweep file; its conditions, if it has any, are under the key ``when``."""
    keys: dict[str, Any] = {**declaration.keys}
    when: dict[str, object] = {}  # by the other parameter: the value that it must have, or a list
    for name, values in declaration.when.items():
        if len(values) == 1:
            when[name] = values[0]
        else:
            when[name] = list(values)
    if when:
        keys["when"] = when
    return keys


def _make_class_name(name: str, target: str) -> str:
    """Return the name of the trainable's class, made of the sweep's name: "MyModel" for "my_model".

    If this is no name of a class, or the one that the module imports from ``target``, "Trainable" is put before it.
    """
    class_name = "".join(part.capitalize() for part in name.split("_"))
    imported = target.partition(":")[2]
    is_usable = class_name.isidentifier() and not keyword.iskeyword(class_name)
    if not is_usable or class_name == imported:
        return f"Trainable{class_name}"
    return class_name
