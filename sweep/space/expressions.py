"""Arithmetic and conditions over parameters, as in ``constraints:`` and tied values.

A name that is not an identifier, such as ``val/loss``, is written in backquotes. The text is parsed, checked against a
whitelist of Python's syntax, and evaluated by walking the tree: nothing is compiled or executed, and every result is
bounded, so that no expression can hang or exhaust memory.
"""

from __future__ import annotations

import ast
import math
import operator
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from sweep.errors import SweepError
from sweep.events import Params, Value
from sweep.text import shortened

MAX_LENGTH = 1000
MAX_NESTING = 50
MAX_MAGNITUDE = 1e300
WITHOUT_RESULT = 10.0
"""Distance of a condition without a result, larger than that of any comparison, which is below 2."""

_ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_ORDER: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
# with the minimum and maximum number of arguments
_FUNCTIONS: dict[str, tuple[Callable[..., float], int, int]] = {
    "min": (min, 2, 100),
    "max": (max, 2, 100),
    "abs": (abs, 1, 1),
    "round": (round, 1, 2),
    "log": (math.log, 1, 1),
    "log2": (math.log2, 1, 1),
    "log10": (math.log10, 1, 1),
    "sqrt": (math.sqrt, 1, 1),
    "exp": (math.exp, 1, 1),
    "floor": (math.floor, 1, 1),
    "ceil": (math.ceil, 1, 1),
}
_WORDS: dict[str, Value] = {"true": True, "false": False, "null": None}  # as in YAML


class ExpressionError(SweepError):
    """An expression that cannot be parsed or computed; ``column`` counts from 1."""

    def __init__(self, text: str, column: int, message: str) -> None:
        self.text = text
        self.column = column
        self.message = message
        super().__init__(f"{text!r}, column {column}: {message}")


class UndefinedError(ExpressionError):
    """An expression without a result at this point, such as a division by zero or the log of a negative number."""


@dataclass(frozen=True)
class Expression:
    """A checked expression over parameters or metrics, such as a constraint; two with the same text are equal."""

    text: str
    names: frozenset[str] = field(compare=False, repr=False)
    _tree: ast.expr = field(compare=False, repr=False)

    @classmethod
    def parse(cls, text: str) -> Expression:
        """Parse and check the text of an expression, and return it.

        A name in backquotes loses these in `names`, and `names` lacks words such as ``true``. Raises `ExpressionError`
        for anything but numbers, strings, names, operators and known functions with as many arguments as they take, for
        ``in`` without a list, for a number that is too large, and for a text that is too long or nested too deeply.
        Whether the names are known is not checked.
        """
        if len(text) > MAX_LENGTH:
            raise ExpressionError(
                shortened(text, 40), MAX_LENGTH, f"longer than {MAX_LENGTH} characters"
            )
        line, quoted = _replace_quoted_names(" ".join(text.splitlines()))
        indent = len(line) - len(line.lstrip())
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Python's warnings about the syntax
                tree = ast.parse(line.lstrip(), mode="eval").body
        except SyntaxError as error:
            raise ExpressionError(
                text, (error.offset or 1) + indent, f"cannot be read: {error.msg}"
            ) from None
        except (ValueError, RecursionError, MemoryError):
            # a null character, or hundreds of minus signs
            raise ExpressionError(text, 1, "cannot be read") from None
        # give the nodes of the tree the names and the columns of the author's text
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                node.id = quoted.get(node.id, node.id)
            if isinstance(node, ast.expr):  # Python counts UTF-8 bytes; columns count characters
                node.col_offset = len(line.lstrip().encode()[: node.col_offset].decode()) + indent
        return cls(text, frozenset(_find_parameter_names(text, tree, 1)), tree)

    def evaluate(self, params: Params) -> Value:
        """Return the value of the expression at the point ``params``.

        Raises `UndefinedError` if arithmetic has no result or a number is NaN or too large, and `ExpressionError` if
        ``params`` lacks a name or an operator does not accept a type. Parts that the result does not depend on, such as
        those after a false part of ``and``, are not evaluated and raise nothing.
        """
        return _Evaluation(self.text, params).evaluate(self._tree)

    def distance(self, params: Params) -> float:
        """Return how far the point ``params`` is from making a condition true; always finite.

        It is 0 if the condition is true, and smaller the nearer the point is. It is `WITHOUT_RESULT` if the expression
        cannot be evaluated, as when ``params`` lacks a name. No error is raised.
        """
        at = _Evaluation(self.text, params)
        try:
            # it may hold although a part that does not matter has no result
            if at.evaluate_truth(self._tree):
                return 0.0
            return _Distance(at).measure(self._tree, wanted=True)
        except ExpressionError:
            return WITHOUT_RESULT


