"""The HTML frames of the pages, which the scripts fill with content. All values in them are escaped."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources

import jinja2

from sweep.render import report

OWN_SCRIPTS = ("elements.js", "connection.js", "acts.js")
PAGES: Mapping[str, Sequence[str]] = {
    "shelf": (*OWN_SCRIPTS, "shelf.js"),
    "sweep": (*report.SCRIPTS, *OWN_SCRIPTS, "parts.js", "growing.js", "marks.js", "sweep.js"),
    "compare": (*report.SCRIPTS, *OWN_SCRIPTS, "parts.js", "compare.js"),
    "trial": (*report.SCRIPTS, *OWN_SCRIPTS, "trial.js"),
    "draft": (*OWN_SCRIPTS, "proposals.js", "draft.js"),
}
"""The scripts of each page, in their order."""
STYLES = ("report.css", "ui.css")
KINDS = {"js": "text/javascript", "css": "text/css"}


@cache
def read_file(name: str) -> bytes | None:
    """Return the content of the script or style sheet ``name`` of the pages; None for any other name.

    A file is read only once.
    """
    known = {*STYLES, *(script for scripts in PAGES.values() for script in scripts)}
    if name not in known:
        return None
    if name in report.SCRIPTS or name == "report.css":
        return report.read_asset(name).encode()
    return resources.files("sweep.ui.page").joinpath(name).read_bytes()


@cache
def _make_file_address(name: str) -> str:
    """Return the address of a script or style sheet, relative to the root; another version has another address.

    So browsers may keep the file. The version is that of the first call in this process.
    """
    digest = hashlib.sha256(read_file(name) or b"").hexdigest()[:12]
    return f"-/files/{name}?v={digest}"


@cache
def _make_environment() -> jinja2.Environment:
    """Return the environment of the page templates, the same one at each call.

    It escapes all values, and raises an error for a value that a template uses and was not given.
    """
    return jinja2.Environment(
        loader=jinja2.PackageLoader("sweep.ui", "page"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def draw_shell(page: str, title: str, *, root: str, **values: object) -> str:
    """Return the HTML frame of a page; ``values`` become attributes of its body, which the scripts read.

    ``page`` is one of `PAGES`. ``root`` is the relative address of the server's first page, which may be below another
    path behind a proxy.
    """
    return (
        _make_environment()
        .get_template(f"{page}.html.jinja")
        .render(
            title=title,
            root=root,
            scripts=[_make_file_address(name) for name in PAGES[page]],
            styles=[_make_file_address(name) for name in STYLES],
            values=values,
        )
    )


def draw_cell(script: str, **values: object) -> str:
    """Return the HTML for the output of a notebook's cell, with the text ``script`` as its script.

    The script, which is not escaped, reads ``values`` from the attributes of an element, whose id is ``values["id"]``.
    """
    return _make_environment().get_template("cell.html.jinja").render(script=script, values=values)


def draw_message(
    title: str, text: str, *, root: str, forward: str = "", after_s: int = 0, is_let_in: bool = True
) -> str:
    """Return the HTML of a page that shows the message ``text``, from which the browser may be led on.

    If ``forward`` is an address, the browser is led on to it after ``after_s`` seconds. ``root`` is described in
    `draw_shell`. A browser that is not let in gets neither styles nor a link to the root, which it could not load.
    """
    template = _make_environment().get_template("message.html.jinja")
    names = STYLES if is_let_in else ()
    styles = [_make_file_address(name) for name in names]
    return template.render(
        title=title, text=text, root=root, forward=forward, after_s=after_s, styles=styles
    )
