"""`make docs`: links of the repository become those of the site, and the site works in a browser without a network."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from browsers import launched, needs_chromium

pytest.importorskip("mkdocs", reason='needs pip install -e ".[docs]"')
ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import docs_site  # noqa: E402 - a tool, not part of the package


@pytest.mark.parametrize(
    ("page", "there", "here"),
    [
        ("index.md", "docs/data.md#where-the-data-lies", "data.md#where-the-data-lies"),
        ("index.md", "results/README.md", "columns.md"),
        ("data.md", "sources.md", "sources.md"),
        ("dashboards.md", "../results/README.md", "columns.md"),
        (
            "adr/0016-ranks-behind-one-trainable.md",
            "../several_processes.md",
            "../several_processes.md",
        ),
        ("adr/README.md", "../../ARCHITECTURE.md", "../architecture.md"),
        ("data.md", "https://example.org/a.md", "https://example.org/a.md"),
        ("data.md", "#here", "#here"),
        ("data.md", "../nowhere.md", "../nowhere.md"),  # which a strict build refuses
    ],
)
def test_links(page: str, there: str, here: str) -> None:
    assert docs_site.linked(f"See [it]({there}).", page) == f"See [it]({here})."


def test_public_names_without_a_docstring_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "undocumented_names.py").write_text(
        'class Base:\n    def inherited(self): ...\n\nclass Some(Base):\n    """Is."""\n    x = 1\n'
        '    def bare(self): ...\n    def _hidden(self): ...\n    def said(self):\n        """Say."""\n'
    )
    monkeypatch.setattr(docs_site, "ROOT", tmp_path)
    found = set(docs_site.undocumented("undocumented_names.Some"))
    assert found == {"undocumented_names.Some.inherited", "undocumented_names.Some.bare"}
    assert list(docs_site.undocumented("undocumented_names.Base")) == [
        "undocumented_names.Base",
        "undocumented_names.Base.inherited",
    ]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The built site, served on the loopback."""
    folder = tmp_path_factory.mktemp("site")
    build = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(folder),
    ]
    built = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.exhaustive
@needs_chromium
def test_the_site_in_a_browser(address: str) -> None:
    troubles: list[str] = []
    with launched() as browser:
        context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="dark")
        page = context.new_page()
        page.on("console", lambda message: troubles.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: troubles.append(f"error: {error}"))
        page.on("requestfailed", lambda request: troubles.append(f"failed: {request.url}"))
        page.on(
            "request",
            lambda one: (
                None if one.url.startswith(address) else troubles.append(f"request: {one.url}")
            ),
        )
        page.goto(f"{address}/index.html", wait_until="networkidle")
        # dark, as the system
        assert page.evaluate("document.body.dataset.mdColorScheme") == "slate"
        assert page.evaluate(
            "[...document.images].every((image) => image.complete && image.naturalWidth > 0)"
        )
        page.click("label[for=__search]:visible") if page.is_visible(
            "label.md-header__button[for=__search]"
        ) else None
        page.fill(".md-search__input", "asha")
        page.wait_for_selector(".md-search-result__item")
        hits = page.eval_on_selector_all(
            ".md-search-result__link", "links => links.map((link) => link.href)"
        )
        assert any("sweep_file" in hit for hit in hits), hits
        page.wait_for_load_state("networkidle")
        page.set_viewport_size({"width": 375, "height": 800})
        for name in ("index", "tutorial", "sweep_file", "api", "verdict", "comparison", "layout"):
            page.goto(f"{address}/{name}.html", wait_until="networkidle")
            wide = page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert wide <= 0, (name, wide)
    assert troubles == []