_QUOTED = re.compile("`([^`]+)`")


def _replace_quoted_names(line: str) -> tuple[str, dict[str, str]]:
    """Replace each name in backquotes by a word of the same length, as Python cannot parse such names.

    Return the line, and a dictionary of the names, without backquotes, by the words that replace them. The words do not
    occur in ``line`` otherwise.
    """
    # Hangul, which is rare in sweep files; the length stays the same, so that columns in messages are right
    letters = (letter for letter in map(chr, range(0xAC00, 0xD7A4)) if letter not in line)
    name_by_word: dict[str, str] = {}

    # returns the word that replaces a name, and records both
    def replace_name(match: re.Match[str]) -> str:
        word = next(letters) * len(match[0])
        name_by_word[word] = match[1]
        return word

    return _QUOTED.sub(replace_name, line), name_by_word


def _find_parameter_names(text: str, node: ast.expr, depth: int) -> Iterator[str]:
    """Yield the names of all parameters in a syntax tree, with dots, as often as they occur.

    Words such as ``true`` and names of functions are left out. ``depth`` is the depth of ``node`` in the tree, from 1.
    Raises `ExpressionError` for a node that is not allowed or nested too deeply; ``text`` is the expression, for the
    message.
    """
    if depth > MAX_NESTING:
        raise ExpressionError(text, node.col_offset + 1, f"nested more than {MAX_NESTING} deep")
    if isinstance(node, ast.Name | ast.Attribute):
        name = _join_dotted_name(node)
        if name:
            if name not in _WORDS:
                yield name
            return
    # an attribute of anything but a name, as in ``(1).real``, is refused here
    for part in _get_operands(text, node):
        yield from _find_parameter_names(text, part, depth + 1)


def _get_operands(text: str, node: ast.expr) -> list[ast.expr]:
    """Return the operands of an operation in a syntax tree; [] for a constant.

    ``text`` is the expression, for messages. Raises `ExpressionError` for a node that is not allowed, such as a list or
    an unknown function, and for a number beyond `MAX_MAGNITUDE`.
    """
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            if isinstance(value, int | float) and not abs(value) <= MAX_MAGNITUDE:
                raise ExpressionError(text, node.col_offset + 1, f"number beyond {MAX_MAGNITUDE:g}")
            operands: list[ast.expr] = []
        # without bitwise operators
        case ast.BinOp(left=left, right=right) if type(node.op) in _ARITHMETIC:
            operands = [left, right]
        case ast.UnaryOp(op=ast.Not() | ast.UAdd() | ast.USub(), operand=operand):
            operands = [operand]
        case ast.BoolOp(values=values):
            operands = values
        case ast.IfExp(test=test, body=body, orelse=orelse):
            operands = [test, body, orelse]
        case ast.Compare():
            operands = _get_compared(text, node)
        case ast.Call():
            operands = _get_arguments(text, node)
        case _:
            raise ExpressionError(
                text, node.col_offset + 1, "only arithmetic and comparisons are possible"
            )
    return operands


def _get_compared(text: str, node: ast.Compare) -> list[ast.expr]:
    """Return the operands of a comparison, or of a chain of them, from left to right.

    A list or tuple after ``in`` or ``not in`` is replaced by its elements. ``text`` is the expression, for messages.
    Raises `ExpressionError` for ``is`` and ``is not``, and if no list follows ``in``.
    """
    compared = [node.left]
    for op, right in zip(node.ops, node.comparators, strict=True):
        match op, right:
            case ast.In() | ast.NotIn(), ast.List(elts=elements) | ast.Tuple(elts=elements):
                compared += elements
            case ast.In() | ast.NotIn() | ast.Is() | ast.IsNot(), _:
                raise ExpressionError(
                    text, right.col_offset + 1, "expected a list, as in: x in [1, 2]"
                )
            case _:
                compared.append(right)
    return compared


def _get_arguments(text: str, node: ast.Call) -> list[ast.expr]:
    """Return the arguments of a function call.

    ``text`` is the expression, for messages. Raises `ExpressionError` if the function is unknown, if it does not take
    as many arguments, or if an argument is named.
    """
    match node:
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            _, fewest, most = _FUNCTIONS[name]  # numbers of arguments
            if not fewest <= len(args) <= most:
                raise ExpressionError(
                    text, node.col_offset + 1, f"wrong number of arguments for {name}"
                )
            return args
    known = ", ".join(sorted(_FUNCTIONS))
    raise ExpressionError(text, node.col_offset + 1, f"not a known function; known: {known}")


