"""What the forms of the page are filled in with: the parameters of this sweep, and what may change with its values."""

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
    """Lines for the forms of a sweep, each ``name=value``."""

    configuration: tuple[str, ...]  # parameters with the values of the best trial; () if none has completed
    parameters: tuple[str, ...]  # of the sweep file, each with what it may be
    keys: tuple[str, ...]  # assignments as `change --set` takes them, with the present values


NOTHING = FormLines(configuration=(), parameters=(), keys=())


def list_form_lines(standing: Standing) -> FormLines:
    """Return the lines for the forms of a sweep as it is now; none if its sweep file is not known."""
    spec = standing.spec
    if spec is None:
        return NOTHING
    configuration: tuple[str, ...] = ()
    if standing.best is not None:
        configuration = tuple(_list_settings(spec, standing.best.params))
    return FormLines(
        configuration=configuration[:MOST],
        parameters=tuple(_list_parameters(spec))[:MOST],
        keys=tuple(_list_keys(spec))[:MOST],
    )


def _list_settings(spec: Spec, params: Mapping[str, Value]) -> Iterator[str]:
    """Yield the values of a configuration; those that are the same in every one may be left out."""
    for name in spec.space.varying:
        if name in params:
            yield f"{name}={flow(params[name])}"


def _list_parameters(spec: Spec) -> Iterator[str]:
    domains = _read_mapping(spec.to_json_dict()["parameters"])
    for name in spec.space.varying:
        block = dict(_read_mapping(domains[name]))
        if block.get("distribution") == "categorical":  # as one would write it
            del block["distribution"]
        yield f"{name}={flow(block)}"


def _list_keys(spec: Spec) -> Iterator[str]:
    """Yield the keys that may change, those of the parameters first, without what is not set."""
    content = spec.to_json_dict()
    domains = _read_mapping(content["parameters"])
    for parameter in spec.space.parameters:
        if isinstance(parameter.domain, Constant | Tied):
            continue
        for key, value in _read_mapping(domains[parameter.name]).items():
            if key not in ("distribution", "when"):
                yield f"parameters.{parameter.name}.{key}={flow(value)}"
    for key in ("run_cap", "early_terminate", "constraints"):
        value = content.get(key)
        if value:
            yield f"{key}={flow(value)}"
    for key, value in _read_mapping(content["budget"]).items():
        if value is not None:
            yield f"budget.{key}={flow(value)}"


def _read_mapping(value: Value) -> Mapping[str, Value]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is no mapping")
    return value
