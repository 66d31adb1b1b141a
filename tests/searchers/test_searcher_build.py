"""From method to searcher."""

from __future__ import annotations

import pytest

from sweep.errors import InputError
from sweep.searchers.build import METHODS, build
from sweep.searchers.repeats import Repeated
from sweep.space.domains import Uniform
from sweep.space.objectives import Objective
from sweep.space.space import Parameter, Space

SPACE = Space((Parameter("x", Uniform(0, 1)),))
LOSS = (Objective("loss", "minimize"),)


def test_an_unknown_method_is_named_with_the_nearest() -> None:
    with pytest.raises(InputError, match="unknown method 'radnom'; did you mean 'random'"):
        build("radnom", SPACE, LOSS, 0)


def test_bayes_is_tpe() -> None:
    assert "bayes" in METHODS
    assert build("bayes", SPACE, LOSS, 3).suggest(0) == build("tpe", SPACE, LOSS, 3).suggest(0)


def test_only_repeats_are_wrapped() -> None:
    assert isinstance(build("random", SPACE, LOSS, 0, repeats=2), Repeated)
    assert not isinstance(build("random", SPACE, LOSS, 0), Repeated)