def _join_dotted_name(node: ast.expr) -> str | None:
    """Return the name for which a part of a syntax tree stands, such as ``a.b``; None if it is something else.

    An attribute of anything but a name, as in ``(1).real``, is something else.
    """
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=owner, attr=attribute):
            prefix = _join_dotted_name(owner)
            if prefix is not None:
                return f"{prefix}.{attribute}"
    return None


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """Evaluates the syntax tree of an expression at one point."""

    text: str
    params: Params

    def evaluate(self, node: ast.expr) -> Value:
        """Return the value of a part of the expression. Raises the errors of `Expression.evaluate`."""
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | None as constant):
                return constant
            case ast.Name() | ast.Attribute():
                return self.look_up(node)
            case ast.UnaryOp(op=ast.Not()) | ast.BoolOp() | ast.Compare():
                return self.decide(node)
            case ast.UnaryOp() | ast.BinOp() | ast.Call():
                return self.calculate(node)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.evaluate(body if self.evaluate_truth(test) else orelse)
        raise self.make_error(node, "cannot be evaluated")

    def look_up(self, node: ast.Name | ast.Attribute) -> Value:
        """Return the value of a parameter, a metric, or a constant such as ``true``.

        Raises `ExpressionError` if there is no such name, and `UndefinedError` if the value is a float that is NaN or
        too large.
        """
        name = _join_dotted_name(node) or ""
        if name in _WORDS:
            return _WORDS[name]
        if name not in self.params:
            raise self.make_error(node, f"no parameter {name!r}")
        value = self.params[name]
        if isinstance(value, float):
            return self.check_bounds(node, value)  # a metric may be NaN
        return value

    def decide(self, node: ast.expr) -> bool:
        """Return the value of ``not``, ``and``, ``or`` or a comparison, always as a boolean.

        As in Python, later parts are evaluated only if they matter, and ``a < b < c`` means ``a < b and b < c``. Raises
        the errors of `Expression.evaluate`.
        """
        match node:
            case ast.UnaryOp(operand=operand):
                return not self.evaluate_truth(operand)
            case ast.BoolOp(op=ast.And(), values=values):
                return all(self.evaluate_truth(value) for value in values)
            case ast.BoolOp(values=values):
                return any(self.evaluate_truth(value) for value in values)
            case ast.Compare(left=left, ops=ops, comparators=rights):
                lefts = [
                    left,
                    *rights[:-1],
                ]  # in a chain, the right side of one is the left side of the next
                return all(self.compare(*pair) for pair in zip(lefts, ops, rights, strict=True))
        raise self.make_error(node, "cannot be evaluated")

    def calculate(self, node: ast.expr) -> float:
        """Return the value of an arithmetic operation or a function. Raises the errors of `Expression.evaluate`."""
        match node:
            case ast.UnaryOp(op=op, operand=operand):
                number = self.evaluate_number(operand)
                if isinstance(op, ast.USub):
                    return -number
                return number
            case ast.BinOp(left=left, op=op, right=right):
                return self.compute(
                    node,
                    _ARITHMETIC[type(op)],
                    self.evaluate_number(left),
                    self.evaluate_number(right),
                )
            case ast.Call(func=ast.Name(id=name), args=args):
                return self.compute(node, _FUNCTIONS[name][0], *map(self.evaluate_number, args))
        raise self.make_error(node, "cannot be evaluated")

    def compare(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> bool:
        """Return the value of one comparison: ``in``, ``not in``, ``==``, ``!=``, or one of order between numbers.

        As in Python, 1, 1.0 and true are equal. Raises the errors of `Expression.evaluate`.
        """
        match op, right:
            case ast.In() | ast.NotIn(), ast.List(elts=elements) | ast.Tuple(elts=elements):
                is_in = self.evaluate(left) in [self.evaluate(element) for element in elements]
                return is_in if isinstance(op, ast.In) else not is_in
            case ast.Eq() | ast.NotEq(), _:
                is_equal = self.evaluate(left) == self.evaluate(right)
                return is_equal if isinstance(op, ast.Eq) else not is_equal
        return _ORDER[type(op)](self.evaluate_number(left), self.evaluate_number(right))

    def compute(self, node: ast.expr, function: Callable[..., float], *numbers: float) -> float:
        """Apply a function to numbers, at least one, and return the result.

        ``node`` is the operation, for messages. Raises `UndefinedError` if there is no result, if it is not real, or if
        it is beyond `MAX_MAGNITUDE`, and `ExpressionError` unless the digits of `round` are a whole number from -15 to
        15.
        """
        first, last = numbers[0], numbers[-1]
        are_integers = isinstance(first, int) and isinstance(last, int)
        # checked before it is computed, because Python would compute an integer of any size
        if function is operator.pow and are_integers and abs(first) > 1:
            # negative for a negative exponent, with which the result is a float
            bits = last * math.log2(abs(first))
            if bits > 1000:
                raise self.make_undefined_error(node, f"the result is beyond {MAX_MAGNITUDE:g}")
        if function is round and len(numbers) == 2:
            digits = last
            if not isinstance(digits, int) or abs(digits) > 15:
                raise self.make_error(node, "digits must be a whole number from -15 to 15")
        try:
            result = function(*numbers)
        except (ZeroDivisionError, OverflowError, ValueError) as error:
            raise self.make_undefined_error(node, str(error)) from None
        if isinstance(result, complex):
            raise self.make_undefined_error(node, "the result is not a real number")
        return self.check_bounds(node, result)

    def evaluate_number(self, node: ast.expr) -> float:
        value = self.evaluate(node)
        if not isinstance(value, int | float):
            raise self.make_error(node, f"expected a number, got {value!r}")
        return self.check_bounds(node, value)

    def evaluate_truth(self, node: ast.expr) -> bool:
        value = self.evaluate(node)
        if not isinstance(value, int | float):
            raise self.make_error(node, f"expected true or false, got {value!r}")
        return bool(value)

    def check_bounds(self, node: ast.expr, number: float) -> float:
        if not abs(number) <= MAX_MAGNITUDE:  # also catches NaN
            raise self.make_undefined_error(
                node, f"the result is not a number below {MAX_MAGNITUDE:g}"
            )
        return number

    def make_error(self, node: ast.expr, message: str) -> ExpressionError:
        return ExpressionError(self.text, node.col_offset + 1, message)

    def make_undefined_error(self, node: ast.expr, message: str) -> UndefinedError:
        return UndefinedError(self.text, node.col_offset + 1, message)


@dataclass(frozen=True, slots=True)
class _Distance:
    """The branch distance of search-based testing: how far the values in a condition are from making it true.

    Searches for feasible points follow it downhill.
    """

    at: _Evaluation

    def measure(self, node: ast.expr, *, wanted: bool) -> float:
        """Return how far a condition is from having the ``wanted`` truth value; 0 if it has.

        The distances of parts that all must change are added; where a single part suffices, the smallest counts. A part
        that is no comparison, such as a boolean parameter, is 1 away. Raises `ExpressionError` if a part of it cannot
        be evaluated, in ``and`` and ``or`` also if the truth value does not depend on it.
        """
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.measure(operand, wanted=not wanted)
            case ast.BoolOp(op=op, values=values):
                parts = [self.measure(value, wanted=wanted) for value in values]
                # one part suffices for a true `or` or a false `and`; otherwise all must change
                one_suffices = isinstance(op, ast.Or) if wanted else isinstance(op, ast.And)
                return min(parts) if one_suffices else sum(parts)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.measure(body if self.at.evaluate_truth(test) else orelse, wanted=wanted)
            case ast.Compare(left=left, ops=ops, comparators=rights):
                pairs = zip([left, *rights[:-1]], ops, rights, strict=True)
                parts = []
                for pair in pairs:
                    parts.append(self.measure_comparison(*pair, wanted=wanted))
                return sum(parts) if wanted else min(parts)  # a chain such as a < b < c is an `and`
        return 0.0 if self.at.evaluate_truth(node) == wanted else 1.0

    def measure_comparison(
        self, left: ast.expr, op: ast.cmpop, right: ast.expr, *, wanted: bool
    ) -> float:
        """Return how far one comparison is from having the ``wanted`` truth value; 0 if it has.

        For ``in`` and ``not in``, the nearest element of the list counts; an empty list is 1 away. Raises the errors of
        `Expression.evaluate`.
        """
        if self.at.compare(left, op, right) == wanted:
            return 0.0
        match op, right:
            case ast.In() | ast.NotIn(), ast.List(elts=elements) | ast.Tuple(elts=elements):
                return min(
                    (
                        _measure_violation(self.at.evaluate(left), self.at.evaluate(element))
                        for element in elements
                    ),
                    default=1.0,
                )
        return _measure_violation(self.at.evaluate(left), self.at.evaluate(right))


def _measure_violation(left: Value, right: Value) -> float:
    """Return how far apart two values in a violated comparison are.

    The distance increases with the absolute and with the relative difference of numbers, and is at most 2. Booleans
    count as 0 and 1. It is 1 if a value is not a number and the two differ, and 1e-9 if they are equal.
    """
    if left == right:
        return 1e-9
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        return 1.0
    far = abs(left - right)
    return far / (1 + far) + far / (abs(left) + abs(right))
