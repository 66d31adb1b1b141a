"""Choose the tests that `make test` runs, by what each covers and how long it took; lists the others as slow.

It needs the times of a whole run, and which branches each test reached, by the package ``pytest-cov``:

    make test-all ARGS="--times=times.txt --cov=sweep --cov=trainables --cov-branch --cov-context=test --cov-report="
    python tools/choose_tests.py times.txt .coverage

The tests that take next to no time are all chosen, and the fastest of each file. So are those that check the source as
text, because they reach no branches. Then the next test is always the one that reaches the most branches that no chosen
test reaches, for each second that it takes, until the time is used up or no branch is left; the rest of the time goes
to the fastest of the other tests. What runs in a process that a test starts is not seen: for the sake of these tests
each file has one.
"""

from __future__ import annotations

import argparse
import heapq
import math
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

SLOW_TESTS = Path(__file__).resolve().parent.parent / "tests" / "slow_tests.txt"
SECONDS = 690.0
"""Time of all tests together: two workers need half of it, and some more to import TensorFlow and to collect."""

QUICK = 0.1
"""Seconds of a test that is always chosen: four fifths of all tests take less, together a twentieth of the time."""

OF_THE_SOURCE = tuple(
    f"tests/{name}.py"
    for name in (
        "test_architecture_names",
        "test_core",
        "test_density",
        "test_private_accesses",
        "test_private_names",
    )
)
"""Files whose tests read the source of the packages and of the tests; together they take half a minute."""


def read_times(lines: Sequence[str]) -> dict[str, float]:
    """Return the seconds of each test, of lines such as ``1.25 tests/test_a.py::test_b[c]``."""
    times: dict[str, float] = defaultdict(float)
    for line in lines:
        seconds, test = line.split(" ", 1)
        times[test] += float(seconds)
    return times


def read_branches(database: Path) -> dict[str, int]:
    """Return the branches that each test reaches, as a bit mask, of a file that coverage.py has written.

    The file's tables are described in coverage.py's documentation, "Coverage.py database schema". A context is named
    ``test|phase``, where the phase is setup, run or teardown.
    """
    # of the branches, in the order in which they come
    numbers: dict[tuple[int, int, int], int] = {}
    masks: dict[str, bytearray] = defaultdict(bytearray)
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        contexts = dict(connection.execute("select id, context from context"))
        rows = connection.execute("select context_id, file_id, fromno, tono from arc")
        for context, *branch in rows:
            number = numbers.setdefault(tuple(branch), len(numbers))
            mask = masks[contexts[context].rpartition("|")[0]]
            if number // 8 >= len(mask):
                mask.extend(bytes(number // 8 + 1 - len(mask)))
            mask[number // 8] |= 1 << number % 8
    return {test: int.from_bytes(mask, "little") for test, mask in masks.items()}


def choose(times: Mapping[str, float], reached: Mapping[str, int], seconds: float) -> list[str]:
    """Return the tests to run within so many seconds, in the order in which they are chosen.

    ``times`` has the seconds of each test, and ``reached`` its branches as `read_branches` returns them.
    """
    chosen: list[str] = []
    left, covered = seconds, 0
    for test in _list_first(times):
        if times[test] <= left:
            chosen.append(test)
            left -= times[test]
            covered |= reached.get(test, 0)
    # A test's worth never grows while others are chosen, so that only the first of the queue has to be computed anew.
    queue = [(-math.inf, times[test], test) for test in set(times).difference(chosen)]
    while queue:
        _, taken, test = heapq.heappop(queue)
        if taken > left:
            continue
        branches = reached.get(test, 0)
        entry = (-(branches & ~covered).bit_count() / taken, taken, test)
        if queue and entry > queue[0]:
            heapq.heappush(queue, entry)
            continue
        chosen.append(test)
        left -= taken
        covered |= branches
    return chosen


def _list_first(times: Mapping[str, float]) -> list[str]:
    """Return the tests that are chosen whatever they cover: quick ones, those of the source, each file's fastest."""
    fastest_first = sorted(times, key=lambda test: (times[test], test))
    files: dict[str, str] = {}
    for test in fastest_first:
        files.setdefault(test.partition("::")[0], test)
    quick = [test for test in fastest_first if times[test] <= QUICK]
    of_the_source = [test for test in fastest_first if test.startswith(OF_THE_SOURCE)]
    return list(dict.fromkeys([*quick, *of_the_source, *files.values()]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("times", type=Path, help="as `--times` has written them")
    parser.add_argument(
        "coverage", type=Path, help="the data file of coverage.py, with branches and contexts"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        help="of all tests together (default: %(default)s)",
    )
    given = parser.parse_args()
    times = read_times(given.times.read_text().splitlines())
    reached = read_branches(given.coverage)
    chosen = choose(times, reached, given.seconds)
    slow = set(times).difference(chosen)
    SLOW_TESTS.write_text("".join(f"{test}\n" for test in sorted(slow)))
    branches = _count_branches(reached, times)
    print(
        f"{len(chosen):,} of {len(times):,} tests, {_count_branches(reached, chosen):,} of {branches:,} branches, "
        f"{sum(times[test] for test in chosen):,.0f} of {sum(times.values()):,.0f} s"
    )


def _count_branches(reached: Mapping[str, int], tests: Iterable[str]) -> int:
    """Return how many branches the given tests reach together."""
    covered = 0
    for test in tests:
        covered |= reached.get(test, 0)
    return covered.bit_count()


if __name__ == "__main__":
    main()
