"""The prices under ``price_per_gpu_hour`` in a sweep file: one number, or one for each kind of node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

Market: TypeAlias = Literal["on_demand", "spot"]
Price: TypeAlias = "float | Mapping[str, float | Mapping[Market, float]]"
"""Price per GPU-hour in any currency: one for all nodes, or by kind of node, optionally split by market."""

MARKET = "ray.io/market-type"
"""The label that holds "spot" or "on-demand" on Ray's nodes."""
COST = "cost"
"""Name of the column, and of the measure of an epoch, that holds the cost."""


def per_gpu_hour(price: Price, labels: Mapping[str, str]) -> float | None:
    """Return the price per GPU-hour on a node with ``labels``; None if there is none for its kind of node.

    A single price holds for all nodes. ``labels`` are Ray's, by name. The kind is the value of any label, in upper or
    lower case; the first kind in the file that is among them counts. If the node's market has no price of its own, the
    other market's price is used. The market of a node is on demand unless its label `MARKET` says "spot".
    """
    if not isinstance(price, Mapping):
        return price
    label_values = {value.casefold() for value in labels.values()}
    of_kind = next(
        (kind_price for kind, kind_price in price.items() if kind.casefold() in label_values), None
    )
    if not isinstance(of_kind, Mapping):  # one price for both markets, or None
        return of_kind
    market: Market = "spot" if labels.get(MARKET) == "spot" else "on_demand"
    other_market_price = next(iter(of_kind.values()))  # or this market's, which is found first
    return of_kind.get(market, other_market_price)


def find_price_bounds(price: Price) -> tuple[float, float]:
    """Return the lowest and the highest price per GPU-hour in the file, over all kinds of nodes and markets.

    Both are the same if there is only one. Raises ValueError if ``price`` is an empty mapping.
    """
    prices = [*_list_prices(price)]
    return min(prices), max(prices)


def _list_prices(price: Price | Mapping[Market, float]) -> Iterator[float]:
    """Yield all prices in ``price``: a number, or a mapping by kind of node or by market, perhaps nested."""
    if not isinstance(price, Mapping):
        yield price
        return
    for each in price.values():
        yield from _list_prices(each)
