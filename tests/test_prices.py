from __future__ import annotations

from collections.abc import Mapping

import pytest

from sweep.prices import Price, find_price_bounds, per_gpu_hour

KINDS: Price = {
    "A100": {"on_demand": 3.67, "spot": 1.47},
    "workers-t4": 0.35,
    "H100": {"spot": 2.0},
}


@pytest.mark.parametrize(
    ("labels", "price"),
    [
        ({"ray.io/accelerator-type": "A100"}, 3.67),
        ({"ray.io/accelerator-type": "a100", "ray.io/market-type": "spot"}, 1.47),
        ({"ray.io/accelerator-type": "A100", "ray.io/market-type": "on-demand"}, 3.67),
        ({"ray.io/node-group": "workers-t4", "ray.io/market-type": "spot"}, 0.35),
        ({"ray.io/accelerator-type": "H100"}, 2.0),
        ({"ray.io/accelerator-type": "L4"}, None),
        ({}, None),
    ],
)
def test_a_node_has_the_price_of_the_kind_that_its_labels_name(
    labels: Mapping[str, str], price: float | None
) -> None:
    assert per_gpu_hour(KINDS, labels) == price


def test_one_price_is_that_of_all_nodes() -> None:
    assert per_gpu_hour(1.29, {}) == 1.29
    assert find_price_bounds(1.29) == (1.29, 1.29)


def test_bounds_are_of_all_kinds_and_markets() -> None:
    assert find_price_bounds(KINDS) == (0.35, 3.67)
