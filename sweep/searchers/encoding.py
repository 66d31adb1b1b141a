"""The points of a space as rows of numbers, for models that measure how far two configurations are apart.

A row has a number from 0 to 1 for each parameter that has several values, on the scale on which it is drawn, and NaN
for a parameter that does not apply. `Encoding.features` turns rows into coordinates, in which two configurations differ
in each parameter by at most 1: numbers by their distance, choices by 0 or 1, and a parameter that applies to only one
of them by 1.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sweep.events import Params, Value, is_number
from sweep.searchers.points import Draw
from sweep.space import Parameter, Space
from sweep.space.domains import Categorical, is_log, key, list_choices
from sweep.space.draws import from_unit, to_unit

Rows: TypeAlias = NDArray[np.float64]
"""One row for each configuration, one column for each parameter; NaN where the parameter does not apply."""

ARC = math.pi / 3
"""Angle of the arc on which a conditional number lies; configurations without the number are at its center.

The ends of the arc are as far from each other as from the center: the kernel of Hutter and Osborne (2013), "A kernel
for hierarchical parameter spaces", with one angle.
"""
BELIEF_POINTS = 129  # points at which the density of a belief is tabulated


class Encoding:
    """Encodes the configurations of one space as rows of numbers, and decodes rows."""

    def __init__(self, space: Space) -> None:
        self._space = space
        varying = []
        for one in space.parameters:
            values = list_choices(one.domain)  # None for a continuum
            if one.drawn and (values is None or len(values) > 1):
                varying.append(one)
        self._axes = tuple(_Axis.from_parameter(parameter) for parameter in varying)
        self._columns = {axis.name: column for column, axis in enumerate(self._axes)}
        self.is_plain = not space.constraints and not any(
            parameter.needs for parameter in space.parameters
        )
        """True if every row is valid; otherwise each must be checked, which takes a tenth of a millisecond."""

    @property
    def size(self) -> int:
        """The number of columns of a row: one for each drawn parameter with several values."""
        return len(self._axes)

    def encode(self, params: Params) -> NDArray[np.float64]:
        """Return the row of a configuration, of shape (columns,), with NaN for parameters that it lacks.

        A value becomes a number from 0 to 1; parameters with a single value have no column. Raises ValueError if a
        value is not among the choices of its parameter, and TypeError if the parameter is a number and the value is
        not. Numbers are not checked against the bounds.
        """
        row = np.full(self.size, math.nan)
        for column, axis in enumerate(self._axes):
            if axis.name in params:
                row[column] = axis.encode_value(params[axis.name])
        return row

    def encode_all(self, configurations: Sequence[Params]) -> Rows:
        """Return the rows of several configurations, in their order; the errors are those of `encode`."""
        return np.array([self.encode(params) for params in configurations]).reshape(-1, self.size)

    def decode(self, row: NDArray[np.float64]) -> Draw:
        """Return a function that returns each parameter's value in the configuration of a row.

        The returned function must not be called for parameters that do not apply, whose number is NaN, nor for tied
        ones. Numbers need not be exact: the nearest value of the parameter is returned.
        """
        units = row.tolist()  # numbers from 0 to 1

        def draw(parameter: Parameter) -> Value:
            column = self._columns.get(parameter.name)
            if column is None:  # it has one value
                return from_unit(parameter.domain, 0.0)
            return self._axes[column].decode_value(units[column])

        return draw

    def snap_to_valid(self, rows: Rows) -> Rows:
        """Return rows of arbitrary numbers from 0 to 1 as rows of valid configurations, in their order.

        Numbers are moved to the nearest possible value, parameters that do not apply become NaN, and configurations
        that violate a constraint are left out, so that fewer rows may be returned. ``rows`` must not have NaN, and is
        not changed. Raises ValueError if no parameter has several values.
        """
        snapped = np.column_stack(
            [axis.snap(rows[:, column]) for column, axis in enumerate(self._axes)]
        )
        if self.is_plain:  # no constraints, and no parameters that apply only sometimes
            return snapped
        is_allowed = np.zeros(len(rows), dtype=bool)
        for index, row in enumerate(snapped):
            params = self._space.complete_if_feasible(self.decode(row))
            if params is None:  # it violates a constraint
                continue
            is_allowed[index] = True
            does_not_apply = [axis.name not in params for axis in self._axes]
            row[does_not_apply] = math.nan  # `row` is a view, so this changes `snapped`
        return snapped[is_allowed]

    def perturb(self, rows: Rows, scale: float, rng: np.random.Generator) -> Rows:
        """Return a random neighbor of each row, to which `snap_to_valid` must still be applied.

        A number moves by about ``scale``, which is in the numbers from 0 to 1 of a row, and at least by about the
        distance of neighboring values. A choice is drawn again. One random parameter is always moved or drawn again,
        each other number with probability 1/2, each other choice with probability 1/5. Parameters that do not apply get
        a number, since they may apply after the move. ``rows`` is not changed.
        """
        fresh = rng.random(rows.shape)
        centers = np.where(np.isnan(rows), fresh, rows)
        unordered = np.array([axis.is_choice for axis in self._axes])  # a boolean for each column
        steps = np.maximum(scale, [axis.step for axis in self._axes])
        # reflected at 0 and 1, so that numbers do not pile up at the ends; what is still outside is cut off
        moved = np.abs(centers + rng.normal(size=rows.shape) * steps)
        moved = np.clip(np.where(moved > 1, 2 - moved, moved), 0.0, 1.0)
        changes = rng.random(rows.shape) < np.where(unordered, 0.2, 0.5)
        # in each row, one column always changes
        changes[np.arange(len(rows)), rng.integers(self.size, size=len(rows))] = True
        return np.where(changes, np.where(unordered, fresh, moved), centers)

    def features(self, rows: Rows) -> NDArray[np.float64]:
        """Return the coordinates of rows, in one row for each, for models that measure distances.

        A number has one coordinate, or two if it does not always apply; a choice has one for each of its values, and
        one more. Each parameter adds at most 1 to the squared distance of two rows. `owners` says to which parameter a
        coordinate belongs.
        """
        blocks = []
        for column, axis in enumerate(self._axes):
            blocks.append(axis.coordinates(rows[:, column]))
        # `hstack` needs at least one block, and a space of constants has none
        return np.hstack([np.empty((len(rows), 0)), *blocks])

    @property
    def owners(self) -> NDArray[np.intp]:
        """For each coordinate, the column in a row of the parameter to which it belongs."""
        dimensions = np.array([axis.dimensions for axis in self._axes], dtype=np.intp)
        return np.repeat(np.arange(self.size), dimensions)

    def log_belief(self, rows: Rows) -> NDArray[np.float64]:
        """Return each row's log density under the author's beliefs, relative to the space's own density.

        Parameters without a belief, and those that do not apply, add 0.
        """
        found = np.zeros(len(rows))
        for column, axis in enumerate(self._axes):
            found += axis.log_belief(rows[:, column])
        return found


@dataclass(frozen=True, slots=True)
class _Axis:
    """One column of a row: a parameter, its values as numbers from 0 to 1, and the author's belief about them."""

    parameter: Parameter
    values: tuple[Value, ...] | None  # None for a continuum
    # of the values, ascending; of a continuum, where the belief's density is tabulated
    units: NDArray[np.float64]
    beliefs: NDArray[np.float64]  # log density at each of the units; empty without a belief
    middles: list[float]  # between neighboring units

    @classmethod
    def from_parameter(cls, parameter: Parameter) -> _Axis:
        """Return the column of a parameter, which must be drawn."""
        domain = parameter.domain
        values = list_choices(domain)
        if values is None:  # a continuum: only where the belief's density is tabulated
            units = np.linspace(0.0, 1.0, BELIEF_POINTS)
        elif isinstance(domain, Categorical):
            values, units = _assign_units(values)
        else:  # numbers with a step
            units = np.array([to_unit(domain, value) for value in values])
        middles = ((units[1:] + units[:-1]) / 2).tolist()
        if parameter.belief is None:
            return cls(parameter, values, units, np.empty(0), middles)
        values_at_units = values
        if values_at_units is None:
            values_at_units = tuple(from_unit(domain, float(unit)) for unit in units)
        beliefs = np.array(
            [parameter.belief.log_density(domain, value) for value in values_at_units]
        )
        return cls(parameter, values, units, beliefs, middles)

    @property
    def name(self) -> str:
        return self.parameter.name

    @property
    def is_choice(self) -> bool:
        """True if the values have no order, so that any two of them are equally far apart."""
        return isinstance(self.parameter.domain, Categorical) and not _are_ordered(
            self.values or ()
        )

    @property
    def step(self) -> float:
        """The approximate distance between neighboring values: 1 / number of values.

        It is 0 if the parameter is continuous or has a single value.
        """
        if self.values is None or len(self.values) < 2:
            return 0.0
        return 1.0 / len(self.values)

    @property
    def dimensions(self) -> int:
        """The number of coordinates into which `coordinates` turns a number of this column.

        It is 1 for a number that always applies, 2 for one that does not, and for a choice the number of values plus 1.
        """
        if self.is_choice:
            return len(self.values or ()) + 1
        return 1 if self.parameter.when is None else 2

    def encode_value(self, value: Value) -> float:
        """Return the number from 0 to 1 for a value; the errors are those of `Encoding.encode`."""
        if self.values is None or not isinstance(self.parameter.domain, Categorical):
            return to_unit(self.parameter.domain, value)
        keys = [key(one) for one in self.values]
        return float(self.units[keys.index(key(value))])

    def decode_value(self, unit: float) -> Value:
        """Return the value for a number from 0 to 1; the one whose number is nearest, if values are not continuous."""
        if self.values is None:
            return from_unit(self.parameter.domain, unit)
        return self.values[bisect_right(self.middles, unit)]

    def snap(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Round each number to the nearest one that encodes a value; return them unchanged for a continuous parameter.

        All numbers are from 0 to 1.
        """
        if self.values is None:
            return numbers
        return self.units[self._find_nearest(numbers)]

    def coordinates(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the coordinates of numbers of this column, in one row for each; NaN where it does not apply."""
        absent = np.isnan(numbers)
        if self.is_choice:
            # a row of the unit matrix for each choice, and one for absence; any two differ by a squared distance of 1
            index_of_absence = len(self.units)
            nearest = self._find_nearest(np.where(absent, 0.0, numbers))
            indices = np.where(absent, index_of_absence, nearest)
            return np.eye(self.dimensions)[indices] * math.sqrt(0.5)
        if self.dimensions == 1:  # it always applies
            return numbers[:, None]
        # absence is the center of the arc
        on_arc = np.column_stack([np.sin(ARC * numbers), np.cos(ARC * numbers)])
        return np.where(absent[:, None], 0.0, on_arc)

    def log_belief(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the log density of the belief at numbers of this column; 0 where it does not apply or has no belief.

        Between tabulated numbers, it is interpolated.
        """
        if not len(self.beliefs):
            return np.zeros(len(numbers))
        absent = np.isnan(numbers)
        known = np.interp(np.where(absent, 0.0, numbers), self.units, self.beliefs)
        return np.where(absent, 0.0, known)

    def _find_nearest(self, numbers: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return for each number the index of the value whose number is nearest; of equally near ones, the higher.

        The parameter must not be continuous.
        """
        return np.searchsorted(self.middles, numbers, side="right")


def _are_ordered(values: Sequence[Value]) -> bool:
    """Return whether values are at least three numbers that all differ.

    Such values are encoded as points on a line, all others as choices without an order.
    """
    numbers = []
    for value in values:
        if is_number(value):
            numbers.append(float(value))
    return 2 < len(values) == len(set(numbers))


def _assign_units(values: Sequence[Value]) -> tuple[tuple[Value, ...], NDArray[np.float64]]:
    """Return the values of a list, and a number from 0 to 1 for each, ascending.

    Ordered values (`_are_ordered`) are sorted and placed on a linear or logarithmic scale, the first at 0 and the last
    at 1. Others keep their order and get evenly spaced numbers inside of these bounds.
    """
    if not _are_ordered(values):
        return tuple(values), (np.arange(len(values)) + 0.5) / len(values)
    # all of them are numbers
    ordered = sorted(value for value in values if isinstance(value, int | float))
    scale = np.array(ordered, dtype=np.float64)
    if is_log(None, ordered):  # they span a factor of ten, most at the low end
        scale = np.log(scale)
    return tuple(ordered), (scale - scale[0]) / (scale[-1] - scale[0])
