"""Finds the names of all metrics that a trainable can report, if its source shows them.

Nothing is executed. If the source does not show the name of a metric, as in a loop that passes on a mapping, the result
is None, and only the first epoch shows the names.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sweep.inspection import report_reads, unconditional
from sweep.inspection.hyperparameter_reads import Function, get_last_name, list_positional
from sweep.inspection.syntax_nodes import list_nodes

LOSS = "loss"
DEFAULT_METRICS = ("accuracy", "mae")
"""What a `KerasTrainable` reports by default besides the loss: one of them, depending on its data."""

_MAY_ADD = ("train_step", "test_step", "on_epoch_end", "on_train_batch_end", "callbacks")
"""Methods of a `KerasTrainable` that may report values under names of their own."""

# Keras's own classes of models
_MODEL_MAKERS = frozenset({"Sequential", "Model", "Functional"})
# methods of a model or layer by which it can report metrics of its own
_METRICS_OF_A_MODEL = frozenset(
    {"train_step", "test_step", "compute_metrics", "get_metrics_result", "add_metric", "metrics"}
)
_KERAS_METRICS = ("keras.metrics", "tf.keras.metrics", "tensorflow.keras.metrics")
# names of Keras's metrics that do not follow from those of their classes
_NAMED_OTHERWISE = {
    "FBetaScore": "fbeta_score",
    "LogCoshError": "logcosh",
}
# index of `metrics` among the arguments of `Model.compile`; those before it name no metric
_METRICS_POSITION = 3


@dataclass(frozen=True, slots=True)
class PossibleMetrics:
    """The names of all metrics that a trainable can report."""

    names: tuple[str, ...]
    of_keras: bool  # Keras may put ``val_`` and the name of an output before a name, and a number behind it

    def may_report(self, metric: str) -> bool:
        """Return whether the trainable can report a metric with this name.

        If the metrics are those of Keras, the name may also have ``val_``, then any text and ``_``, as of an output,
        before it, and a number behind it: ``val_left_accuracy_1``.
        """
        if metric in self.names:
            return True
        if not self.of_keras:
            return False
        plain = re.sub(r"_\d+$", "", metric.removeprefix("val_"))
        return any(plain == name or plain.endswith(f"_{name}") for name in self.names)

    @property
    def known(self) -> tuple[str, ...]:
        """The names of all metrics, for a list of choices; with Keras, first all with ``val_``, then all without.

        Names of outputs and numbers are not included.
        """
        if not self.of_keras:
            return self.names
        return tuple(f"{prefix}{name}" for prefix in ("val_", "") for name in self.names)


def list_possible_metrics_of_function(function: Function) -> PossibleMetrics | None:
    """Return the metrics that a function can report, by its second argument, or return.

    Returns None if the source of the function does not show all names, or shows none, and if the function has a
    decorator or passes its report on.
    """
    if function.decorator_list:  # a decorator may report, too
        return None
    arguments = list_positional(function)
    found: list[str | None] = []  # the names; None: an unknown one
    if len(arguments) > 1:
        report = arguments[1].arg
        # Passed on to any other function, also of the author: what that reports is not searched.
        if report_reads.is_passed_on(function, {}) or _hides_reports(function, report):
            return None
        for call in _list_calls(function, report):
            found += _list_names_in_report(call)
    for returned in _list_returned(function):
        found += _list_names_in_mapping(returned)
    names = _list_if_all_known(found)
    if not names:
        return None
    return PossibleMetrics(names, of_keras=False)


def _hides_reports(function: Function, report: str) -> bool:
    """Return whether a function may report in ways that its calls of ``report`` do not show.

    ``report`` is the name of its second argument. That is the case if the function assigns to it, deletes it, or uses a
    private attribute of it.
    """
    for node in ast.walk(function):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) if name == report:
                return True
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name == report:
                if attribute.startswith("_"):
                    return True
    return False


def _list_calls(function: Function, name: str) -> Iterator[ast.Call]:
    """Yield the calls of a plain name in a function and in the functions within it."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
            yield node


def _list_names_in_report(call: ast.Call) -> list[str | None]:
    """Return the names of the metrics in one report, with None in place of each unknown name.

    Keywords in `NO_METRICS` are left out.
    """
    names: list[str | None] = []
    for given in call.args:
        names += _list_names_in_mapping(given)
    for keyword in call.keywords:
        if keyword.arg not in report_reads.NO_METRICS:
            names.append(keyword.arg)
    return names


def _list_names_in_mapping(value: ast.expr) -> list[str | None]:
    """Return the keys of a literal dict, with None in place of each unknown key; [None] for any other expression."""
    if not isinstance(value, ast.Dict):
        return [None]
    return [_get_text(key) for key in value.keys]


