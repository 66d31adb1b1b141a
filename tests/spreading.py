"""How `make test` spreads files over its workers, and where its time went.

What belongs together runs in one worker: the tests of a file, which share what its fixtures make, and files that share
what they train. The heaviest come first, so that no worker is left with a long one at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import pytest

TOGETHER = {
    "tests/trainables/test_zoo_fit.py": "zoo",  # both look at the same trials
    "tests/trainables/test_zoo_replicas.py": "zoo",
}
HEAVY = {"slow": 30, "ray": 20, "keras": 3}  # seconds that a test may take, roughly


def scope(nodeid: str) -> str:
    """What a test runs in one worker with."""
    file = nodeid.partition("::")[0]
    return TOGETHER.get(file, file)


def heaviest_first(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The same tests, those of a scope one after the other and files of it as they were."""
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        groups.setdefault(scope(item.nodeid), []).append(item)
    ordered = sorted(groups.values(), key=lambda group: -sum(map(_weight, group)))
    return [item for group in ordered for item in group]


def _weight(item: pytest.Item) -> float:
    marks = {mark.name for mark in item.iter_markers()}
    return max((seconds for name, seconds in HEAVY.items() if name in marks), default=0.1)


def scheduler(config: pytest.Config, log: Any) -> Any:
    """What gives scopes out to workers, in the order in which they were collected."""
    from xdist.scheduler import LoadScopeScheduling

    class ByScope(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope(nodeid)

    config.option.loadscopereorder = False
    return ByScope(config, log)


def by_folder(reports: Iterable[Any]) -> Iterator[str]:
    """Lines of a table: seconds, tests and files of each folder, those that took longest first."""
    seconds, tests = Counter[str](), Counter[str]()
    timed = sorted(
        (_folder(one.nodeid), one.nodeid, one.duration)
        for one in reports
        if hasattr(one, "duration")
    )
    for folder, found in groupby(timed, key=lambda one: one[0]):
        parts = list(found)
        seconds[folder], tests[folder] = (
            sum(part[2] for part in parts),
            len({part[1] for part in parts}),
        )
    for folder, total in seconds.most_common():
        yield f"{total:8.1f} s  {tests[folder]:5} tests  {folder}"


def _folder(nodeid: str) -> str:
    path = nodeid.partition("::")[0].split("/")
    return "/".join(path[:-1][:3])
