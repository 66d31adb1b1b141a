"""Compare a race of finalists with training all of them on all seeds: cost, choice of the best, and errors.

    python benchmarks/racing.py [SWEEPS]

Each simulated sweep tries 27 configurations once; the best 8 get fresh seeds. ``spread`` is the standard deviation of
the configurations' true scores divided by that of the noise. With 0 there is no difference to find, so a configuration
that drops out does so wrongly. ``uneven`` noise differs between configurations by a factor of three either way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from sweep.statistics.racing import look_at_race

Floats = npt.NDArray[np.float64]

TRIED, RACERS = 27, 8
NOISES: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Floats]] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "skewed": lambda rng, shape: rng.exponential(size=shape) - 1,
    "heavy": lambda rng, shape: rng.standard_t(3, size=shape) / np.sqrt(3),
    "uneven": lambda rng, shape: (
        rng.normal(size=shape)
        * np.exp(rng.uniform(-1.1, 1.1, (shape[0],) + (1,) * (len(shape) - 1)))
    ),
}


def raced(losses: Floats) -> tuple[list[int], int, bool]:
    """Race ``losses`` (racers, seeds); return who is left, best first, the trainings used, and if any dropped out."""
    seeds = losses.shape[1]
    left, trainings = list(range(len(losses))), 0
    for done in range(1, seeds + 1):
        trainings += len(left)
        looked = look_at_race(losses[left, :done].tolist(), seeds)
        left = [racer for place, racer in enumerate(left) if place not in looked.out]
        if len(left) == 1:
            break
    return (
        sorted(left, key=lambda racer: float(losses[racer, :done].mean())),
        trainings,
        len(left) < len(losses),
    )


def simulate(
    noise: str, spread: float, seeds: int, sweeps: int, rng: np.random.Generator
) -> dict[str, float]:
    """Return the figures of the table, as means over simulated sweeps."""
    draw, found = (
        NOISES[noise],
        dict.fromkeys(("trainings", "told", "lost", "picked", "picked by all seeds"), 0.0),
    )
    for _ in range(sweeps):
        true = rng.normal(size=TRIED) * spread
        chosen = np.argsort(true + draw(rng, (TRIED,)))[:RACERS]
        losses = true[chosen][:, None] + draw(rng, (RACERS, seeds))
        best = int(true[chosen].argmin())
        left, trainings, told = raced(losses)
        found["trainings"] += trainings / (RACERS * seeds)
        found["told"] += told
        found["lost"] += best not in left
        found["picked"] += left[0] == best
        found["picked by all seeds"] += int(losses.mean(axis=1).argmin()) == best
    return {name: value / sweeps for name, value in found.items()}


def main() -> None:
    """Print a table."""
    sweeps = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    rng = np.random.default_rng(16)
    heads = ("trainings", "told apart", "best lost", "best first", "by all")
    print(f"{'noise':8} {'spread':>6} {'seeds':>5}" + "".join(f"{head:>13}" for head in heads))
    for noise in NOISES:
        for spread in (0.0, 1.0, 3.0):
            for seeds in (8, 16):
                one = simulate(noise, spread, seeds, sweeps, rng)
                shares = [
                    one[name]
                    for name in ("trainings", "told", "lost", "picked", "picked by all seeds")
                ]
                cells = "".join(f"{100 * share:11.1f} %" for share in shares)
                print(f"{noise:8} {spread:6g} {seeds:5}{cells}", flush=True)


if __name__ == "__main__":
    main()
