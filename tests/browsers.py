"""A real browser for tests: Chromium, which asks nobody for anything by itself."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
SWITCHES = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium on the PATH")


@contextmanager
def launched(*switches: str) -> Iterator[Any]:
    """Yield the browser, as Playwright drives it, with more switches."""
    api = pytest.importorskip("playwright.sync_api", reason="an extra of its own")
    with api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=[*SWITCHES, *switches])
        yield browser
        browser.close()
