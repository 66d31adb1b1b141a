"""Charts as coordinates: what a template draws as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sweep.events import Value
from sweep.render.figures import figure, setting

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 46
TICKS = 8  # powers of ten at most
TINY = 1e-290
GOLDEN = 0.618034

Scale: TypeAlias = Callable[[Value], float]  # a share of the axis, 0 to 1; beyond where the axis is cut


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on an axis, at a coordinate."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A trial in a chart: one point, or the points of a line."""

    points: tuple[tuple[float, float], ...]
    kind: str  # what it is drawn as
    title: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Coordinates in a box of WIDTH x HEIGHT, from its upper left corner."""

    x_label: str
    y_label: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class Axis:
    """Where values lie on an axis."""

    scale: Scale
    ticks: tuple[tuple[float, str], ...]  # share of the axis, and label


Series: TypeAlias = tuple[Sequence[tuple[Value, float]], str, str]  # points, kind, title


def chart(x_label: str, y_label: str, x: Axis, y: Axis, series: Sequence[Series]) -> Chart:
    """Put series of points between two axes."""
    across, down = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    marks = [
        Mark(
            tuple((LEFT + across * x.scale(one), TOP + down * (1 - y.scale(other))) for one, other in points),
            kind,
            title,
        )
        for points, kind, title in series
    ]
    return Chart(
        x_label,
        y_label,
        tuple(Tick(LEFT + across * at, label) for at, label in x.ticks),
        tuple(Tick(TOP + down * (1 - at), label) for at, label in y.ticks),
        tuple(marks),
    )


def numbers(values: Sequence[float], *, decades: float = math.inf, cut: bool = False) -> Axis:
    """An axis for finite numbers: logarithmic where they are positive and span as many ``decades``.

    ``cut``: without the outermost twentieths, where these would take most of it.
    """
    low, high = _range(values, cut=cut)
    if low > 0 and math.log10(high) - math.log10(low) >= decades - 1e-9:
        start, end = math.log10(low), math.log10(high)
        powers = range(math.ceil(start - 1e-9), math.floor(end + 1e-9) + 1)
        ticks = tuple(
            ((power - start) / (end - start), figure(10.0**power)) for power in powers[:: -(-len(powers) // TICKS)]
        )
        return Axis(lambda value: (math.log10(max(_number(value), low * 1e-3, TINY)) - start) / (end - start), ticks)
    size = max(abs(low), abs(high))
    if high - low <= max(size * 1e-12, TINY):  # all the same, but for rounding
        half = size / 2 if size > TINY else 0.5
        low, high = low - half, high + half
    step = _step((high - low) / 5)
    marks = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    ticks = tuple(((mark * step - low) / (high - low), figure(mark * step)) for mark in marks)
    return Axis(lambda value: (_number(value) - low) / (high - low), ticks)


def choices(values: Sequence[Value]) -> Axis:
    """An axis with a place for each value that occurs, in the order in which they do."""
    labels = list(dict.fromkeys(map(setting, values)))
    places = {label: (at + 0.5) / len(labels) for at, label in enumerate(labels)}
    return Axis(lambda value: places[setting(value)], tuple((at, label) for label, at in places.items()))


def beside(axis: Axis, trial: int) -> Axis:
    """The axis for one trial: among choices a little beside the place, so that trials do not hide each other."""
    shift = ((trial * GOLDEN) % 1.0 - 0.5) * 0.5 / max(len(axis.ticks), 1)
    return Axis(lambda value: axis.scale(value) + shift, axis.ticks)


def are_numbers(values: Sequence[Value]) -> bool:
    """Whether a parameter's values are drawn along an axis, and not as choices."""
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _number(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def _range(values: Sequence[float], *, cut: bool) -> tuple[float, float]:
    ordered = sorted(values)
    low, high = ordered[0], ordered[-1]
    if cut and len(ordered) >= 20:
        edge = len(ordered) // 20
        inner = ordered[edge], ordered[-1 - edge]
        margin = (inner[1] - inner[0]) / 10
        if high - low > 5 * (inner[1] - inner[0]) > 0:
            return max(low, inner[0] - margin), min(high, inner[1] + margin)
    return low, high


def _step(rough: float) -> float:
    """1, 2 or 5 times a power of ten, not below ``rough``."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
