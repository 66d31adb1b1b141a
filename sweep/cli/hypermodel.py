"""``init --from-hypermodel``: the search space that a model's code declares with ``hp.Int`` and its kin.

The model is built as KerasTuner builds it, once for each value of each choice, so that parameters which matter only
for some of them are found, with what they depend on.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from sweep import loading, tracebacks
from sweep.declaring import Declaration
from sweep.errors import InputError
from sweep.events import Value
from sweep.hyperparameters import Hyperparameters
from sweep.runner import debug_log

MOST = 200
"""So many models are built at most."""

_PLAIN = re.compile(r"[A-Za-z_][\w.]*")
_WORDS_OF_YAML = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
Build: TypeAlias = Callable[[Hyperparameters], object]
Space: TypeAlias = "dict[str, Declaration]"


@dataclass(frozen=True)
class HyperModel:
    """What ``module:Name`` builds models with."""

    target: str
    build: Build
    call: str  # how another module calls it
    is_trainable: bool


def files(target: str, name: str, folder: Path) -> dict[str, str]:
    """Return the contents of a sweep file for ``module:Name``, and of a trainable around it where it is none.

    Raises `InputError` for what cannot be imported, builds no model, or declares nothing.
    """
    with TemporaryDirectory() as aside, debug_log.redirected(Path(aside) / "debug.log"):
        found = _load(target, folder)
        space = explore(found.build, target)
    if not space:
        raise InputError.one(target, "declares no hyperparameters", 'expected calls such as hp.Int("units", 8, 64)')
    trainable = found.target if found.is_trainable else f"{name}:{_class_name(name)}"
    contents = {f"{name}.yaml": _file(name, trainable, target, space)}
    if not found.is_trainable:
        contents[f"{name}.py"] = _module(name, found)
    return contents


def explore(build: Build, where: str) -> Space:
    """Return what building declares, for all values of what it chooses from; raise `InputError` where it fails."""
    base = _built(build, {}, where)
    space = dict(base)
    runs: list[tuple[dict[str, Value], Space]] = [({}, base)]
    explored: set[str] = set()
    count = 1
    while runs:
        values, found = runs.pop(0)
        for name in [name for name in found if name not in explored and found[name].choices]:
            explored.add(name)
            one = found[name]
            outcomes: dict[Value, Space] = {values.get(name, one.default): found}
            for choice in one.choices:
                if choice in outcomes:
                    continue
                count += 1
                if count > MOST:
                    raise InputError.one(where, f"has more than {MOST} ways to be built", "write the file by hand")
                outcomes[choice] = _built(build, {**values, name: choice}, where)
                if set(outcomes[choice]) - set(found):
                    runs.append(({**values, name: choice}, outcomes[choice]))
            for other in dict.fromkeys(name for outcome in outcomes.values() for name in outcome):
                having = tuple(choice for choice in one.choices if other in outcomes.get(choice, {}))
                declared = space.get(other) or next(outcome[other] for outcome in outcomes.values() if other in outcome)
                if len(having) < len(outcomes):
                    said = declared.when.get(name, having)  # by a conditional scope
                    declared = replace(
                        declared, when={**declared.when, name: tuple(value for value in having if value in said)}
                    )
                space[other] = declared
    return {name: one for name, one in space.items() if all(one.when.values())}  # others never matter


def _built(build: Build, values: Mapping[str, Value], where: str) -> Space:
    declared: list[Declaration] = []
    hp = Hyperparameters(dict(values))
    hp.declare_into(declared)
    try:
        build(hp)
    except Exception as error:  # the border to the user's code
        with_values = ", ".join(f"{name}={value!r}" for name, value in values.items())
        raise InputError.one(
            where, f"fails{f' with {with_values}' if with_values else ''}: {tracebacks.reason(error)}"
        ) from error
    found: Space = {}
    for one in declared:
        found.setdefault(one.name, one)
    return found


def _load(target: str, folder: Path) -> HyperModel:
    name = target.partition(":")[2]
    if not name:
        raise InputError.one(target, "expected module:Name", "the module, a colon, and the function or class in it")
    found = loading.load_part(target, [folder], "--from-hypermodel", (), "a model")
    if not isinstance(found, type):
        return HyperModel(target, found, f"{name}(hp)", is_trainable=False)
    methods = [method for method in ("model", "build") if callable(getattr(found, method, None))]
    if not methods:
        raise InputError.one(target, "has neither model(self, hp) nor build(self, hp)")
    missing = [
        one.name
        for one in inspect.signature(found).parameters.values()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if missing:
        raise InputError.one(target, f"takes {', '.join(missing)} to be made", "give a function that makes the model")
    build: Build = getattr(found(), methods[0])
    return HyperModel(target, build, f"{name}().{methods[0]}(hp)", is_trainable=not loading.lacking(found))


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
    rows = [f"  {one.name}: {_flow(_keys(one))}" for one in space.values()]
    return "\n".join(
        [
            f"# The space that {target} declares.",
            f"name: {name}",
            f"trainable: {trainable}",
            "method: tpe                             # or grid, random, sobol, gp, cmaes, nsga2",
            "metric: {name: val_loss, goal: minimize}",
            "parameters:",
            *rows,
            "epochs: 20",
            "run_cap: 24                             # configurations to try",
            "early_terminate: {type: asha, min_iter: 3, eta: 3}   # stop the worst two thirds at epochs 3 and 9",
            "",
        ]
    )


def _keys(one: Declaration) -> dict[str, Any]:
    when = {name: values[0] if len(values) == 1 else list(values) for name, values in one.when.items()}
    return {**one.keys, **({"when": when} if when else {})}


def _flow(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS_OF_YAML:
        return value
    return json.dumps(value)


def _class_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))
