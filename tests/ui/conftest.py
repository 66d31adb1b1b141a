"""Browsers, a project with three sweeps, and its page."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsers import launched
from living import epoch, finished, make_sweep, some_trials, start
from visiting import TRAINABLE, Visit, Visitor, serving


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as found:
        yield found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    now = time.time()
    (tmp_path / "scored.py").write_text(TRAINABLE)
    results = tmp_path / "results"
    make_sweep(results, "lives", some_trials(now, 5))
    make_sweep(
        results, "killed", [*some_trials(now - 600), start(8, now - 500), epoch(8, 1, now - 499)]
    )
    make_sweep(results, "done", finished(now - 3600))
    return tmp_path


@pytest.fixture
def address(project: Path) -> Iterator[str]:
    with serving(project) as found:
        yield found


@pytest.fixture
def visit(browser: Any, address: str) -> Iterator[Visit]:
    """Opens the shelf in a browser of its own; afterwards nothing may have gone wrong in it."""
    visitors: list[Visitor] = []

    def open_(**context: Any) -> Visitor:
        visitors.append(Visitor(browser, address, **context))
        return visitors[-1]

    yield open_
    for one in visitors:
        assert one.page.evaluate("window.hacked") is None
        one.context.close()
        assert one.troubles == []
