"""Are verdicts as sure as they say? Simulated sweeps in which the truth is known.

    python benchmarks/verdicts.py [--sweeps 1000] [--quick]

Prints how often a sweep without any true difference calls a configuration worse (at most 5 %), how often a true
difference of 1.2 standard deviations of the paired differences is told (of any of the others, of a given one, and of
all of them), and how often the 95 % intervals hold the truth. Scores are a seed's own effect, which all configurations
share, and noise as in verdict_procedures.py, which compares the test with others. Exits with 1 where a promise is
broken.
"""

from __future__ import annotations

import argparse
import math
import sys
import time

import numpy as np
from scipy import stats
from verdict_procedures import NOISES, PROMISED, Floats

from sweep.statistics.intervals import ALPHA, compute_mean_interval
from sweep.statistics.verdicts import Verdict, compare_configurations

# configurations and seeds
SHAPES = (
    (2, 8),
    (4, 6),
    (4, 8),
    (8, 8),
    (4, 12),
    (8, 12),
    (27, 8),
    (27, 12),
)


def scores(
    rng: np.random.Generator, noise: str, shape: tuple[int, int], lead: float = 0.0
) -> Floats:
    """Return scores, (configurations, seeds); the first is better by ``lead`` deviations of a paired difference."""
    found = NOISES[noise](rng, (1, shape[1], shape[0]))[0].T + 2 * rng.standard_normal(shape[1])
    found[0] += lead * math.sqrt(2)
    return found


def judged(table: Floats) -> list[Verdict]:
    found = compare_configurations(
        {at: dict(enumerate(row.tolist())) for at, row in enumerate(table)}, maximize=True
    )
    return [found[at].verdict for at in range(len(table))]


def false_worse(sweeps: int) -> bool:
    print(
        f"{sweeps:,} sweeps without any true difference: share in which any configuration is called worse"
    )
    print(f"{'noise':14}{'configurations':>15}{'seeds':>7}{'worse':>10}{'error':>8}")
    kept = True
    for name in PROMISED:
        for shape in SHAPES:
            rng = np.random.default_rng(0)
            count = sweeps if shape[0] < 20 else max(sweeps // 5, 1)
            wrong = sum(Verdict.WORSE in judged(scores(rng, name, shape)) for _ in range(count))
            error = math.sqrt(ALPHA * (1 - ALPHA) / count)
            kept = kept and wrong / count <= ALPHA + 3 * error
            print(
                f"{name:14}{shape[0]:15}{shape[1]:7}{wrong / count:10.1%}{error:8.1%}", flush=True
            )
    return kept


def power(sweeps: int) -> bool:
    print(
        "\nOne configuration better by 1.2 standard deviations of the differences: share in which this is told"
    )
    print(f"{'noise':14}{'configurations':>15}{'seeds':>7}{'of any':>9}{'of each':>9}{'of all':>9}")
    kept = True
    for name in ("normal", "skewed up", "skewed down", "heavy", "discrete"):
        for shape in SHAPES:
            rng = np.random.default_rng(1)
            count = sweeps if shape[0] < 20 else max(sweeps // 5, 1)
            any_ = each = all_ = 0.0
            for _ in range(count):
                told = judged(scores(rng, name, shape, 1.2))
                if told[0] is not Verdict.WORSE:
                    worse = told[1:].count(Verdict.WORSE)
                    any_ += worse > 0
                    each += worse / (shape[0] - 1)
                    all_ += worse == shape[0] - 1
            shares = [value / count for value in (any_, each, all_)]
            kept = kept and (
                name != "normal" or shape != (4, 8) or shares[2] >= 0.5 - 3 * 0.5 / math.sqrt(count)
            )
            print(
                f"{name:14}{shape[0]:15}{shape[1]:7}"
                + "".join(f"{share:9.0%}" for share in shares),
                flush=True,
            )
    return kept


def coverage(draws: int) -> bool:
    print("\n95 % intervals: share that holds the truth")
    head = ("difference, t", "mean, t", "mean, BCa", "difference to the one chosen as best of 5")
    print(
        f"{'noise':14}{'seeds':>7}" + "".join(f"{text:>{max(len(text) + 2, 15)}}" for text in head)
    )
    kept = True
    for name in ("normal", "skewed up", "heavy"):
        for seeds in (6, 8, 12, 20):
            rng = np.random.default_rng(2)
            hits = np.zeros(4)
            few = max(draws // 10, 1)  # bootstraps
            for at in range(draws):
                table = NOISES[name](rng, (1, seeds, 5))[0].T
                best = int(table.mean(axis=1).argmax())
                other = (best + 1) % 5
                hits[0] += _holds(compute_mean_interval((table[0] - table[1]).tolist()))
                hits[1] += _holds(compute_mean_interval(table[0].tolist()))
                hits[3] += _holds(compute_mean_interval((table[other] - table[best]).tolist()))
                if at < few:
                    bca = stats.bootstrap(
                        (table[0],), np.mean, n_resamples=999, rng=rng, method="BCa"
                    )
                    hits[2] += _holds(tuple(bca.confidence_interval))
            shares = hits / [draws, draws, few, draws]
            # Differences of alike configurations are symmetric whatever the noise: they are promised.
            kept = kept and 0.93 <= shares[0] <= 0.97
            cells = (
                f"{share:{max(len(text) + 2, 15)}.1%}"
                for share, text in zip(shares, head, strict=True)
            )
            print(f"{name:14}{seeds:7}" + "".join(cells), flush=True)
    return kept


def _holds(interval: tuple[float, ...] | None) -> bool:
    return interval is not None and interval[0] <= 0 <= interval[1]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sweeps", type=int, default=1000)
    parser.add_argument("--quick", action="store_true", help="a tenth of the sweeps")
    options = parser.parse_args()
    sweeps = options.sweeps // 10 if options.quick else options.sweeps
    began = time.monotonic()
    kept = [false_worse(sweeps), power(sweeps), coverage(10 * sweeps)]
    print(
        f"\n{time.monotonic() - began:.0f} s; {'all promises kept' if all(kept) else 'a promise is broken'}"
    )
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
