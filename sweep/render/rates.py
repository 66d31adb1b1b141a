"""A learning-rate range test on the terminal, and as plain data."""

from __future__ import annotations

import math

from sweep.events import Value
from sweep.runner.lr_range_test import RATE, Curve

WIDTH, HEIGHT = 64, 10
MARKS = {"steepest": "^", "diverged": "x"}


def as_dict(curve: Curve) -> dict[str, Value]:
    """A curve as plain data."""
    return {
        "params": dict(curve.params),
        "rates": list(curve.rates),
        "losses": list(curve.losses),
        "smoothed": list(curve.smoothed),
        "steepest": curve.steepest,
        "diverged": curve.diverged,
        "tenth_of_diverged": curve.tenth,
    }


def lines(curve: Curve) -> list[str]:
    """The curve as text: smoothed losses over the logarithm of the rate, and the two suggestions."""
    named = " ".join(f"{name}={value}" for name, value in curve.params.items())
    title = f"{RATE} of {named or 'the first configuration'}"
    if len(curve.rates) < 2:
        return [title, f"  it diverged at {curve.diverged:.2g} already" if curve.diverged else "  nothing was tried"]
    return [title, *_plot(curve), *_said(curve)]


def _plot(curve: Curve) -> list[str]:
    first, last = math.log10(curve.rates[0]), math.log10(curve.diverged or curve.rates[-1])
    low = min(curve.smoothed)
    high = max(curve.smoothed[: max(len(curve.smoothed) // 2, 1)])
    high = max(high + (high - low) * 0.5, low + 1e-12)
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]
    for rate, loss in zip(curve.rates, curve.smoothed, strict=True):
        row = round((min(loss, high) - low) / (high - low) * (HEIGHT - 1))
        grid[HEIGHT - 1 - row][_column(rate, first, last)] = "•"
    labels = {0: f"{high:.4g}", HEIGHT - 1: f"{low:.4g}"}
    rows = [f"{labels.get(i, ''):>10} │{''.join(line).rstrip()}" for i, line in enumerate(grid)]
    marks = [" "] * WIDTH
    for name, mark in MARKS.items():
        rate = getattr(curve, name)
        if rate is not None:
            marks[_column(rate, first, last)] = mark
    ends = f"{curve.rates[0]:.0e}".ljust(WIDTH - 8) + f"{10**last:.0e}".rjust(8)
    return [*rows, f"{'':>10} └{'─' * WIDTH}", f"{'':>12}{''.join(marks).rstrip()}", f"{'':>12}{ends}"]


def _column(rate: float, first: float, last: float) -> int:
    share = (math.log10(rate) - first) / max(last - first, 1e-9)
    return min(max(round(share * (WIDTH - 1)), 0), WIDTH - 1)


def _said(curve: Curve) -> list[str]:
    falls = "nowhere" if curve.steepest is None else f"at {curve.steepest:.2g}"
    up_to = f"{curve.rates[-1]:.2g}"
    rises = f"not up to {up_to}" if curve.diverged is None else f"at {curve.diverged:.2g}, a tenth: {curve.tenth:.2g}"
    return [f"  ^ falls fastest {falls}", f"  x diverges {rises}"]
