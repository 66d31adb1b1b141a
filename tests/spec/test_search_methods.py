"""The table of search methods: what it says of each is so, and it imports no searcher."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sweep.spec.search_methods import METHODS, SEARCHED, STANDALONE, Method, find_method


@pytest.mark.parametrize("method", SEARCHED, ids=lambda method: method.name)
def test_each_searcher_is_found(method: Method) -> None:
    assert method.searcher.startswith("sweep.searchers.")
    assert callable(method.load_searcher())


def test_another_name_means_the_same_but_is_listed_once() -> None:
    assert METHODS["bayes"].same_as == "tpe"
    assert METHODS["bayes"].searcher == METHODS["tpe"].searcher
    assert "bayes" not in [method.name for method in SEARCHED]


def test_a_searcher_of_the_user_s_own_learns_and_is_none_of_ours() -> None:
    own = find_method("my_search:Climb")
    assert (own.is_own, own.learns, own.several_objectives, own.uses_prior) == (
        True,
        True,
        True,
        False,
    )
    assert not own.is_standalone


def test_only_populations_change_their_members() -> None:
    assert {method.name for method in SEARCHED} - {method.name for method in STANDALONE} == {
        "pbt",
        "pb2",
    }
    assert [method.name for method in METHODS.values() if method.moves_numbers_only] == ["pb2"]


def test_reading_a_sweep_file_imports_no_searcher() -> None:
    program = "import sys, sweep.spec; print([name for name in sys.modules if name.startswith('sweep.searchers')])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
