"""Finds standard hyperparameters that certainly have no effect with the author's model class and methods.

The model class is the class of the model that the method `model` of a `KerasTrainable` returns, if the source shows it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sweep import standard_hyperparameters as table
from sweep.inspection import report_reads, unconditional
from sweep.inspection.hyperparameter_reads import Function


@dataclass(frozen=True, slots=True)
class IdleHyperparameters:
    """Standard hyperparameters that have no effect, and the reason.

    With ``unless_read``, they may have an effect if the author's own code reads them.
    """

    names: tuple[str, ...]
    why: str
    unless_read: bool = True


def find_idle_hyperparameters(
    trainable: str, trees: Mapping[str, ast.Module], theirs: Mapping[str, ast.Module]
) -> Iterator[IdleHyperparameters]:
    """Yield groups of standard hyperparameters that certainly have no effect in the `KerasTrainable` ``trainable``.

    They are read only by methods of sweep or Keras that methods of the author's trainable or model replace.
    ``trees`` are the syntax trees of all modules by name, and ``theirs`` those of the author's modules. A group with
    ``unless_read`` has no effect only if the author's code does not read it; the caller checks that. A name may be in
    several groups.
    """
    # the hyperparameters that only a method of `KerasTrainable` reads, which the author's own one replaces
    for method, names in table.OF_METHODS.items():
        module, definition = unconditional.find_method(trainable, method, trees)
        # With ``super()``, the method that reads them may still be called.
        if module in theirs and isinstance(definition, Function) and not _calls_super(definition):
            yield IdleHyperparameters(
                names, f"{method}() of {trainable} takes the place of what reads it, and does not"
            )
    module, definition = unconditional.find_method(trainable, "model", trees)
    if module not in theirs or not isinstance(definition, Function):
        return
    model = _find_returned_class(module, definition, trees)  # the module and the name of its class
    if model is None:
        return
    methods = unconditional.list_methods(*model, theirs)
    name = model[1]
    if "compile" in methods and _calls_method(definition, "compile"):
        why = f"{name}, which model() returns, has a compile() of its own, with optimizers that sweep does not make"
        # These are refused in a trial as well, even if the author's code reads them.
        yield IdleHyperparameters(table.SHAPING, why, unless_read=False)
        yield IdleHyperparameters(("learning_rate", "optimizer", *table.OF_OPTIMIZERS), why)
    # If the author's trainable has a training step, that of the model is not used.
    trains_itself = (
        "train_step" in methods
        and unconditional.find_method(trainable, "train_step", trees)[0] not in theirs
    )
    if trains_itself and not _may_use_optimizer(model, theirs):
        why = f"{name}, which model() returns, has a train_step() of its own that does not use self.optimizer"
        yield IdleHyperparameters(
            ("optimizer", *table.OF_RATES, *table.CLIPPING, "layer_decay", *table.OF_OPTIMIZERS),
            why,
        )


def _may_use_optimizer(model: tuple[str, str], theirs: Mapping[str, ast.Module]) -> bool:
    """Return whether a model's class, or code in ``theirs`` that it may use, may use the optimizer of a model.

    It may if it reads ``optimizer`` of any object, calls Keras's own training step, or reads attributes by computed
    names. ``model`` is the module and the name of its class. Returns True if the class is not defined in ``theirs``.
    """
    _, definition = unconditional.resolve_name(*model, theirs)
    if not isinstance(definition, ast.ClassDef):
        return True
    for used in report_reads.list_used_definitions(definition, theirs):
        for part in ast.walk(used):
            match part:
                case ast.Attribute(attr="optimizer" | "_optimizer", ctx=ast.Load()):
                    return True
                case ast.Attribute(attr="train_step", value=owner) if _is_super(owner):
                    return True  # Keras's own step uses it
                case ast.Call(func=ast.Name(id="getattr" | "vars")):
                    return True  # any attribute may be meant
    return False


def _find_returned_class(
    module: str, function: Function, trees: Mapping[str, ast.Module]
) -> tuple[str, str] | None:
    """Return the module and the name of the class whose instance a function returns; None if uncertain.

    All returns must be of one class, as ``Name(...)`` or as a variable that is assigned once. The class must be defined
    in ``trees``. ``module`` is the module that contains the function.
    """
    # by variable: the name of the class of each value that is assigned to it; "": no visible class
    made: dict[str, list[str]] = {}
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Assign)
            and len(node.targets) == 1
            and isinstance(node.targets[0], ast.Name)
        ):
            made.setdefault(node.targets[0].id, []).append(_get_called_class(node.value))
    names = set()
    for node in ast.walk(function):
        if not isinstance(node, ast.Return):
            continue
        value = node.value
        if isinstance(value, ast.Name):
            classes = made.get(value.id, [""])
            # after several assignments, any may apply
            names.add(classes[0] if len(classes) == 1 else "")
        else:
            names.add(_get_called_class(value))
    if len(names) != 1 or "" in names:
        return None
    module, definition = unconditional.resolve_name(module, names.pop(), trees)
    if not isinstance(definition, ast.ClassDef):
        return None
    return (module, definition.name)


def _get_called_class(value: ast.expr | None) -> str:
    """Return the plain name that is called, as in ``Name(...)``; "" for other expressions, and for None."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return value.func.id
    return ""


def _calls_method(function: Function, method: str) -> bool:
    """Return whether a function calls the method ``method`` of any object."""
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == method
        ):
            return True
    return False


def _calls_super(function: Function) -> bool:
    """Return whether a function calls ``super()``."""
    return any(_is_super(node) for node in ast.walk(function))


def _is_super(node: ast.AST) -> bool:
    """Return whether a node is the call ``super()``."""
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
    )
