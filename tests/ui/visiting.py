"""The page as a process, a browser that visits it, and acts that are pressed there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from waiting import PATIENCE_S

from sweep.store.folder import ResultsFolder

TRAINABLE = """
import time
def train(hp, report):
    for epoch in range(6):
        time.sleep(0.2)
        report(val_accuracy=hp.learning_rate * hp.units + len(hp.optimizer) / 10)
"""


@contextmanager
def serving(project: Path, *options: str) -> Iterator[str]:
    """The page as a process; yields its address with the token."""
    command = [sys.executable, "-m", "sweep", "ui", "--port", "0", "--no-open", *options]
    with subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        try:
            yield first.split()[1]
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0


class Visitor:
    """A browser on the page, and all that went wrong in it."""

    def __init__(self, browser: Any, address: str, **context: Any) -> None:
        self.troubles: list[str] = []
        self.base = address.split("/?")[0]
        self.context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 900}, **context}
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(1000 * PATIENCE_S)
        self.page.on("console", lambda message: self.troubles.append(f"console: {message.text}"))
        self.page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        self.page.on("request", self._look_at_request)
        self.page.add_init_script(
            "addEventListener('securitypolicyviolation', (event) => console.log('policy ' + event.violatedDirective))"
        )
        self.page.goto(address)
        self.page.wait_for_url(f"{self.base}/")

    def _look_at_request(self, request: Any) -> None:
        if not request.url.startswith((self.base, "data:")):
            self.troubles.append(f"request: {request.url[:200]}")

    def open(self, path: str, *, ready: bool = True) -> None:
        self.page.goto(f"{self.base}{path}")
        if ready:
            self.page.wait_for_selector("html[data-ready]", state="attached")

    def wait(self, condition: str) -> None:
        self.page.wait_for_function(f"() => Boolean({condition})")

    def has_text(self, selector: str, pattern: str) -> None:
        self.page.wait_for_function(
            "([selector, pattern]) => RegExp(pattern).test(document.querySelector(selector)?.innerText ?? '')",
            arg=[selector, pattern],
        )

    def has_exactly(self, selector: str, text: str) -> None:
        self.page.wait_for_function(
            "([selector, text]) => document.querySelector(selector)?.innerText === text",
            arg=[selector, text],
        )


Visit = Callable[..., Visitor]


def press_act(one: Visitor, name: str, line: str, fields: Mapping[str, str] | None = None) -> str:
    """Press an act whose command line is ``python -m sweep`` with ``line``, and return what it printed.

    The page must show the command line before and after. ``fields`` are filled in; a flag is "yes".
    """
    one.wait("acts.restored")
    before = one.page.locator("#jobs .job").count()
    place = (
        f"#note [data-placed={name}]"
        if name.startswith("remove_note")
        else f"#buttons [data-act={name}]"
    )
    button = one.page.locator(place)
    button.wait_for(state="attached")
    if not button.is_visible():
        one.page.click(".more summary")
    button.hover()
    if fields is None:
        one.has_exactly("#command", f"python -m sweep {line}")
        button.click()
    else:
        button.click()
        for field, value in fields.items():
            fill(one, field, value)
        one.has_exactly("dialog output", f"python -m sweep {line}")
        one.page.click("dialog button[type=submit]")
    one.wait(f"document.querySelectorAll('#jobs .job').length === {before + 1}")
    one.wait("document.querySelector('#jobs .job').dataset.code !== ''")
    job = one.page.locator("#jobs .job").first
    said = str(job.text_content())
    assert job.locator("code").text_content() == f"python -m sweep {line}"
    assert job.get_attribute("data-code") == "0", said
    return said


def fill(one: Visitor, field: str, value: str) -> None:
    """Fill in a field of the form that is open."""
    if one.page.locator(f"#field-{field}").get_attribute("type") == "checkbox":
        one.page.check(f"#field-{field}")
    else:
        one.page.fill(f"#field-{field}", value)


def events_of(folder: ResultsFolder) -> list[dict[str, Any]]:
    """The events of a sweep's log."""
    return [json.loads(line) for line in folder.log.read_text().splitlines()]
