"""What GPUs cost: the file's ``price_per_gpu_hour``, one number or one for each kind of node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

Market: TypeAlias = Literal["on_demand", "spot"]
Price: TypeAlias = "float | Mapping[str, float | Mapping[Market, float]]"
"""Of a GPU for an hour, in any currency: of all, or by a kind of node and, of that, by its market."""

MARKET = "ray.io/market-type"
"""The label of Ray's nodes that says "spot" or "on-demand"."""
COST = "cost"
"""The measure of an epoch, and the column, that says what it cost."""


def per_gpu_hour(price: Price, labels: Mapping[str, str]) -> float | None:
    """Return the price on a node with these labels; None where the file names none of their values.

    A node of a market that has no price of its own has the other one's.
    """
    if not isinstance(price, Mapping):
        return price
    values = {value.casefold() for value in labels.values()}
    found = next((each for kind, each in price.items() if kind.casefold() in values), None)
    if not isinstance(found, Mapping):
        return found
    market: Market = "spot" if labels.get(MARKET) == "spot" else "on_demand"
    return found.get(market, next(iter(found.values())))


def bounds(price: Price) -> tuple[float, float]:
    """Return the lowest and the highest price."""
    every = [*_all(price)]
    return min(every), max(every)


def _all(price: Price | Mapping[Market, float]) -> Iterator[float]:
    if not isinstance(price, Mapping):
        yield price
        return
    for each in price.values():
        yield from _all(each)
