"""Hypothesis strategies for domains and whole spaces."""

from __future__ import annotations

from hypothesis import strategies as st

from sweep.space import Between, Condition, OneOf, Parameter, Space
from sweep.space.domains import (
    Beta,
    Categorical,
    Constant,
    Domain,
    IntUniform,
    LogNormal,
    LogUniform,
    Normal,
    Tied,
    Uniform,
)
from sweep.space.expressions import Expression

values = st.sampled_from(["a", "b", 1, 2, 0.5, True, None, [1, 2], {"k": "v"}])
quanta = st.sampled_from([0.1, 0.25, 0.01, 1, 2, 1e-3])
lists = st.lists(values, min_size=1, max_size=4).map(tuple)


@st.composite
def _ranges(draw: st.DrawFn, kind: type[Uniform] | type[LogUniform]) -> Uniform | LogUniform:
    low = draw(st.floats(1e-4, 10))
    q = draw(st.none() | quanta)
    return kind(low, low + (q or 0) + draw(st.floats(0, 10)) + 1e-6, q)


@st.composite
def _integers(draw: st.DrawFn, most: int = 20) -> IntUniform:
    low = draw(st.integers(1, 50))
    q = draw(st.none() | st.integers(1, 5))
    return IntUniform(low, low + (q or 0) + draw(st.integers(0, most)), q, log=draw(st.booleans()))


@st.composite
def _weighted(draw: st.DrawFn) -> Categorical:
    chosen = draw(lists)
    weights = [draw(st.integers(0, 5)) for _ in chosen[1:]] + [1]
    return Categorical(chosen, tuple(weight / sum(weights) for weight in weights))


finite_domains = st.one_of(lists.map(Categorical), _weighted(), _integers(most=3))
numeric_domains = st.one_of(
    _integers(),
    _ranges(Uniform),
    _ranges(LogUniform),
    st.builds(Normal, st.floats(-5, 5), st.floats(0.1, 3), st.none() | quanta),
    st.builds(LogNormal, st.floats(-2, 2), st.floats(0.1, 2), st.none() | quanta),
    st.builds(Beta, st.floats(0.3, 5), st.floats(0.3, 5), st.none() | st.sampled_from([0.1, 0.25])),
)
drawn_domains: st.SearchStrategy[Domain] = st.one_of(
    lists.map(Categorical), _weighted(), numeric_domains
)


@st.composite
def spaces(draw: st.DrawFn, domains: st.SearchStrategy[Domain] = drawn_domains) -> Space:
    """A switch, further parameters that may depend on it, one that depends on those, a constant, a tie,
    and perhaps a constraint."""
    conditions = st.none() | st.sampled_from(
        [
            Condition((("switch", OneOf(("on",))),)),
            Condition((("level", Between(2, 3)), ("switch", OneOf(("on", "off"))))),
        ]
    )
    parameters = [
        Parameter("switch", Categorical(("on", "off", "auto"))),
        Parameter("level", IntUniform(1, 4)),
        Parameter("fixed", Constant("fixed")),
    ]
    for index in range(draw(st.integers(1, 3))):
        parameters.append(Parameter(f"group.p{index}", draw(domains), when=draw(conditions)))
    parameters.append(Parameter("double", Tied(Expression.parse("2 * level"))))
    if draw(st.booleans()):
        parameters.append(
            Parameter("late", draw(domains), when=Condition((("double", OneOf((4, 6))),)))
        )
    texts = draw(
        st.lists(
            st.sampled_from(["level != 2", "switch != 'off' or level < 3", "1 / (level - 3) < 1"]),
            max_size=2,
        )
    )
    return Space(tuple(draw(st.permutations(parameters))), tuple(map(Expression.parse, texts)))
