"""Every distribution under every method: each value lies in its domain, on its quantum, and of its type."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from itertools import pairwise, product

import pytest

from sweep.conformance.searchers import drive, trial
from sweep.events import Event, Params, Status, TrialStarted
from sweep.runner.methods import build_searcher
from sweep.space.domains import IntUniform, Range, contains, get_domain_bounds, list_choices
from sweep.spec import parse_spec
from sweep.spec.distributions import DISTRIBUTIONS
from sweep.spec.search_methods import STANDALONE

BLOCKS = {
    "constant": {"value": 3},
    "categorical": {"values": ["a", 1, 1.5, True, None, [2, 3], {"k": "v"}]},
    "categorical_w_probabilities": {"values": ["a", "b", "c"], "probabilities": [0.7, 0.3, 0]},
    "int_uniform": {"min": -3, "max": 17},
    "int_log_uniform_values": {"min": 1, "max": 3000},
    "uniform": {"min": -1, "max": 2.5},
    "q_uniform": {"min": 0.05, "max": 1.02, "q": 0.1},
    "log_uniform": {"min": -9.21, "max": -2.3},
    "log_uniform_values": {"min": 1e-5, "max": 1e-1},
    "q_log_uniform": {"min": 1, "max": 5.5, "q": 8},
    "q_log_uniform_values": {"min": 20, "max": 300, "q": 16},
    "inv_log_uniform": {"min": -3, "max": 4},
    "inv_log_uniform_values": {"min": 1e-3, "max": 1},
    "normal": {"mu": 5, "sigma": 2},
    "q_normal": {"mu": 5, "sigma": 2, "q": 0.25},
    "log_normal": {"mu": -6, "sigma": 1},
    "q_log_normal": {"mu": 4, "sigma": 1, "q": 8},
    "beta": {"a": 2, "b": 5},
    "q_beta": {"a": 2, "b": 5, "q": 0.05},
}
TRIALS = 24


def outcome(number: int, params: Params) -> list[Event]:
    statuses = [Status.COMPLETED, Status.COMPLETED, Status.PRUNED, Status.DIVERGED]
    return trial(number, params, statuses[number % 4], [float(number % 7)])


def test_there_is_a_case_for_each() -> None:
    assert BLOCKS.keys() == DISTRIBUTIONS.keys()


@pytest.mark.parametrize("method", [m.name for m in STANDALONE if not m.enumerates])
def test_draws(method: str) -> None:
    parameters = {name: {"distribution": name, **block} for name, block in BLOCKS.items()}
    file = {"trainable": "m:M", "method": method, "run_cap": TRIALS, "metric": {"name": "loss"}}
    spec = parse_spec(json.dumps({**file, "parameters": parameters}), "s.json")
    searcher = build_searcher(spec.method, spec.space, spec.objectives, 0)
    drawn = [
        event.params
        for event in drive(searcher, TRIALS, outcome)
        if isinstance(event, TrialStarted)
    ]
    assert len(drawn) == TRIALS
    for params, parameter in product(drawn, spec.space.parameters):
        value, domain = params[parameter.name], parameter.domain
        assert contains(domain, value)
        if not isinstance(domain, Range):
            continue
        low, high = get_domain_bounds(domain)
        assert low <= value <= high
        assert isinstance(value, int) == (
            isinstance(domain, IntUniform) or isinstance(domain.q, int)
        )
        if domain.q is not None:
            assert Decimal(repr(value)) % Decimal(repr(domain.q)) == 0
    for parameter in spec.space.parameters:
        if parameter.drawn:
            assert len({json.dumps(params[parameter.name]) for params in drawn}) > 1, parameter.name


@pytest.mark.parametrize("name", [name for name in BLOCKS if name != "categorical_w_probabilities"])
def test_a_grid_takes_values_of_the_domain(name: str) -> None:
    block = {"distribution": name, **BLOCKS[name]}
    if "count" in DISTRIBUTIONS[name].optional:
        block["count"] = 4
    file = {"trainable": "m:M", "method": "grid", "parameters": {"x": block}}
    spec = parse_spec(json.dumps(file), "s.json")
    domain = spec.space.parameters[0].domain
    values = [point["x"] for point in spec.space.grid()]
    assert all(contains(domain, value) for value in values)
    assert len(values) == (4 if isinstance(domain, Range) else len(list_choices(domain) or ()))
    if name.startswith(("log_uniform", "inv")):
        ratios = [math.log(b / a) for a, b in pairwise(values)]
        assert ratios == pytest.approx([ratios[0]] * 3)
