"""Are verdicts as sure as they say? Simulated sweeps in which the truth is known.

    python benchmarks/verdicts.py [--sweeps 1000] [--quick]

Prints how often a sweep without any true difference calls a configuration worse (at most 5 %), how often a true
difference of 1.2 standard deviations of the paired differences is told (80 % at 8 seeds for one comparison, less after
the adjustments), and how often the 95 % intervals hold the truth. Scores are a seed's own effect, which all
configurations share, and noise: normal, skewed (exponential), heavy-tailed (Student's t, 3 degrees of freedom), or
normal with one configuration four times as noisy. Exits with 1 where a promise is broken.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy import stats

from sweep import statistics
from sweep.statistics import ALPHA, Verdict, compare, permutations

Floats = npt.NDArray[np.float64]
Noise = Callable[[np.random.Generator, tuple[int, int]], Floats]


def uneven(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    noise = rng.standard_normal(shape)
    noise[0] *= 4
    return noise


NOISES: dict[str, Noise] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "skewed": lambda rng, shape: rng.standard_exponential(shape) - 1,
    "heavy-tailed": lambda rng, shape: rng.standard_t(3, shape) / math.sqrt(3),
    "uneven": uneven,
}
SHAPES = ((2, 8), (3, 8), (5, 8), (7, 8), (5, 12), (10, 12), (27, 12), (10, 20))  # configurations and seeds


def scores(rng: np.random.Generator, noise: Noise, shape: tuple[int, int], lead: float = 0.0) -> Floats:
    """(configurations, seeds); the first is better by so many standard deviations of a paired difference."""
    found = noise(rng, shape) + 2 * rng.standard_normal(shape[1])
    found[0] += lead * math.sqrt(2)
    return found


def judged(table: Floats) -> list[Verdict]:
    found = compare({at: dict(enumerate(row.tolist())) for at, row in enumerate(table)}, maximize=True)
    return [found[at].verdict for at in range(len(table))]


def holm_alone(table: Floats) -> bool:
    """Whether Holm's adjustment of the comparisons with the best would call any worse."""
    best = int(table.mean(axis=1).argmax())
    return bool((permutations.holm(permutations.each(np.delete(table - table[best], best, 0).T).p) <= ALPHA).any())


def false_winners(sweeps: int) -> bool:
    print(f"{sweeps:,} sweeps without any true difference: share in which any configuration is called worse")
    print(
        f"{'noise':14}{'configurations':>15}{'seeds':>7}{'verdicts':>10}{'error':>8}{'Holm alone':>12}{'all worse':>11}"
    )
    kept = True
    for name, noise in NOISES.items():
        for shape in SHAPES:
            rng = np.random.default_rng(0)
            count = sweeps if shape[0] < 20 and shape[1] < 15 else max(sweeps // 5, 1)
            wrong = alone = winners = 0
            for _ in range(count):
                table = scores(rng, noise, shape)
                told = judged(table)
                wrong += Verdict.WORSE in told
                winners += told.count(Verdict.WORSE) == len(told) - 1
                alone += holm_alone(table)
            error = math.sqrt(ALPHA * (1 - ALPHA) / count)
            kept = kept and wrong / count <= ALPHA + 3 * error
            print(
                f"{name:14}{shape[0]:15}{shape[1]:7}{wrong / count:10.1%}{error:8.1%}{alone / count:12.1%}"
                f"{winners / count:11.1%}",
                flush=True,
            )
    return kept


def power(sweeps: int) -> bool:
    print("\nOne configuration better by 1.2 standard deviations of the differences: share in which this is told")
    head = ("one comparison", "Student's t", "of a comparison", "of any")
    print(f"{'noise':14}{'configurations':>15}{'seeds':>7}" + "".join(f"{text:>17}" for text in head))
    kept = True
    for name in ("normal", "skewed", "heavy-tailed"):
        for shape in SHAPES[:6]:
            rng = np.random.default_rng(1)
            single = by_t = each = any_ = 0.0
            for _ in range(sweeps):
                table = scores(rng, NOISES[name], shape, 1.2)
                differences = table[0] - table[1]
                single += permutations.each(differences[:, None]).p[0] <= ALPHA
                by_t += stats.ttest_1samp(differences, 0).pvalue <= ALPHA
                told = judged(table)
                if told[0] is not Verdict.WORSE:
                    each += told[1:].count(Verdict.WORSE) / (shape[0] - 1)
                    any_ += Verdict.WORSE in told
            shares = [value / sweeps for value in (single, by_t, each, any_)]
            kept = kept and (name != "normal" or shape[1] < 8 or shares[0] >= 0.8 - 3 * 0.4 / math.sqrt(sweeps))
            print(f"{name:14}{shape[0]:15}{shape[1]:7}" + "".join(f"{share:17.1%}" for share in shares), flush=True)
    return kept


def coverage(draws: int) -> bool:
    print("\n95 % intervals: share that holds the truth")
    head = ("difference, t", "mean, t", "mean, BCa", "difference to the one chosen as best of 5")
    print(f"{'noise':14}{'seeds':>7}" + "".join(f"{text:>{max(len(text) + 2, 15)}}" for text in head))
    kept = True
    for name in ("normal", "skewed", "heavy-tailed"):
        for seeds in (6, 8, 12, 20):
            rng = np.random.default_rng(2)
            hits = np.zeros(4)
            few = max(draws // 10, 1)  # bootstraps
            for at in range(draws):
                table = NOISES[name](rng, (5, seeds))
                best = int(table.mean(axis=1).argmax())
                other = (best + 1) % 5
                hits[0] += _holds(statistics.interval_of_mean((table[0] - table[1]).tolist()))
                hits[1] += _holds(statistics.interval_of_mean(table[0].tolist()))
                hits[3] += _holds(statistics.interval_of_mean((table[other] - table[best]).tolist()))
                if at < few:
                    bca = stats.bootstrap((table[0],), np.mean, n_resamples=999, rng=rng, method="BCa")
                    hits[2] += _holds(tuple(bca.confidence_interval))
            shares = hits / [draws, draws, few, draws]
            # Differences of alike configurations are symmetric whatever the noise: they are promised.
            kept = kept and 0.93 <= shares[0] <= 0.97
            cells = (f"{share:{max(len(text) + 2, 15)}.1%}" for share, text in zip(shares, head, strict=True))
            print(f"{name:14}{seeds:7}" + "".join(cells), flush=True)
    return kept


def _holds(interval: tuple[float, ...] | None) -> bool:
    return interval is not None and interval[0] <= 0 <= interval[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweeps", type=int, default=1000)
    parser.add_argument("--quick", action="store_true", help="a tenth of the sweeps")
    options = parser.parse_args()
    sweeps = options.sweeps // 10 if options.quick else options.sweeps
    began = time.monotonic()
    kept = [false_winners(sweeps), power(sweeps), coverage(10 * sweeps)]
    print(f"\n{time.monotonic() - began:.0f} s; {'all promises kept' if all(kept) else 'a promise is broken'}")
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
