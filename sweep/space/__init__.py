"""The search space of a sweep: parameters, the conditions under which they apply, and constraints between them."""

from sweep.space.conditions import Between, Condition, OneOf
from sweep.space.parameter import Parameter
from sweep.space.search_space import Space

__all__ = ["Between", "Condition", "OneOf", "Parameter", "Space"]
