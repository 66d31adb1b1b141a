"""Choose the tests that `make test` runs, by how long each took; writes the others to ``tests/slow_tests.txt``.

`python -m pytest -n 2 -m "not exhaustive" --times=times.txt`, then `python tools/choose_tests.py times.txt`. The tests
that take next to no time are all chosen. Then comes the fastest test of each file, the fastest row of each test
function, and all other rows, always the fastest first, until the time is used up.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

SLOW_TESTS = Path(__file__).resolve().parent.parent / "tests" / "slow_tests.txt"
SECONDS = 1_100.0
"""Time of all tests together: two workers need half of it, and some more to import TensorFlow and to collect."""

QUICK = 0.3
"""Seconds of a test that is always chosen: three quarters of all tests take less, together a twentieth of the time."""

LONGEST = 8.0
"""Seconds that a chosen test may take."""


def read_times(lines: Sequence[str]) -> dict[str, float]:
    """Return the seconds of each test, of lines such as ``1.25 tests/test_a.py::test_b[c]``."""
    times: dict[str, float] = defaultdict(float)
    for line in lines:
        seconds, test = line.split(" ", 1)
        times[test] += float(seconds)
    return times


def slow_tests(times: Mapping[str, float], seconds: float, longest: float = LONGEST) -> list[str]:
    """Return the tests that do not fit into so many seconds, sorted by name."""
    left, chosen = seconds, set[str]()
    for test in _in_order(times):
        if times[test] <= min(left, longest):
            chosen.add(test)
            left -= times[test]
    return sorted(set(times) - chosen)


def _in_order(times: Mapping[str, float]) -> list[str]:
    """Return the tests in the order in which they are chosen."""
    files: dict[str, str] = {}
    functions: dict[str, str] = {}
    fastest_first = sorted(times, key=lambda test: (times[test], test))
    for test in fastest_first:
        files.setdefault(test.partition("::")[0], test)
        functions.setdefault(test.partition("[")[0], test)
    quick = [test for test in fastest_first if times[test] <= QUICK]
    return list(dict.fromkeys([*quick, *files.values(), *functions.values(), *fastest_first]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("times", type=Path, help="as `--times` has written them")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of all tests together")
    given = parser.parse_args()
    times = read_times(given.times.read_text().splitlines())
    slow = slow_tests(times, given.seconds)
    SLOW_TESTS.write_text("".join(f"{test}\n" for test in slow))
    functions = {test.partition("[")[0] for test in times}
    left_out = functions - {test.partition("[")[0] for test in set(times) - set(slow)}
    print(
        f"{len(times) - len(slow):,} of {len(times):,} tests, none of {len(left_out):,} of {len(functions):,} functions"
    )
    print(f"{sum(times.values()) - sum(times[test] for test in slow):,.0f} of {sum(times.values()):,.0f} s")


if __name__ == "__main__":
    main()
