"""Every page of the live page, checked by axe-core in a real browser, in light and dark, on a desktop and a phone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browsers import needs_chromium
from living import driving, epoch, now, start
from visiting import Visit, Visitor

from sweep.store.folder import ResultsFolder

pytestmark = [pytest.mark.slow, needs_chromium]

PHONE = {"viewport": {"width": 390, "height": 850}, "is_mobile": True, "has_touch": True}
SERIOUS = ("serious", "critical")
PAGES = {  # whether the page says that it is ready
    "/": False,
    "/lives": True,
    "/killed": True,
    "/done": True,
    "/killed/3": True,
    "/done/1?beside=3": True,
    "/-/compare?sweep=done&sweep=killed": True,
    "/-/new": False,
    "/-/new?from=done": False,
    "/nothing": False,
}


def find_violations(one: Visitor) -> list[str]:
    """Return what axe-core finds serious on the page as it is now, each with where it is and why."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="an extra of its own")
    found: list[dict[str, Any]] = axe.Axe().run(one.page).response["violations"]
    return [
        f"{violation['id']}: {node['target']} {node['failureSummary']}"
        for violation in found
        if violation["impact"] in SERIOUS
        for node in violation["nodes"]
    ]


@pytest.mark.parametrize("size", ["desktop", "phone"])
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_no_page_has_a_serious_barrier(
    visit: Visit, project: Path, colours: str, size: str
) -> None:
    one = visit(color_scheme=colours, **(PHONE if size == "phone" else {}))
    found = {}
    with driving(ResultsFolder(project / "results" / "lives")) as driver:
        driver.write(start(5, now()), epoch(5, 1, now()), epoch(5, 2, now()))
        for path, ready in PAGES.items():
            one.open(path, ready=ready)
            one.page.wait_for_timeout(1500)  # what the page's news bring
            found[path] = find_violations(one)
        one.troubles.clear()  # /nothing was not found
        one.open("/done")
        one.page.click(".more summary")
        found["menu"] = find_violations(one)
        one.page.click("button[data-act=retrain]")
        one.page.wait_for_selector("dialog[open]")
        found["form"] = find_violations(one)
        one.page.keyboard.press("Escape")
        one.page.click("[data-act=add]")
        one.page.wait_for_selector(".offered")
        found["lines of a form"] = find_violations(one)
        one.page.keyboard.press("Escape")
        one.page.evaluate("selectTrials(picked, [1, 4])")
        one.page.wait_for_selector("#chosen:visible")
        found["selection"] = find_violations(one)
        one.open("/done/0")
        one.page.click("[data-act=note_trial]")
        one.page.fill("#field-text", "slow")
        one.page.click("dialog button[type=submit]")
        one.page.click("[data-act=star]")
        one.page.wait_for_selector("#star [data-placed]")
        one.page.wait_for_selector("#note [data-placed]")
        found["marks of a trial"] = find_violations(one)
        one.open("/-/new", ready=False)
        one.page.focus("#text")
        one.page.keyboard.press("Control+Home")
        one.page.keyboard.type("# why\n")
        one.page.keyboard.press("Control+Home")
        one.page.keyboard.press("Control+Space")
        one.page.wait_for_selector("#no-proposals:visible")
        found["no suggestions"] = find_violations(one)
    assert {path: violations for path, violations in found.items() if violations} == {}
