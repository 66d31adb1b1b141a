from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats
from tensorflow.python.ops import gen_stateless_random_ops_v2

from trainables.numbers.draws import Draws

pytestmark = pytest.mark.keras

MANY = 20_000
CUTS = ([0, 1, 5, 13], [0, 6, 7, 13])


def of(size: int, start: int = 0, stop: int | None = None, update: int = 0) -> Draws:
    return Draws(*map(tf.constant, (3, update, size, start, size if stop is None else stop)))


@pytest.mark.parametrize("alpha", [1e-3, 0.2, 1.0, 7.0])
def test_shares_are_of_the_beta_distribution_also_where_their_parts_underflow(alpha: float) -> None:
    found = of(MANY).beta(tf.constant(alpha)).numpy()
    assert np.isfinite(found).all()
    low = found[found < 0.5]  # above, float32 rounds to 1 what is not
    if alpha > 0.01:
        assert stats.kstest(low, lambda x: 2 * stats.beta(alpha, alpha).cdf(x)).pvalue > 1e-4
    assert found.mean() == pytest.approx(0.5, abs=0.02)
    assert found.var() == pytest.approx(1 / (4 * (2 * alpha + 1)), abs=0.01)


@pytest.mark.parametrize("method", ["uniform", "normal", "beta", "partners"])
def test_draws_of_a_part_are_a_part_of_the_draws(method: str) -> None:
    def drawn(draws: Draws) -> Any:
        return (draws.beta(0.4) if method == "beta" else getattr(draws, method)()).numpy()

    whole = drawn(of(13))
    for cuts in CUTS:
        parts = [drawn(of(13, *cut)) for cut in itertools.pairwise(cuts)]
        assert np.concatenate(parts).tobytes() == whole.tobytes()
    assert drawn(of(13, 2, 5).at(tf.constant([7, 7, 1]))).tobytes() == whole[[7, 7, 1]].tobytes()
    assert drawn(of(13, update=1)).tobytes() != whole.tobytes()
    assert drawn(of(13).from_call(5)).tobytes() != whole.tobytes()


def test_partners_are_a_permutation() -> None:
    assert sorted(of(50).partners().numpy()) == list(range(50))
    assert of(1).partners().numpy().tolist() == [0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(), (3,), (4,), (5, 3)])
def test_rows_of_each_width_and_type_are_drawn_apart(dtype: str, shape: tuple[int, ...]) -> None:
    for kind, cdf in (("uniform", stats.uniform.cdf), ("normal", stats.norm.cdf)):

        def drawn(draws: Draws, kind: Any = kind) -> Any:
            return draws.rows(kind, shape, tf.as_dtype(dtype), 2).numpy()

        whole = drawn(of(400))
        assert whole.shape == (800, *shape)
        assert drawn(of(400, 7, 12)).tobytes() == whole[14:24].tobytes()
        assert (
            drawn(of(400, 2, 5).at(tf.constant([9, 1]))).tobytes()
            == whole[[18, 19, 2, 3]].tobytes()
        )
        flat = whole.astype(np.float64).ravel()
        if dtype in ("float32", "float64"):
            assert len(np.unique(flat)) > 0.99 * len(flat)  # of 2**23 numbers, some come twice
            assert stats.kstest(flat, cdf).pvalue > 1e-4
            assert abs(np.corrcoef(flat[:-1], flat[1:])[0, 1]) < 0.15


def test_draws_compiled_by_xla_are_the_same() -> None:
    def drawn() -> Any:
        draws = of(50, 3, 20)
        return draws.uniform((5,)), draws.normal((2, 3)), draws.key()

    plain, compiled = drawn(), tf.function(drawn, jit_compile=True, autograph=False)()
    np.testing.assert_array_equal(plain[0], compiled[0])
    np.testing.assert_allclose(plain[1], compiled[1], atol=1e-5)
    np.testing.assert_array_equal(plain[2], compiled[2])


def test_a_part_draws_no_more_than_its_own_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[list[int]] = []
    draw = gen_stateless_random_ops_v2.stateless_random_uniform_v2

    def noted(shape: Any, *given: Any) -> Any:
        shapes.append([int(size) for size in shape])
        return draw(shape, *given)

    monkeypatch.setattr(gen_stateless_random_ops_v2, "stateless_random_uniform_v2", noted)
    assert of(1000, 10, 14).uniform((6,)).shape == (4, 6)
    assert shapes == [[4, 8]]