def _get_text(node: ast.expr | None) -> str | None:
    """Return the value of a literal string; None for any other expression, or none."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


def _list_returned(function: Function) -> Iterator[ast.expr]:
    """Yield the expressions that a function returns, except a literal None and those of functions within it."""
    for node in _walk_own(function.body):
        if isinstance(node, ast.Return) and node.value is not None:
            is_none = isinstance(node.value, ast.Constant) and node.value.value is None
            if not is_none:
                yield node.value


def _walk_own(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield statements and all nodes in them, each before its parts, but no functions, classes and lambdas.

    What is within these is left out as well.
    """
    for node in body:
        if isinstance(node, Function | ast.ClassDef | ast.Lambda):
            continue
        yield node
        yield from _walk_own(ast.iter_child_nodes(node))


def _list_if_all_known(names: Iterable[str | None]) -> tuple[str, ...]:
    """Return the names without duplicates, in their order; () if one of them is None, that is unknown."""
    found: dict[str, None] = {}
    for name in names:
        if name is None:
            return ()
        found[name] = None
    return tuple(found)


def list_possible_metrics_of_class(
    trainable: str, trees: Mapping[str, ast.Module], theirs: Mapping[str, ast.Module]
) -> PossibleMetrics | None:
    """Return the metrics that a `KerasTrainable` can report; None if its source does not show all names.

    ``trees`` are the syntax trees of all modules by name, ``theirs`` those of the author's modules. Also returns None
    if the author has methods that may report under other names, such as ``train_step`` or ``callbacks``, if ``model``
    is not the author's or does not return a model of Keras's own classes, or if the author's layers may add metrics.
    Keras may put names of outputs before those of metrics; they are not included.
    """
    # `KerasTrainable` has each of these methods; None means that it is uncertain which definition applies.
    for method in _MAY_ADD:
        module, definition = unconditional.find_method(trainable, method, trees)
        if definition is None or module in theirs:
            return None
    module, model = unconditional.find_method(trainable, "model", trees)
    if module not in theirs or not isinstance(model, Function) or not _returns_plain_model(model):
        return None
    if _may_add_metrics(trainable, theirs):
        return None
    found: list[str | None] = [LOSS]  # None stands for an unknown name
    for call in _list_compile_calls(model):
        found += _list_names_in_compile(call)
    for method, by_default in (("metrics", DEFAULT_METRICS), ("weighted_metrics", ())):
        module, definition = unconditional.find_method(trainable, method, trees)
        if module in theirs:
            found += _list_names_returned(definition)
        else:
            found += by_default
    names = _list_if_all_known(found)
    if not names:
        return None
    return PossibleMetrics(names, of_keras=True)


def _list_names_returned(method: ast.stmt | None) -> list[str | None]:
    """Return the names of the metrics that a method returns, with None in place of each unknown name.

    Returns [None] if ``method`` is not the definition of a function.
    """
    if not isinstance(method, Function):
        return [None]
    names: list[str | None] = []
    for returned in _list_returned(method):
        names += _list_names_of_metrics(returned)
    return names


def _returns_plain_model(function: Function) -> bool:
    """Return whether a method certainly builds and returns a model of one of Keras's own classes (`_MODEL_MAKERS`).

    Each value that it returns must be a call of such a class, or a variable to which only such calls are assigned.
    False if it returns nothing.
    """
    # by variable: the names of what was called for its values; "": something else
    made: dict[str, set[str]] = {}
    simple_targets: set[ast.expr] = set()
    for node in _walk_own(function.body):  # a statement comes before its parts
        match node:
            case ast.Assign(targets=[ast.Name(id=name) as target], value=value):
                simple_targets.add(target)
                made.setdefault(name, set()).add(_get_called_name(value))
            case ast.Name(id=name, ctx=ast.Store()) if node not in simple_targets:
                # such as a loop's variable: it may hold anything
                made.setdefault(name, set()).add("")
    returned = list(_list_returned(function))
    for value in returned:
        if isinstance(value, ast.Name):
            makers = made.get(value.id, set())  # of all its assignments
        else:
            makers = {_get_called_name(value)}
        if not makers or not makers <= _MODEL_MAKERS:
            return False
    return bool(returned)


def _get_called_name(value: ast.expr) -> str:
    """Return the last name of the called expression, such as ``Model`` for ``keras.Model(...)``; "" if it has none."""
    if not isinstance(value, ast.Call):
        return ""
    return get_last_name(value.func)


