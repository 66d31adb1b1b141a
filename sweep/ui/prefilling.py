"""The lines with which the forms of the page are filled in: the parameters and the changeable keys of a sweep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sweep.analysis.live_status import Standing
from sweep.events import Value
from sweep.space.domains import Constant, Tied
from sweep.spec import Spec
from sweep.spec.validation import flow

MOST = 100  # lines of a form


@dataclass(frozen=True, kw_only=True)
class FormLines:
    """Lines of the forms of a sweep, each in the form ``name=value``."""

    # varying parameters, with the values of the best trial if there is one
    configuration: tuple[str, ...]
    # parameters of the sweep file, each with its values or distribution
    parameters: tuple[str, ...]
    keys: tuple[str, ...]  # assignments as `change --set` takes them, with the present values


NOTHING = FormLines(configuration=(), parameters=(), keys=())


def list_form_lines(standing: Standing) -> FormLines:
    """Return the lines for the forms of a sweep in its present state, the first 100 for each form.

    The configuration is the best one so far, without its constants, or has empty values if there is none yet. There are
    no lines if the sweep file is unknown.
    """
    spec = standing.spec
    if spec is None:
        return NOTHING
    configuration = tuple(f"{name}=" for name in spec.space.varying)
    if standing.best is not None:
        configuration = tuple(_list_settings(spec, standing.best.params))
    return FormLines(
        configuration=configuration[:MOST],
        parameters=tuple(_list_parameters(spec))[:MOST],
        keys=tuple(_list_keys(spec))[:MOST],
    )


def _list_settings(spec: Spec, params: Mapping[str, Value]) -> Iterator[str]:
    """Yield a line ``name=value`` for each parameter in ``params`` that is not a constant in the sweep file.

    The values are in flow style, as a sweep file has them.
    """
    for name in spec.space.varying:
        if name in params:
            yield f"{name}={flow(params[name])}"


def _list_parameters(spec: Spec) -> Iterator[str]:
    """Yield a line ``name=block`` for each parameter that is not a constant.

    ``block`` is its block in the resolved sweep file, in flow style and without ``distribution: categorical``.
    """
    blocks = _require_mapping(spec.to_json_dict()["parameters"])
    for name in spec.space.varying:
        block = dict(_require_mapping(blocks[name]))
        if block.get("distribution") == "categorical":  # as one would write it
            del block["distribution"]
        yield f"{name}={flow(block)}"


def _list_keys(spec: Spec) -> Iterator[str]:
    """Yield a line ``key=value`` for keys that may be changed and have a value, keys of the parameters first.

    ``key`` is a dotted path, such as ``parameters.lr.max``. Left out are the keys of constant and tied parameters,
    ``distribution`` and ``when`` of the others, and all top-level keys except ``run_cap``, ``early_terminate``,
    ``constraints`` and the keys of ``budget``.
    """
    content = spec.to_json_dict()
    blocks = _require_mapping(content["parameters"])
    for parameter in spec.space.parameters:
        if isinstance(parameter.domain, Constant | Tied):
            continue
        for key, value in _require_mapping(blocks[parameter.name]).items():
            if key not in ("distribution", "when"):
                yield f"parameters.{parameter.name}.{key}={flow(value)}"
    for key in ("run_cap", "early_terminate", "constraints"):
        value = content.get(key)
        if value:
            yield f"{key}={flow(value)}"
    for key, value in _require_mapping(content["budget"]).items():
        if value is not None:
            yield f"budget.{key}={flow(value)}"


def _require_mapping(value: Value) -> Mapping[str, Value]:
    """Return ``value`` itself. Raises TypeError if it is not a dictionary."""
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is no mapping")
    return value
