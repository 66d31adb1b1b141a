"""A sweep file that is written on the page, in a real browser."""

from __future__ import annotations

from typing import Any

import pytest
from browsers import needs_chromium
from living import FILE
from visiting import Visit

pytestmark = [pytest.mark.slow, needs_chromium]

GOOD = FILE.replace("NAME", "new").replace("scored:Scored", "scored:train")
BAD = GOOD.replace("epochs: 6", "epochs: none")


def test_mistakes_are_those_of_the_newest_text(visit: Visit) -> None:
    """The server is slow: older checks are given up, and what they found is marked as older until the next answer."""
    held: list[Any] = []
    one = visit()
    one.open("/-/new", ready=False)
    one.page.fill("#text", BAD)
    one.has_text("#verdict", "1 mistake")
    one.page.route("**/-/new/check", lambda route: held.append(route))
    one.page.fill("#text", BAD.replace("none", "never"))
    one.has_text("#verdict", "^checking \\.\\.\\.$")
    assert one.page.get_attribute("#mistakes", "class") == "plain-list older"
    assert one.page.is_enabled("#run")
    one.page.wait_for_timeout(700)
    one.page.fill("#text", GOOD)
    one.page.wait_for_timeout(700)
    assert [route.request.post_data_json["text"] == GOOD for route in held] == [False, True]
    assert held[0].request.failure is not None
    held[1].continue_()
    one.has_text("#verdict", "^new: no mistake")
    assert one.page.locator("#mistakes li").count() == 0