def _may_add_metrics(trainable: str, theirs: Mapping[str, ast.Module]) -> bool:
    """Return whether the author's layers or models may add metrics to those that `compile` and the trainable name.

    They may if a class that the trainable may use, other than its bases, has or uses one of `_METRICS_OF_A_MODEL`, if
    any code that it may use has ``add_metric``, or if a class or function of the author's has the name of a model class
    of Keras's. Returns True if ``theirs`` does not show the trainable.
    """
    owner = unconditional.find_definition(trainable, theirs)
    if owner is None:
        return True
    for node in _list_used_definitions(owner, theirs):
        if getattr(node, "name", "") in _MODEL_MAKERS:  # not Keras's own
            return True
        if _uses_or_defines_any(node, frozenset({"add_metric"})):
            return True
        if not isinstance(node, ast.ClassDef):
            continue
        # The methods of the trainable and of its bases are not those of a model, though some have the same names.
        name = _find_qualified_name(node, theirs)
        is_trainable_or_base = unconditional.derives_from(trainable, name, theirs)
        if not is_trainable_or_base and _uses_or_defines_any(node, _METRICS_OF_A_MODEL):
            return True
    return False


def _find_qualified_name(node: ast.ClassDef, theirs: Mapping[str, ast.Module]) -> str:
    """Return ``module:Name`` of a class that is defined in one of the modules ``theirs``.

    Raises StopIteration if it is in none.
    """
    module = next(name for name, tree in theirs.items() if node in list_nodes(tree))
    return f"{module}:{node.name}"


def _list_used_definitions(owner: ast.stmt, theirs: Mapping[str, ast.Module]) -> list[ast.stmt]:
    """Return a class and all other classes and functions in ``theirs`` that it may use, matched by name.

    Methods are not listed, because their classes contain them. The class comes first, and may come again if its name is
    used.
    """
    definitions: dict[str, list[ast.stmt]] = {}
    for tree in theirs.values():
        methods: set[ast.stmt] = set()
        for node in list_nodes(tree):
            if isinstance(node, ast.ClassDef):
                methods.update(node.body)
        for node in list_nodes(tree):
            if isinstance(node, Function | ast.ClassDef) and node not in methods:
                definitions.setdefault(node.name, []).append(node)
    used = [owner]
    # the list grows during the loop; each definition is taken out, and so added once
    for definition in used:
        for part in ast.walk(definition):
            if isinstance(part, ast.Attribute):
                used += definitions.pop(part.attr, [])
            elif isinstance(part, ast.Name):
                used += definitions.pop(part.id, [])
    return used


def _uses_or_defines_any(tree: ast.AST, names: frozenset[str]) -> bool:
    """Return whether code uses an attribute, or defines a function that is not async, with a name in ``names``."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) | ast.FunctionDef(name=name) if name in names:
                return True
    return False


def _list_compile_calls(function: Function) -> Iterator[ast.Call]:
    """Yield the calls of a method ``compile`` of any object in a function and in those within it."""
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "compile"
        ):
            yield node


def _list_names_in_compile(call: ast.Call) -> list[str | None]:
    """Return the names of the metrics passed to `Model.compile`, with None in place of each unknown name.

    Returns [None] if the metrics may be passed by position.
    """
    if len(call.args) > _METRICS_POSITION:
        return [None]
    names: list[str | None] = []
    for keyword in call.keywords:
        if keyword.arg is None:  # ``**options``, which may have metrics
            names.append(None)
        elif keyword.arg in ("metrics", "weighted_metrics"):
            names += _list_names_of_metrics(keyword.value)
    return names


def _list_names_of_metrics(value: ast.expr) -> list[str | None]:
    """Return the names of metrics as Keras accepts them: a string, a metric, or a list or dict of these.

    Each unknown name is None. A literal None gives [], and of a dict, only the values count.
    """
    match value:
        case ast.Constant(value=None):
            return []
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Dict(values=parts):
            names = []
            for part in parts:
                names += _list_names_of_metrics(part)
            return names
        case ast.Call():
            return [_get_name_of_metric(value)]
    return [_get_text(value)]


def _get_name_of_metric(call: ast.Call) -> str | None:
    """Return the name of the metric that a call creates; None if the call does not show it.

    A literal text passed as ``name=`` is the name, whatever class or function is called. Without ``name=``, only a
    class of ``keras.metrics`` has a known name, Keras's default for it, unless a positional argument may be the name.
    With ``**options``, a name is known only if ``name=`` stands before them.
    """
    for keyword in call.keywords:
        if keyword.arg == "name":
            return _get_text(keyword.value)
        if keyword.arg is None:  # ``**options``, which may have a name
            return None
    owner, _, made = ast.unparse(call.func).rpartition(".")
    # another module's, or a function such as `get`
    if owner not in _KERAS_METRICS or not made[0].isupper():
        return None
    if any(_may_be_name(argument) for argument in call.args):
        return None
    return get_keras_name(made)


def _may_be_name(argument: ast.expr) -> bool:
    """Return whether a positional argument can be the name of a metric."""
    return not (isinstance(argument, ast.Constant) and not isinstance(argument.value, str))


def get_keras_name(metric: str) -> str:
    """Return Keras's name for a metric of the class ``metric``: ``mean_squared_error`` for ``MeanSquaredError``."""
    if metric in _NAMED_OTHERWISE:
        return _NAMED_OTHERWISE[metric]
    words = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", metric)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", words).lower()
